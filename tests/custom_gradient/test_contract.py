"""The rest of the contract: which gradient is wrong, keywords, what stays fused around a rule, and where rules work."""

from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.ir.graph import Node
from gradtape.runtime.backward import Host, Segment, build


def gradients(f: Any, *args: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch([a for a in args if isinstance(a, tf.Tensor)])
        y = f(*args)
    return tape.gradient(y, [a for a in args if isinstance(a, tf.Tensor)])


# ------------------------------------------------------------------ errors that say which


def test_the_argument_with_a_wrong_gradient_is_named() -> None:
    @tf.custom_gradient
    def f(x: Any, pair: Any, *rest: Any) -> Any:
        return x * 1.0, lambda up: (up, {"a": up, "b": tf.ones([2])}, up)

    x = tf.ones([3])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x, {"a": x, "b": x * 2.0}, x)
    with pytest.raises(ValueError, match=r"`f`.*\(2,\) for argument 2, `pair\['b'\]`, which has shape \(3,\)"):
        tape.gradient(y, x)


def test_the_variable_with_a_wrong_gradient_is_named() -> None:
    v = tf.Variable([1.0, 2.0, 3.0], name="kernel")

    @tf.custom_gradient
    def f(x: Any) -> Any:
        return x * v, lambda up, variables: (up, [tf.ones([2])])

    with pytest.raises(ValueError, match=r"for variable `kernel:0`, which has shape \(3,\)"):
        gradients(f, tf.ones([3]))


def test_a_gradient_that_was_not_summed_says_so() -> None:
    @tf.custom_gradient
    def f(x: Any, b: Any) -> Any:
        return x + b, lambda up: (up, up)

    with pytest.raises(ValueError, match=r"argument 1, `b`.*sum over the axes that were broadcast"):
        gradients(f, tf.ones([4, 3]), tf.ones([3]))


def test_a_transposed_gradient_is_no_gradient() -> None:
    @tf.custom_gradient
    def f(x: Any) -> Any:
        return x * 1.0, lambda up: tf.transpose(up)

    with pytest.raises(ValueError, match=r"\(2, 3\) for argument 0, `x`, which has shape \(3, 2\)"):
        gradients(f, tf.ones([3, 2]))


def test_axes_of_size_one_are_no_matter() -> None:
    @tf.custom_gradient
    def f(x: Any) -> Any:
        return x * 1.0, lambda up: up[:, None] * 2.0

    assert gradients(f, tf.ones([3]))[0].numpy().tolist() == [2.0, 2.0, 2.0]


def test_a_wrong_number_names_the_arguments() -> None:
    class Layer:
        @tf.custom_gradient
        def call(self, x: Any) -> Any:
            return x * 2.0, lambda up: (None, up)

    with pytest.raises(ValueError, match=r"return 1 gradients, but returned 2 .*`call` has 1 arguments: `x`"):
        gradients(Layer().call, tf.constant(1.0))


# ------------------------------------------------------------------ keywords


def test_options_by_keyword_may_be_answered_with_none() -> None:
    @tf.custom_gradient
    def power(x: Any, n: int = 2) -> Any:
        return x**n, lambda up: (up * n * 10.0, None)

    x = tf.constant(2.0)
    for call in (lambda v: power(v, 3), lambda v: power(v, n=3), lambda v: power(x=v, n=3)):
        assert float(gradients(call, x)[0]) == 30.0


def test_an_option_by_keyword_has_no_gradient_but_none() -> None:
    @tf.custom_gradient
    def power(x: Any, n: int = 2) -> Any:
        return x**n, lambda up: (up, up)

    with pytest.raises(ValueError, match="expected to return 1 gradients, but returned 2"):
        gradients(lambda v: power(v, n=3), tf.constant(2.0))


def test_all_by_keyword_and_defaults_between() -> None:
    @tf.custom_gradient
    def f(x: Any, scale: float = 2.0, y: Any = None) -> Any:
        return x * scale * y, lambda up: (up * 10.0, None, up * 30.0)

    x, y = tf.constant(3.0), tf.constant(5.0)
    assert [float(g) for g in gradients(lambda a, b: f(y=b, x=a), x, y)] == [10.0, 30.0]


