"""`kernel_op` of plain Python functions: values against Python itself, derivatives against differences."""

from __future__ import annotations

import builtins
import inspect
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.ops.op import all_ops
from gradtape.runtime.devices import DEVICES
from gradtape.tracing.scalar_values import OF_SCALARS
from tests.cuda_emulator import cupy_stand_in
from tests.cuda_emulator.devices import emulated
from tests.kernel_ops.scalar_functions import FUNCTIONS, guarded, smooth

Function = Callable[..., Any]


def drawn(f: Function, count: int = 40) -> list[Any]:
    low, high = FUNCTIONS[f]
    required = [p for p in inspect.signature(f).parameters.values() if p.default is p.empty]
    return [np.random.default_rng(k).uniform(low, high, count) for k in range(len(required))]


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_values_are_python_s(f: Function) -> None:
    given = drawn(f)
    wanted = [f(*row) for row in zip(*given, strict=True)]
    np.testing.assert_allclose(tf.kernel_op(f)(*given).numpy(), [float(w) for w in wanted], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_derivatives_are_those_of_differences_to_second_order_in_both_modes(f: Function) -> None:
    tf.kernel_op(f).check(*drawn(f, 6), order=2, modes=("reverse", "forward"))


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_dtype_and_size_gives_its_own_dtype(f: Function, dtype: str) -> None:
    op = tf.kernel_op(f)
    few, many = (op(*(tf.cast(x, dtype) for x in drawn(f, n))) for n in (50, 70_000))
    assert few.dtype.name == many.dtype.name == dtype
    near = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 0.2}[dtype]
    exact = op(*(tf.cast(tf.cast(x, dtype), tf.float64) for x in drawn(f, 50))).numpy()
    np.testing.assert_allclose(few.numpy().astype(np.float64), exact, rtol=near, atol=near)
    wide = op(*(tf.cast(tf.cast(x, dtype), tf.float64) for x in drawn(f, 70_000))).numpy()
    np.testing.assert_allclose(many.numpy().astype(np.float64), wide, rtol=near, atol=near)


def test_operands_broadcast_and_their_gradients_are_summed() -> None:
    op = tf.kernel_op(lambda x, w: tf.tanh(x * w) + w)
    x, w = tf.ones([3, 4]), tf.Variable(tf.ones([4]))
    with tf.GradientTape() as tape:
        y = op(x, w)
    (g,) = tape.gradient(y, [w])
    np.testing.assert_allclose(g, 3 * (2 - np.tanh(1.0) ** 2) * np.ones(4), rtol=1e-6)


