"""`tf.TensorArray`: outside of functions, where it is a list, and in loops of graphs, where it is one tensor."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.backends.rows_in_place import chains_of
from gradtape.ops.control import Scan, While
from gradtape.transforms.adding_rows import with_rows_added

Array = tf.TensorArray
X = np.random.default_rng(0).uniform(-1, 1, (4, 3)).astype(np.float32)


def recurrent(x: Any) -> Any:
    found, h = Array(tf.float32, 4), tf.zeros([3])
    for i in tf.range(4):
        h = tf.tanh(x[i] + 2.0 * h)
        found = found.write(i, h)
    return found.stack()


def growing(x: Any) -> Any:
    found, h = Array(tf.float32, 1, dynamic_size=True), x[0]
    found = found.write(0, h)
    for i in tf.range(1, 4):
        h = tf.sin(h) * x[i]
        found = found.write(i, h)
    return found.stack() * tf.cast(found.size(), tf.float32)


def reading(x: Any) -> Any:
    found = Array(tf.float32, 6, clear_after_read=False).write(0, x[0]).write(1, x[1])
    for i in tf.range(2, 6):
        found = found.write(i, found.read(i - 1) * found.read(i - 2) + tf.sin(found.read(i - 1)))
    return found.stack()


def overwriting(x: Any) -> Any:
    found = Array(tf.float32, 2, clear_after_read=False).unstack(x[:2])
    for i in tf.range(4):
        found = found.write(i % 2, found.read(i % 2) * x[i] + found.read((i + 1) % 2))
    return found.stack()


def conditional(x: Any) -> Any:
    found = Array(tf.float32, 4)
    for i in tf.range(4):
        if i % 2 == 0:
            found = found.write(i, x[i] ** 2)
    return found.stack()


def stopped(x: Any) -> Any:
    found, i = Array(tf.float32, 4, element_shape=[3]), 0
    while i < tf.constant(4):
        if tf.reduce_sum(x[i]) > 0.9:
            break
        found = found.write(3 - i, x[i] ** 2)
        i += 1
    return found.stack()


def nested(x: Any) -> Any:
    found = Array(tf.float32, 4)
    for i in tf.range(4):
        row = Array(tf.float32, 3)
        for j in tf.range(3):
            row = row.write(j, x[i, j] ** 2)
        found = found.write(i, row.stack() * 2.0)
    return found.stack()


def flat(x: Any) -> Any:
    found = Array(tf.float32, 12)
    for i in tf.range(4):
        for j in tf.range(3):
            found = found.write(3 * i + j, x[i, j] ** 2)
    return found.stack()


def scattered(x: Any) -> Any:
    found = Array(tf.float32, 4, element_shape=[3])
    for i in tf.range(3):
        found = found.scatter([i, 3 - i], tf.stack([x[i], x[i + 1] ** 2]))
    return found.concat()


def of_a_structure(x: Any) -> Any:
    start = {"found": Array(tf.float32, 4), "h": x[0]}

    def body(i: Any, s: Any) -> Any:
        return i + 1, {"found": s["found"].write(i, x[i] * s["h"]), "h": s["h"] * x[i]}

    _, last = tf.while_loop(lambda i, s: i < 4, body, (tf.constant(0), start))
    return last["found"].stack() + last["h"]


def between_branches(x: Any) -> Any:
    found = Array(tf.float32, 4, element_shape=[3])
    for i in tf.range(4):
        found = tf.cond(i > 1, lambda: found.write(i, x[i]), lambda: found.write(1 - i, x[i] ** 2))  # noqa: B023
    return found.stack()


def whole_in_the_loop(x: Any) -> Any:
    found, total = Array(tf.float32, 4, element_shape=[3]), tf.zeros([3])
    for i in tf.range(4):
        found = found.write(i, x[i] * tf.reduce_sum(total) + x[i])
        total = total + tf.reduce_sum(found.stack() ** 2, 0)
    return total


def walked(x: Any) -> Any:
    given, found, h = Array(tf.float32, 4, clear_after_read=False).unstack(x), Array(tf.float32, 4), tf.zeros([3])
    for i in tf.range(3, -1, -1):
        h = h * 0.5 + given.read(i) * given.read(3 - i)
        found = found.write(i, h)
    return found.gather([3, 0, 3])


def written_out(x: Any) -> Any:
    found = Array(tf.float32, 5)
    for i in range(4):
        found = found.write(i, x[i] ** 2)
    return found.stack()


PROGRAMS: list[Callable[[Any], Any]] = [
    recurrent,
    growing,
    reading,
    overwriting,
    conditional,
    stopped,
    nested,
    flat,
    scattered,
    of_a_structure,
    between_branches,
    whole_in_the_loop,
    walked,
    written_out,
]


def orders(f: Callable[[Any], Any]) -> list[Any]:
    """The value, its Jacobian, and a gradient of the gradient."""
    x = tf.constant(X)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = f(x)
            s = tf.reduce_sum(tf.sin(y))
        g = tape.gradient(s, x)
        size = tf.reduce_sum(g**2)
    return [y, tape.jacobian(y, x), outer.gradient(size, x)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_graphs_do_what_lists_do(program: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing runs op by op
        found = orders(tf.function(program))
        inside = tf.function(lambda x: orders(program)[1])(tf.constant(X))
    wanted = orders(program)
    for a, b in zip([*found, inside], [*wanted, wanted[1]], strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)


def bodies(f: Any, x: Any) -> list[Any]:
    """The bodies of the loops that a function's call and its gradient run."""
    found = []

    def look(graph: Any) -> None:
        for node in graph.nodes:
            if isinstance(node.step.op, While | Scan):
                found.append((node.step.params["body"], node.step.params["carried"]))

    @tf.function
    def slope(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(f(x))
        return tape.gradient(y, x)

    look(with_rows_added(slope.get_concrete_function(x).graph))
    return found


@pytest.mark.parametrize("program", [recurrent, reading, overwriting, walked])
def test_no_round_copies_an_array(program: Any) -> None:
    """All rows that loops change, in either direction, they change in place."""
    loops = bodies(program, tf.constant(X))
    assert len(loops) == 2
    for body, carried in loops:
        written = [n for chain in chains_of(body, carried).written.values() for n in chain]
        assert {n for n in body.nodes if n.step.name == "set_row"} == set(written)
        assert not [n for n in body.nodes if n.step.name in ("scatter_add", "scatter_rows")]


def test_an_array_that_is_read_later_is_not_written_over() -> None:
    @tf.function
    def f(x: Any) -> Any:
        found, before = x * 1.0, x * 0.0
        whole = Array(tf.float32, 3).unstack(found)
        for i in tf.range(3):
            before = whole.stack()
            whole = whole.write(i, -1.0)
        return before, whole.stack(), found

    before, after, start = f(tf.constant([1.0, 2.0, 3.0]))
    assert before.numpy().tolist() == [-1, -1, 3]
    assert after.numpy().tolist() == [-1, -1, -1]
    assert start.numpy().tolist() == [1, 2, 3]


def test_unknown_dimensions() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32)])
    def f(x: Any) -> Any:
        n = tf.shape(x)[0]
        found, grown = Array(tf.float32, n), Array(tf.float32, 0, dynamic_size=True)
        for i in tf.range(n):
            found, grown = found.write(i, x[i] ** 2), grown.write(i, x[i])
        return found.stack(), grown.stack()

    for n in (1, 4):
        squares, same = f(X[:n])
        np.testing.assert_allclose(squares, X[:n] ** 2, rtol=1e-6)
        np.testing.assert_array_equal(same, X[:n])
    assert f.experimental_get_tracing_count() == 1