def test_a_function_of_any_keywords_refuses_tensors_by_keyword() -> None:
    f = tf.custom_gradient(lambda *args, **kwargs: (args[0] * 1.0, lambda up: up))
    with pytest.raises(TypeError, match=r"\['y'\].*positional"):
        f(tf.constant(1.0), y=tf.constant(2.0))


# ------------------------------------------------------------------ where rules work


@tf.custom_gradient
def tripled(x: Any) -> Any:
    y = tf.exp(x)
    return y, lambda up: 3.0 * up * y


WHERE = {
    "eager": lambda f: f,
    "function": tf.function,
    "function of a function": lambda f: tf.function(tf.function(f)),
    "map": lambda f: lambda x: tf.vectorized_map(f, x),
    "method": lambda f: type("L", (), {"call": tf.function(lambda self, x: f(x))})().call,
    "recomputed": lambda f: tf.recompute_grad(lambda x: f(x)),
    "inside a rule": lambda f: tf.custom_gradient(lambda x: (f(x), lambda up: up * f(x) * 3.0)),
}


@pytest.mark.parametrize("where", WHERE)
def test_the_same_derivatives_everywhere(where: str) -> None:
    f = WHERE[where]
    x = tf.constant([0.1, 0.7])
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(x)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = f(tripled)(x)
        g = tape.gradient(y, x)
    want = np.exp([0.1, 0.7])
    np.testing.assert_allclose(g.numpy(), 3 * want, rtol=1e-6)
    np.testing.assert_allclose(tape.jacobian(y, x).numpy(), np.diag(3 * want), rtol=1e-6)
    second = {"inside a rule": 9.0}.get(where, 3.0)  # there, the rule calls `tripled` again
    np.testing.assert_allclose(outer.gradient(g, x).numpy(), second * want, rtol=1e-6)


def test_rows_of_lookups_as_an_answer() -> None:
    @tf.custom_gradient
    def lookup(table: Any) -> Any:
        return tf.gather(table, [1, 1]), lambda up: tf.IndexedSlices(up * 2.0, tf.constant([1, 1]), tf.constant([3, 2]))

    found = gradients(lookup, tf.ones([3, 2]))[0]
    assert found.numpy().tolist() == [[0.0, 0.0], [4.0, 4.0], [0.0, 0.0]]


# ------------------------------------------------------------------ fused around a rule


def parts(tape: Any, target: Any, source: Any) -> list[Any]:
    """The pieces of the backward pass."""
    recorder = tape._recorder
    slots = recorder.slots
    return build(recorder.node, (slots[target._id],), (slots[source._id],), (False,), {}).steps


def kernels(segment: Segment) -> list[Node]:
    return segment.compiled.runs.nodes


def test_what_is_before_and_after_a_rule_stays_fused() -> None:
    def before(x: Any) -> Any:
        return tf.tanh(tf.sin(x) * 2.0) * tf.exp(x)

    @tf.custom_gradient
    def half(x: Any) -> Any:
        return x * 1.0, lambda up: up * 0.5

    x = tf.constant(np.ones((64, 64), "float32"))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = before(half(before(x)))
    first, rule, second = parts(tape, y, x)
    assert isinstance(first, Segment) and isinstance(rule, Host) and isinstance(second, Segment)
    with tf.GradientTape(persistent=True) as plain:
        plain.watch(x)
        z = before(x)
    (alone,) = parts(plain, z, x)
    kinds = [[n.step.op.kind for n in kernels(segment)] for segment in (first, alone, second)]
    assert kinds[0] == kinds[1] == kinds[2]


def test_functions_with_rules_are_one_program() -> None:
    """Traced, the rule is part of the graph: one kernel for all of it."""

    @tf.custom_gradient
    def half(x: Any) -> Any:
        return x * 1.0, lambda up: up * 0.5

    x = tf.constant(np.ones((64, 64), "float32"))
    f = tf.function(lambda v: tf.exp(tf.sin(half(tf.tanh(v)))))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = f(x)
    (segment,) = parts(tape, y, x)
    assert [n.step.op.kind for n in kernels(segment)] == ["fused"]