def test_a_branch_that_is_not_taken_does_not_poison_the_gradient() -> None:
    x = tf.constant([-1.0, 0.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.kernel_op(guarded)(x)
    np.testing.assert_allclose(tape.gradient(y, x), [0.0, 0.0, 0.5])


def test_jacobians_keep_their_structure_and_examples_are_independent() -> None:
    op = tf.kernel_op(smooth)
    x = tf.Variable(np.random.default_rng(0).normal(size=(3, 2)))
    with tf.GradientTape(persistent=True) as tape:
        y = op(x) * x[:, :1]
        z = op(x)
    assert tape.plan_jacobian(z, x).structure.startswith("a b | a b :")
    whole, batch = tape.jacobian(y, x), tape.batch_jacobian(y, x)
    np.testing.assert_allclose(tf.einsum("bibj->bij", whole), batch)
    loop = tape.jacobian(y, x, experimental_use_pfor=False)
    np.testing.assert_allclose(whole, loop)


def test_maps_functions_and_custom_gradients_take_it_as_any_op() -> None:
    op = tf.kernel_op(smooth)
    x = tf.constant(np.random.default_rng(0).normal(size=(3, 2)))
    np.testing.assert_allclose(tf.vectorized_map(lambda row: op(row, 3.0), x), op(x, 3.0))
    np.testing.assert_allclose(tf.function(lambda x: op(x))(x), op(x))

    @tf.custom_gradient
    def scaled(x: Any) -> Any:
        return op(x), lambda up: op(up)

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = scaled(x)
    np.testing.assert_allclose(tape.gradient(y, x), op(tf.ones_like(x)))


def test_static_parameters_are_numbers_of_the_formula() -> None:
    @tf.kernel_op
    def scaled(x, *, times=2.0, terms=1):
        return sum(times * x**k for k in range(1, terms + 1))

    x = tf.constant([1.0, 2.0])
    np.testing.assert_array_equal(scaled(x), [2.0, 4.0])
    np.testing.assert_array_equal(scaled(x, times=1.0, terms=2), [2.0, 6.0])
    with pytest.raises(TypeError, match="unexpected keyword"):
        scaled(x, other=1)
    with pytest.raises(TypeError, match="should be numbers"):
        scaled(x, times=[2.0])
    with pytest.raises(
        TypeError, match=r"`scaled` .* should be numbers, got .*Tensor for `times`\. Tensors are operands"
    ):
        scaled(x, times=x)


def test_several_results_are_several_tensors() -> None:
    @tf.kernel_op
    def polar(x, y):
        if x > 100:
            return 0.0 * x, y
        return math.sqrt(x * x + y * y), math.atan2(y, x)

    r, angle = polar(3.0, [4.0, 0.0])
    np.testing.assert_allclose(r, [5.0, 3.0])
    np.testing.assert_allclose(angle, [math.atan2(4, 3), 0.0], rtol=1e-6)


def test_operands_that_a_result_does_not_mention_still_broadcast() -> None:
    @tf.kernel_op
    def first(x, y):
        return x

    assert first(tf.ones([2, 1]), tf.ones([3])).shape == (2, 3)
    with tf.GradientTape() as tape:
        x, y = tf.Variable([[1.0], [2.0]]), tf.Variable([1.0, 2.0, 3.0])
        z = first(x, y)
    gx, gy = tape.gradient(z, [x, y])
    np.testing.assert_array_equal(gx, [[3.0], [3.0]])
    assert gy is None


def test_whole_numbers_where_the_formula_has_no_others() -> None:
    op = tf.kernel_op(lambda x, y: x * 2 + max(x, y))
    assert op(tf.constant([1, 2]), 3).dtype is tf.int32
    with pytest.raises(tf.errors.InvalidArgumentError, match="does not take int32"):
        tf.kernel_op(lambda x: x * 0.5)(tf.constant([1, 2]))


def test_a_derivative_of_ones_own() -> None:
    clipped = tf.kernel_op(lambda x: round(x), name="rounded", derivative=lambda x: 1.0 if abs(x) < 2 else 0.0)
    swish = tf.kernel_op(
        lambda x, b: x / (1 + math.exp(-b * x)),
        derivative=(lambda x, b, out: b * out + (1 - b * out) / (1 + math.exp(-b * x)), None),
        name="swish",
    )
    x = tf.constant([0.4, 2.6], tf.float64)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y, z = clipped(x), swish(x, 1.0)
    np.testing.assert_array_equal(y, [0.0, 3.0])
    np.testing.assert_array_equal(tape.gradient(y, x), [1.0, 0.0])
    s = 1 / (1 + np.exp(-x.numpy()))
    np.testing.assert_allclose(tape.gradient(z, x), s + x.numpy() * s * (1 - s))


@pytest.mark.parametrize("derivative", [None, lambda x: 7.0 * x])
def test_saved_models_hold_the_formula_and_the_derivative(tmp_path: Path, derivative: Any) -> None:
    op = tf.kernel_op(lambda x: x * math.sin(x), derivative=derivative)
    module = tf.Module()
    module.f = tf.function(lambda x: op(x), input_signature=[tf.TensorSpec([3], tf.float32)])
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    tf.saved_model.save(module, str(tmp_path / "model"), options=options)
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    x = tf.constant([0.5, 1.0, 2.0])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y, z = op(x), loaded.f(x)
    np.testing.assert_array_equal(y, z)
    np.testing.assert_allclose(tape.gradient(y, x), tape.gradient(z, x), rtol=1e-6)


def test_one_kernel_forwards_and_one_backwards() -> None:
    before = DEVICES.device
    with cupy_stand_in.using_device() as device:
        DEVICES.use(emulated())
        try:
            op = tf.kernel_op(lambda x, y: math.tanh(x * y) / (1 + x * x) if x > 0 else y)
            x, y = tf.random.normal([64, 48]), tf.random.normal([64, 48])
            device.synchronize("operands")
            device.counts.clear()
            with tf.GradientTape() as tape:
                tape.watch(x)
                z = op(x, y)
            device.synchronize("forwards")
            forwards = len(device.counts.launches)
            up = tf.ones([64, 48])
            device.synchronize("cotangent")
            device.counts.clear()
            g = tape.gradient(z, x, up)
            device.synchronize("backwards")
            assert (forwards, len(device.counts.launches)) == (1, 1)
            assert np.isfinite(g.numpy()).all()
        finally:
            DEVICES.use(None if before is None else before.cuda)


# ------------------------------------------------------------------ wrong calls


def endless(x):
    while x > 0:
        x = x - 1
    return x


def of_elements(x):
    return x[0]


def attribute(x):
    return x.shape


def unknown_call(x):
    return open(x)


def nothing(x):
    if x > 0:
        return x


def one_sided(x):
    if x > 0:
        a = 1.0
    return a * x


def long_loop(x):
    for _ in range(10**6):
        x = x * 1.1
    return x


TENSOR = tf.constant([1.0, 2.0])


def of_tensor(x):
    return x * TENSOR


def statement(x):
    with open(x) as f:
        return f


def whole_number(x):
    return int(x)


def wrong_count(x):
    return tf.exp(x, x, x)


def uneven(x):
    return (x, x) if x > 0 else x


@pytest.mark.parametrize(
    ("f", "says"),
    [
        (endless, "`while` whose condition depends on an operand in line"),
        (of_elements, "a single number"),
        (attribute, "its `shape`"),
        (unknown_call, "calls `open`, which is not among the functions known here"),
        (lambda x: math.hypot(x, 1.0) + x, "calls `hypot`, which is not among"),
        (lambda x: math.gamma(x), "known one most like it is `lgamma`"),
        (lambda x: TENSOR if x > 0 else x, "`scalar_function` computes with"),
        (3, "`kernel_op` wants a plain Python function, .* got 3"),
        (nothing, "a value in every case"),
        (one_sided, "`a` has a value on one side"),
        (long_loop, "loops are unrolled"),
        (of_tensor, r"function `of_tensor` computes with .*make tensors and variables arguments\) in line"),
        (statement, "a statement `with`"),
        (whole_number, "math.floor"),
        (wrong_count, "calls `exp`"),
        (uneven, "several values on one side"),
        (lambda x, *rest: x, r"without \* and"),
        (lambda: 1.0, "a parameter that is an operand"),
        (math.exp, "a plain Python function"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_what_is_no_scalar_function_is_refused(f: Function, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        tf.kernel_op(f)(1.0)


def test_functions_without_a_source_or_a_value_are_refused() -> None:
    space: dict[str, Any] = {}
    exec("def f(x):\n    return x", space)
    with pytest.raises(ValueError, match="source of `f` is not available"):
        tf.kernel_op(space["f"])(1.0)
    with pytest.raises(ValueError, match="whatever its operands"):
        tf.kernel_op(lambda x: 3.0)(1.0)
    with pytest.raises(ValueError, match="identifier"):
        tf.kernel_op(lambda x: x, name="no name")


def test_wrong_operands_are_refused_as_those_of_any_op() -> None:
    op = tf.kernel_op(lambda x, y: x + y)
    with pytest.raises(tf.errors.InvalidArgumentError, match="incompatible shapes"):
        op(tf.ones([2]), tf.ones([3]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="one dtype"):
        op(tf.ones([2]), tf.ones([2], tf.float64))
    with pytest.raises(TypeError, match=r"`scalar_function` takes \(x, y\): missing a required argument: 'y'"):
        op(tf.ones([2]))
    with pytest.raises(TypeError, match="a partial for each"):
        tf.kernel_op(lambda x, y: x, derivative=lambda x: 1.0)(1.0, 2.0)
    with pytest.raises(TypeError, match="has parameters"):
        tf.kernel_op(lambda x: x, derivative=lambda z: 1.0)(1.0)


def test_check_finds_a_wrong_derivative() -> None:
    op = tf.kernel_op(lambda x: x * x, derivative=lambda x: x)
    with pytest.raises(AssertionError, match="not that of differences"):
        op.check(tf.constant([1.0, 2.0], tf.float64))


def test_kernel_ops_of_numbers_call_each_other_and_are_made_with_options() -> None:
    @tf.kernel_op(name="halved")
    def half(x):
        return x / 2

    quarter = tf.kernel_op(lambda x: half(half(x)))
    assert (half.name, float(quarter(1.0))) == ("halved", 0.25)
    rounded = tf.kernel_op(lambda x: round(x), name="rounded", derivative=lambda x: 1.0)
    with pytest.raises(TypeError, match="calls `rounded`, a kernel op that has a derivative of its own"):
        tf.kernel_op(lambda x: rounded(x) + 1)(1.0)


def test_ops_of_programs_are_not_in_the_table() -> None:
    before = all_ops()
    tf.kernel_op(lambda x: x + 1)(1.0)
    assert all_ops() == before


def test_functions_that_may_be_called_are_what_they_say() -> None:
    """Each function of numbers against its expression."""
    checked = 0
    for f, known in OF_SCALARS.items():
        if f in (int, np.clip):  # one is refused, and of the other bounds may be missing
            continue
        for count in (1, 2):
            given = [0.7, 0.4][:count]
            try:
                with np.errstate(all="ignore"):
                    want = float(known.numbers(*given))
            except (TypeError, ValueError, tf.errors.InvalidArgumentError):
                continue
            op = tf.kernel_op((lambda x, y, *, g: g(x)) if count == 1 else (lambda x, y, *, g: g(x, y)))
            found = op(np.float64(0.7), np.float64(0.4), g=f)
            np.testing.assert_allclose(np.float64(found), want, rtol=1e-9, err_msg=repr(f))
            checked += 1
    assert checked > 100


def test_and_or_of_conditions_are_conditions() -> None:
    op = tf.kernel_op(lambda x, y: (x > 0 and y > 0) or x > 5)
    assert op([1.0, 1.0, 6.0], [1.0, -1.0, -1.0]).numpy().tolist() == [True, False, True]


def test_a_number_beside_a_condition_makes_a_choice_a_number() -> None:
    op = tf.kernel_op(lambda x: x if x > 0 else False)
    assert op([2.5, -1.0]).numpy().tolist() == [2.5, 0.0]


def test_an_unrolled_loop_grows_by_its_steps() -> None:
    def newton(a, *, steps):
        x = a
        for _ in range(steps):
            x = 0.5 * (x + a / x)
        return x

    op, a = tf.kernel_op(newton), tf.constant([0.25, 9.0], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(a)
        root = op(a, steps=60)
    np.testing.assert_allclose(root.numpy(), [0.5, 3.0])
    np.testing.assert_allclose(tape.gradient(root, a).numpy(), [1.0, 1 / 6])


@pytest.mark.parametrize("module", [builtins, math], ids=lambda m: m.__name__)
def test_the_manual_names_the_functions_that_may_be_called(module: Any) -> None:
    text = Path("docs/own_kernels.md").read_text(encoding="utf-8")
    begin = text.index("Of Python's functions it may call" if module is builtins else "Of `math`: ")
    named = re.findall(
        r"`(\w+)`", text[begin : text.index("Of `math`: " if module is builtins else "Of NumPy: ", begin)]
    )
    known = {n for n, f in vars(module).items() if callable(f) and f in OF_SCALARS} - {"int"}  # which says what to use
    assert set(named) - {"math"} == known