def test_arrays_go_into_functions_and_come_out() -> None:
    @tf.function
    def f(found: Any, x: Any) -> Any:
        return found.write(1, x * x), found.size()

    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        given = Array(tf.float32, 2).write(0, x * 5.0)
        made, size = f(given, x)
        y = tf.reduce_sum(made.stack())
    assert (float(y), float(tape.gradient(y, x)), int(size)) == (24.0, 11.0, 2)
    assert given.stack().numpy().tolist() == [15, 0]
    f(given, x)
    assert f.experimental_get_tracing_count() == 1


def test_a_size_that_nobody_knows_runs_op_by_op() -> None:
    @tf.function
    def f(n: Any) -> Any:
        found, i = Array(tf.int32, 0, dynamic_size=True), 0
        while i < n:
            found = found.write(i, i * i)
            i += 1
        return found.stack()

    @tf.function
    def appended(x: Any) -> Any:
        found = Array(tf.float32, 0, dynamic_size=True)
        for v in x:
            found = found.write(found.size(), v)
        return found.stack()

    @tf.function
    def some(x: Any) -> Any:
        found = Array(tf.float32, 0, dynamic_size=True)
        for i in tf.range(3):
            if x[i] > 1.5:
                found = found.write(i, x[i])
        return found.stack()

    numbers = tf.constant([1.0, 2.0, 1.0])
    for g, x, wanted in ((f, tf.constant(4), [0, 1, 4, 9]), (appended, numbers, [1, 2, 1]), (some, numbers, [0, 2])):
        with pytest.warns(UserWarning, match="`dynamic_size`"):
            assert g(x).numpy().tolist() == wanted