# ------------------------------------------------------------------ tensors by keyword


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize(
    ("answers", "call", "slopes"),
    [
        (1, lambda f, x, k: f(x, scale=k), (3.0, None)),  # as TensorFlow: for what was given by position
        (2, lambda f, x, k: f(x, scale=k), (3.0, 2.0)),  # for each tensor that was given
        (3, lambda f, x, k: f(x, scale=k), (3.0, 2.0)),  # for each parameter
        (1, lambda f, x, k: f(x, scale=k, how="twice"), (3.0, None)),
        (2, lambda f, x, k: f(x, scale=k, how="twice"), (3.0, 2.0)),
        (2, lambda f, x, k: f(scale=k, x=x), (3.0, 2.0)),
        (2, lambda f, x, k: f(x, k), (3.0, 2.0)),
        (2, lambda f, x, k: f(x, k, how="twice"), (3.0, 2.0)),
    ],
)
def test_tensors_by_keyword(answers: int, call: Any, slopes: Any, traced: bool) -> None:
    @tf.custom_gradient
    def f(x: Any, scale: Any = 2.0, how: str = "once") -> Any:
        return x * scale, lambda up: (up * scale, up * x, None)[:answers]

    x, k = tf.constant(2.0), tf.constant(3.0)
    g = tf.function(lambda x, k: call(f, x, k)) if traced else lambda x, k: call(f, x, k)
    with tf.GradientTape() as tape:
        tape.watch([x, k])
        y = g(x, k)
    assert [None if s is None else float(s) for s in tape.gradient(y, [x, k])] == list(slopes)


def test_a_default_between_tensors() -> None:
    @tf.custom_gradient
    def f(x: Any, how: str = "once", scale: Any = 2.0) -> Any:
        return x * scale, lambda up: (up * scale, up * x)

    x, k = tf.constant(2.0), tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch([x, k])
        y = f(x, scale=k)
    assert [float(s) for s in tape.gradient(y, [x, k])] == [3.0, 2.0]


def test_a_wrong_number_for_what_was_passed() -> None:
    @tf.custom_gradient
    def f(x: Any, scale: Any = 2.0, how: str = "once") -> Any:
        return x * scale, lambda up: (up, up, up, up)

    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x, scale=tf.constant(3.0))
    with pytest.raises(ValueError, match="expected to return 2 gradients, but returned 4 instead: `f` has 2 arg"):
        tape.gradient(y, x)


@pytest.mark.parametrize(("answer", "says"), [("half", "returned text, half, for"), (object(), "returned <object")])
def test_what_is_no_number(answer: Any, says: str) -> None:
    f = tf.custom_gradient(named(answer))
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    with pytest.raises((TypeError, ValueError), match=f"The rule of `identity` {says}"):
        tape.gradient(y, x)


def named(answer: Any) -> Any:
    def identity(x: Any) -> Any:
        return x * 1.0, lambda up: answer

    return identity


# ------------------------------------------------------------------ methods


class _Rules(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.v = tf.Variable(3.0)

    @tf.custom_gradient
    def of_object(self, x: Any, y: Any) -> Any:
        return x * y, lambda up: (up * 7.0, up * 8.0)

    @classmethod
    @tf.custom_gradient
    def of_class(cls, x: Any, y: Any) -> Any:
        return x * y, lambda up: (up * 7.0, up * 8.0)

    @staticmethod
    @tf.custom_gradient
    def of_none(x: Any, y: Any) -> Any:
        return x * y, lambda up: (up * 7.0, up * 8.0)

    @tf.custom_gradient
    def with_variable(self, x: Any) -> Any:
        return x * self.v, lambda up, variables=None: (up * 7.0, [up * 9.0])


@pytest.mark.parametrize("name", ["of_object", "of_class", "of_none"])
@pytest.mark.parametrize("how", [lambda f: f, tf.function], ids=["eager", "traced"])
def test_the_object_of_a_method_is_no_argument(name: str, how: Any) -> None:
    rules = _Rules()
    f = how(lambda x, y: getattr(rules, name)(x, y=y))
    x, y = tf.constant(2.0), tf.constant(5.0)
    assert [float(g) for g in gradients(f, x, y)] == [7, 8]


def test_a_method_reads_variables_of_its_object() -> None:
    rules = _Rules()
    with tf.GradientTape() as tape:
        y = rules.with_variable(rules.v * 2.0)
    assert (float(y), float(tape.gradient(y, rules.v))) == (18, 7 * 2 + 9)
    assert _Rules.with_variable.__name__ == "with_variable"
    assert float(_Rules.of_object(rules, tf.constant(2.0), tf.constant(5.0))) == 10
