"""`assemble` on rows: a product whose letters are own axes, put where its letters stand. Floor: transforms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gradtape.ops.placement import Place, Product
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.letters import Axis, Letter, Pair, Positions, chosen, pair
from gradtape.transforms.rows.moves import broadcast, reshaped, transposed
from gradtape.transforms.rows.terms import Rows, Term, each, fused


def over_all(b: Builder, v: Rows, letters: tuple[int, ...], sizes: tuple[int, ...]) -> Rows:
    """A factor over some letters of a product, with one own axis for each letter that the product has."""
    order = [letters.index(c) for c in range(len(sizes)) if c in letters]
    v = transposed(b, v, order)
    v = reshaped(b, v, [n if c in letters else 1 for c, n in enumerate(sizes)])
    return broadcast(b, v, sizes)


def placed(b: Builder, v: Rows, t: Product, vectors: Sequence[Positions], shape: Sequence[int]) -> Rows:
    """A product with one own axis for each of its letters, on the axes of the result, which has this shape."""

    def rule(term: Term) -> Term:
        for letter in range(len(t.sizes)):
            term = fused(b, term, letter)
        at = term.own
        return replace(term, own=tuple(tuple(_placed(b, at[p.letter], p, vectors) for p in axis) for axis in t.axes))

    return each(b, v, shape, rule)


def _placed(b: Builder, own: Axis, to: Place, vectors: Sequence[Positions]) -> Pair:
    """The axis of a product's letter as a part of an axis of the result. What stood at position l of it stands at
    `where[l]` now."""
    (p,) = own
    where: Positions = vectors[to.where] if isinstance(to.where, int) else to.where
    positions = pair(Letter(p.extent), where, to.extent)
    if positions.where is None:
        return pair(p.letter, p.where, to.extent)
    return pair(p.letter, chosen(b, positions, p.where), to.extent)