@pytest.mark.parametrize(
    ("dtype", "row", "nothing"), [(tf.string, b"a", b""), (tf.bool, True, False), (tf.float16, 1.5, 0.0)]
)
def test_dtypes(dtype: Any, row: Any, nothing: Any) -> None:
    @tf.function
    def f() -> Any:
        found = Array(dtype, 3)
        for i in tf.range(2):
            found = found.write(i, tf.constant(row, dtype))
        return found.stack()

    assert f().numpy().tolist() == [row, row, nothing]


def test_in_all_slices_at_once() -> None:
    def one(v: Any) -> Any:
        return Array(tf.float32, 3, element_shape=[]).write(tf.cast(v[0], tf.int32), v[1] ** 2).stack()

    x = tf.constant([[2.0, 3.0], [0.0, 4.0]])
    for f in (tf.vectorized_map, tf.function(tf.vectorized_map)):
        assert f(one, x).numpy().tolist() == [[0, 0, 9], [16, 0, 0]]


def test_writes_change_the_array_outside_of_functions_only() -> None:
    def f() -> Any:
        found = Array(tf.float32, 2)
        found.write(0, 1.0)
        return found.stack()

    assert f().numpy().tolist() == [1, 0]
    assert tf.function(f)().numpy().tolist() == [0, 0]


def test_identity_and_close() -> None:
    found = Array(tf.float32, 2).write(0, 1.0)
    other = found.identity().write(1, 2.0)
    assert found.stack().numpy().tolist() == [1, 0]
    found.close()
    assert (int(found.size()), other.stack().numpy().tolist()) == (0, [1, 2])
    assert tf.nest.flatten([other]) == [other]
    assert (other.dtype, other.element_shape.as_list(), other.dynamic_size) == (tf.float32, [], False)


def test_pieces_of_different_sizes() -> None:
    for f in (lambda g: g, tf.function):
        made = f(lambda x: Array(tf.float32, 2, infer_shape=False).split(x, [1, 3]).concat() * 2.0)(tf.constant(X))
        np.testing.assert_array_equal(made, X * 2)


def three() -> Any:
    return Array(tf.float32, 3)


