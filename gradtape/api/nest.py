"""`tf.nest`: structures of lists, tuples, dicts and named tuples. Floor: api.

None is a leaf, and so are tensors and arrays; dicts are read in the order of their keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import optree

__all__ = ["assert_same_structure", "flatten", "is_nested", "map_structure", "pack_sequence_as"]


def is_nested(seq: Any) -> bool:
    """Whether something is a structure and no leaf.

    >>> import gradtape as tf
    >>> tf.nest.is_nested([1]), tf.nest.is_nested(tf.constant([1])), tf.nest.is_nested("ab")
    (True, False, False)
    """
    return not optree.tree_is_leaf(seq, none_is_leaf=True)


def flatten(structure: Any, expand_composites: bool = False) -> list[Any]:
    """The leaves of a structure as a list; a leaf is a list of itself.

    >>> import gradtape as tf
    >>> tf.nest.flatten({"b": [1, (2,)], "a": None})
    [None, 1, 2]
    """
    leaves: list[Any] = optree.tree_leaves(structure, none_is_leaf=True)
    return leaves


def pack_sequence_as(structure: Any, flat_sequence: Any, expand_composites: bool = False) -> Any:
    """A structure like another one, from a list of its leaves.

    Raises:
      TypeError: leaves that are in no list.
      ValueError: another number of leaves.

    >>> import gradtape as tf
    >>> tf.nest.pack_sequence_as({"a": 0, "b": [0, 0]}, [1, 2, 3])
    {'a': 1, 'b': [2, 3]}
    """
    if not is_nested(flat_sequence):
        raise TypeError(f"Attempted to pack value {flat_sequence!r} into a structure, but found none of a list's kind.")
    leaves, spec = optree.tree_flatten(structure, none_is_leaf=True)
    given = list(flat_sequence)
    if len(given) != len(leaves):
        raise ValueError(
            f"Could not pack sequence: the structure has {len(leaves)} leaves, but flat_sequence has {len(given)}. "
            f"Structure: {structure!r}."
        )
    return optree.tree_unflatten(spec, given)


def map_structure(func: Callable[..., Any], *structure: Any, **kwargs: Any) -> Any:
    """A function applied to the leaves of structures that are alike, in the first one's structure.

    Args:
      func: takes one leaf of each structure.
      *structure: one structure or more.
      check_types: whether structures must be of equal types, too (True).

    Raises:
      TypeError: `func` cannot be called, or types differ.
      ValueError: no structure, or structures that are not alike.

    >>> import gradtape as tf
    >>> tf.nest.map_structure(lambda a, b: a + b, [1, {"k": 2}], [10, {"k": 20}])
    [11, {'k': 22}]
    """
    check_types = kwargs.pop("check_types", True)
    kwargs.pop("expand_composites", None)
    if kwargs:
        raise ValueError(f"`map_structure` takes `check_types` and `expand_composites`, got {sorted(kwargs)}.")
    if not callable(func):
        raise TypeError(f"`func` must be callable, got {func!r}.")
    if not structure:
        raise ValueError("`map_structure` wants at least one structure.")
    for other in structure[1:]:
        assert_same_structure(structure[0], other, check_types)
    results = [func(*leaves) for leaves in zip(*map(flatten, structure), strict=True)]
    return optree.tree_unflatten(optree.tree_structure(structure[0], none_is_leaf=True), results)


def assert_same_structure(nest1: Any, nest2: Any, check_types: bool = True, expand_composites: bool = False) -> None:
    """Checks that two structures are alike: the same nesting, the same keys, and (with `check_types`) equal types.

    Raises:
      TypeError: types that differ.
      ValueError: another nesting or other keys.

    >>> import gradtape as tf
    >>> tf.nest.assert_same_structure([1, (2, 3)], ["a", ("b", None)])
    >>> tf.nest.assert_same_structure([1, 2], [1, [2]])
    Traceback (most recent call last):
    ValueError: The two structures don't have the same nested structure: 2 is a leaf where the other has [2].
    """
    if is_nested(nest1) != is_nested(nest2):
        leaf, other = (nest2, nest1) if is_nested(nest1) else (nest1, nest2)
        raise ValueError(
            f"The two structures don't have the same nested structure: {leaf!r} is a leaf where the other has "
            f"{other!r}."
        )
    if not is_nested(nest1):
        return
    if check_types and type(nest1) is not type(nest2) and not (isinstance(nest1, dict) and isinstance(nest2, dict)):
        raise TypeError(
            "The two structures don't have the same sequence type: "
            f"{type(nest1).__name__} where the other has {type(nest2).__name__}."
        )
    (keys, parts), (other_keys, other_parts) = _parts(nest1), _parts(nest2)
    if len(parts) != len(other_parts) or (isinstance(nest1, dict) and keys != other_keys):
        raise ValueError(
            f"The two structures don't have the same nested structure: {list(keys)} where the other has "
            f"{list(other_keys)}."
        )
    for a, b in zip(parts, other_parts, strict=True):
        assert_same_structure(a, b, check_types)


def _parts(nest: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    """The keys of a structure's first level, and what is there."""
    children, _, keys, _ = optree.tree_flatten_one_level(nest, none_is_leaf=True)
    return keys, children