E = tf.errors
# What is done; what it raises outside of functions, and inside of them.
WRONG: list[tuple[Callable[[], Any], Any, Any, str]] = [
    (lambda: three().write(3, 1.0), E.OutOfRangeError, E.InvalidArgumentError, "index 3 .* size is: 3"),
    (lambda: three().write(-1, 1.0), E.OutOfRangeError, E.InvalidArgumentError, "negative .* -1"),
    (lambda: three().read(3), E.OutOfRangeError, E.InvalidArgumentError, "index 3 .* size is: 3"),
    (lambda: three().read(-1), E.OutOfRangeError, E.InvalidArgumentError, "negative .* -1"),
    (lambda: three().read(0), ValueError, E.InvalidArgumentError, "element_shape"),
    (lambda: three().stack(), ValueError, E.InvalidArgumentError, "element_shape"),
    (lambda: three().write(0, tf.constant(1)), E.InvalidArgumentError, E.InvalidArgumentError, "float32 .* int32"),
    (lambda: three().write(0, [1.0]).write(1, 2.0), ValueError, ValueError, r"\(\).*\(1,\)"),
    (lambda: Array(tf.float32, 1, element_shape=[2]).write(0, [1.0]), ValueError, ValueError, r"\(1,\).*\(2,\)"),
    (lambda: three().unstack(tf.zeros([4])), ValueError, ValueError, "4 tensors .* size 3"),
    (lambda: three().unstack(1.0), ValueError, ValueError, "one axis"),
    (lambda: three().unstack([1.0, 2.0]).concat(), E.InvalidArgumentError, E.InvalidArgumentError, "scalar shape"),
    (lambda: three().unstack([1.0, 2.0]).gather([2]), E.InvalidArgumentError, E.InvalidArgumentError, "index 2"),
    (lambda: three().scatter([0], [1.0, 2.0]), E.InvalidArgumentError, E.InvalidArgumentError, "as many positions"),
    (lambda: three().split([1.0, 2.0], [1, 2]), E.InvalidArgumentError, E.InvalidArgumentError, "sum of lengths is 3"),
    (lambda: three().write(1.5, 1.0), TypeError, TypeError, "integer scalar"),
    (lambda: three().write([1], 1.0), TypeError, TypeError, "integer scalar"),
    (lambda: Array(tf.float32), ValueError, ValueError, "`size`"),
    (lambda: Array(tf.float32, -1), ValueError, ValueError, "0 or more"),
    (lambda: Array(None, 1), TypeError, TypeError, "`dtype`"),
]


@pytest.mark.parametrize(("f", "outside", "inside", "says"), WRONG)
def test_wrong_use(f: Any, outside: Any, inside: Any, says: str) -> None:
    with pytest.raises(outside, match=says):
        f()

    def traced() -> Any:
        made = f()
        return made.stack() if isinstance(made, Array) else made

    with pytest.raises(inside, match=says):
        tf.function(traced)()


def test_an_element_is_read_once() -> None:
    found = three().write(0, 1.0)
    found.read(0)
    with pytest.raises(E.InvalidArgumentError, match="clear_after_read"):
        found.read(0)
    assert found.stack().numpy().tolist() == [0, 0, 0]
    assert tf.function(lambda: (lambda a: a.read(0) + a.read(0))(three().write(0, 1.0)))().numpy() == 2


@pytest.mark.host("on a device positions cannot be refused without waiting for them")
def test_positions_are_checked_when_a_graph_runs() -> None:
    @tf.function
    def written(n: Any) -> Any:
        found = three()
        for i in tf.range(n):
            found = found.write(i, 1.0)
        return found.stack()

    @tf.function
    def read(k: Any) -> Any:
        return three().unstack([1.0, 2.0, 3.0]).read(k)

    assert written(tf.constant(2)).numpy().tolist() == [1, 1, 0]
    assert float(read(tf.constant(2))) == 3
    for call in (lambda: written(tf.constant(4)), lambda: read(tf.constant(3)), lambda: read(tf.constant(-1))):
        with pytest.raises(E.InvalidArgumentError, match="is not in"):
            call()
