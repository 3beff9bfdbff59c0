"""`kernel_op` of CUDA C++: the same results and derivatives on the emulated device and by the form for the host."""

from __future__ import annotations

import re
import uuid
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from tests.cuda_emulator.device import Device
from tests.kernel_ops.texts import (
    SOFT,
    centred,
    dot,
    normed,
    normed_of,
    running_squares,
    soft,
    soft_of,
    soft_with_backward,
    soft_with_derivative,
)

Make = Callable[..., Any]


def drawn(*shape: int, dtype: Any = np.float64, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(0.5, 2.0, shape).astype(dtype)


# ------------------------------------------------------------------ values


@pytest.mark.parametrize(
    ("x", "a"), [((2, 3), ()), ((2, 3), (3,)), ((2, 1), (1, 3)), ((), ()), ((0, 3), (3,)), ((700,), (700,))]
)
def test_operands_broadcast_along_loop_axes(place: str, x: Any, a: Any) -> None:
    given = drawn(*x), drawn(*a, seed=1)
    np.testing.assert_allclose(soft()(*given), soft_of(*given), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_types_are_those_of_the_operands(place: str, dtype: str) -> None:
    x = tf.constant(drawn(5), dtype)
    y = soft()(x, 2.0)
    assert y.dtype.name == dtype
    np.testing.assert_allclose(y, soft_of(drawn(5), 2.0), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_where_they_are_allowed(dtype: str, device: Device) -> None:
    text = (
        "__global__ void twice(const T* x, T* y, int size) { if (threadIdx.x < size) y[threadIdx.x] = x[threadIdx.x]; }"
    )
    op = tf.kernel_op(text, types={"T": ["float16", tf.bfloat16]}, signature="()->()")
    x = tf.constant([1.0, 2.5], dtype)
    np.testing.assert_array_equal(op(x).numpy(), x.numpy())
    with pytest.raises(tf.errors.InvalidArgumentError, match="one of float16, bfloat16"):
        op([1.0, 2.0])


def test_several_results_static_parameters_and_a_grid_of_ones_own(place: str) -> None:
    x = drawn(2, 5, 4, dtype=np.float32)
    for static in ({}, {"eps": 2.0}):
        y, n = normed()(x, **static)
        want, norm = normed_of(x.reshape(10, 4), **({"eps": 0.1} | static))
        np.testing.assert_allclose(y, want.reshape(2, 5, 4), rtol=1e-6)
        np.testing.assert_allclose(n, norm.reshape(2, 5), rtol=1e-6)


def test_what_lies_in_another_order_is_put_in_order(place: str) -> None:
    x, w = drawn(4, 3, 5), drawn(5, 3, 4, seed=1)
    found = dot()(tf.transpose(tf.constant(x), [2, 1, 0]), tf.constant(w)[:, :, ::-1])
    np.testing.assert_allclose(found, (x.transpose(2, 1, 0) * w[:, :, ::-1]).sum(-1))


def test_results_without_elements_are_not_launched_and_others_are(place: str) -> None:
    assert dot()(drawn(0, 3), drawn(3)).shape == (0,)
    np.testing.assert_array_equal(dot()(drawn(2, 0), drawn(0)), [0.0, 0.0])


def test_sizes_that_only_results_have(place: str) -> None:
    text = """__global__ void pairs(const float* x, float* y, int size, int n, int m, int step) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < size * m) y[i] = x[i / m * n + i % m * step];
    }"""
    op = tf.kernel_op(
        text,
        signature="(n)->(m)",
        sizes=lambda n, step: {"m": n // step},
        host=lambda x, step: x[:, : x.shape[1] // step * step : step],
    )
    np.testing.assert_array_equal(op([[1.0, 2.0, 3.0, 4.0, 5.0]], step=2), [[1.0, 3.0]])


def test_kernels_of_whole_arrays(place: str) -> None:
    x = drawn(2, 3)
    np.testing.assert_allclose(centred()(x, count=6), x - x.mean())
    centred().check(x, count=6)


def test_variables_numbers_lists_and_arrays_are_operands(place: str) -> None:
    op, want = soft(), soft_of(np.float32([1.0, 2.0]), np.float32(2.0))
    for x in (tf.Variable([1.0, 2.0]), [1.0, 2.0], np.float32([1.0, 2.0])):
        np.testing.assert_allclose(op(x, 2), want, rtol=1e-6)
    assert op(1.0, tf.Variable(2.0, dtype=tf.float64)).dtype is tf.float64


# ------------------------------------------------------------------ derivatives


@pytest.mark.parametrize("make", [soft_with_backward, soft_with_derivative, dot], ids=lambda f: f.__name__)
def test_gradients_are_those_of_differences(place: str, make: Make) -> None:
    make().check(drawn(3, 4), drawn(4, seed=1))
    make().check(drawn(4), drawn(2, 1, 4, seed=1))


def test_derivatives_of_scalars_have_every_order_and_both_modes(place: str) -> None:
    soft_with_derivative().check(drawn(3), drawn(3, seed=1), order=2, modes=("reverse", "forward"))


def test_a_backward_kernel_that_is_linear_by_promise_goes_forwards(place: str) -> None:
    op = soft_with_backward(linear=True)
    op.check(drawn(3), drawn(3, seed=1), modes=("reverse", "forward"))
    with pytest.raises(ValueError, match="linear=True"):
        soft_with_backward().check(drawn(3), drawn(3, seed=1), modes=["forward"])


@pytest.mark.parametrize(
    "make", [soft_with_backward, lambda: soft_with_backward(linear=True), soft_with_derivative, dot]
)
def test_jacobians_are_those_of_one_row_after_the_other(place: str, make: Make) -> None:
    x, w = tf.Variable(drawn(3, 2)), tf.Variable(drawn(2, seed=1))
    with tf.GradientTape(persistent=True) as tape:
        y = make()(x * x, w)
        y = y if y.ndim == 2 else y[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [tape.jacobian(y, [x, w]), [tape.batch_jacobian(y, x)]]
    one_by_one = {"experimental_use_pfor": False}
    looped = [tape.jacobian(y, [x, w], **one_by_one), [tape.batch_jacobian(y, x, **one_by_one)]]
    for a, b in zip(found, looped, strict=True):
        for p, q in zip(a, b, strict=True):
            np.testing.assert_allclose(p, q, rtol=1e-12)


def test_what_is_linear_keeps_the_structure_of_rows() -> None:
    x = tf.Variable(drawn(3, 2))
    for make, structure in (
        (soft_with_derivative, "a b | a b"),
        (lambda: soft_with_backward(linear=True), "a b | a b"),
    ):
        with tf.GradientTape() as tape:
            y = make()(x, 2.0)
        assert tape.plan_jacobian(y, x).structure.startswith(structure)


def test_rows_through_a_linear_backward_kernel_keep_their_loops(place: str) -> None:
    x = tf.Variable(drawn(3, 4))
    with tf.GradientTape(persistent=True) as tape:
        y = running_squares(linear=True)(x)
    assert re.match("a b . a c : ", tape.plan_jacobian(y, x).structure)
    loop = tape.jacobian(y, x, experimental_use_pfor=False)
    np.testing.assert_allclose(tape.jacobian(y, x), loop, rtol=1e-12)
    running_squares().check(drawn(2, 5))
    with pytest.raises(ValueError, match="running_back"):
        tape.jacobian(y, x, mode="forward")


def test_rows_of_a_python_rule_and_of_a_map(place: str) -> None:
    x = tf.Variable(drawn(3, 4, dtype=np.float32))
    op = normed()
    with tf.GradientTape(persistent=True) as tape:
        y, n = op(x)
        z = n * y[:, 0]
    looped = tape.jacobian(z, x, experimental_use_pfor=False)
    np.testing.assert_allclose(tape.jacobian(z, x), looped, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tf.vectorized_map(lambda r: op(r)[0], x), y, rtol=1e-6)


def test_a_kernel_without_signature_runs_row_by_row_with_one_warning(place: str) -> None:
    x, op = tf.constant(drawn(3, 4)), centred()
    with pytest.warns(RuntimeWarning, match="has no signature"):
        found = tf.vectorized_map(lambda r: op(r, count=4), x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tf.vectorized_map(lambda r: op(r, count=4), x)
    np.testing.assert_allclose(found, x - tf.reduce_mean(x, 1, keepdims=True))


def test_second_order_through_a_backward_kernel_with_a_gradient_of_its_own(place: str) -> None:
    square_back = tf.kernel_op(
        "__global__ void square_back(const T* x, const T* up, T* dx, int size) {"
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < size) dx[i] = 2 * x[i] * up[i]; }",
        types="T",
        signature="(),()->()",
        host=lambda x, up: 2 * x * up,
        derivative=(lambda up: 2 * up, lambda x: 2 * x),
    )
    square = tf.kernel_op(
        "__global__ void own_square(const T* x, T* y, int size) {"
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < size) y[i] = x[i] * x[i]; }",
        types="T",
        signature="()->()",
        host=lambda x: x * x,
        backward=square_back,
    )
    square.check(drawn(4), order=2, modes=("reverse", "forward"))


def test_without_a_gradient_there_is_a_lookup_error_when_one_is_asked_for(place: str) -> None:
    op, x = soft(), tf.Variable(drawn(3))
    with tf.GradientTape(persistent=True) as tape:
        y, z = op(x, 2.0), tf.function(lambda x: op(x, 2.0))(x)
    for target in (y, z):
        with pytest.raises(LookupError, match="gradient registry has no entry"):
            tape.gradient(target, x)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            y = soft_with_backward()(x, 2.0)
        g = inner.gradient(y, x)
    with pytest.raises(LookupError, match="soft_back"):
        outer.gradient(g, x)


def test_a_registered_gradient_is_found_by_name_also_when_it_comes_later(place: str) -> None:
    name = f"soft_{uuid.uuid4().hex}"
    op, x = (
        tf.kernel_op(SOFT.replace("soft(", f"{name}("), name=name, types="T", signature="(),()->()", host=soft_of),
        None,
    )
    x = tf.Variable(drawn(3))
    with tf.GradientTape(persistent=True) as tape:
        y = op(x, 2.0)

    @tf.RegisterGradient(name)
    def rule(op: Any, up: Any) -> Any:
        assert op.type == name
        return up / (1 + tf.exp(-op.inputs[1] * op.inputs[0])), None

    want = 1 / (1 + np.exp(-2 * drawn(3)))
    np.testing.assert_allclose(tape.gradient(y, x), want)
    with tf.GradientTape() as tape:
        y = tf.function(lambda x: op(x, 2.0))(x)
    np.testing.assert_allclose(tape.gradient(y, x), want)


def test_a_rule_asks_for_static_parameters_by_name() -> None:
    op = normed(backward=lambda op, dy, dn: dn[:, None] * op.get_attr("eps"))
    x = tf.Variable(drawn(2, 3, dtype=np.float32))
    with tf.GradientTape() as tape:
        _, n = op(x, eps=0.25)
    np.testing.assert_array_equal(tape.gradient(n, x), np.full((2, 3), 0.25, np.float32))


def test_functions_and_custom_gradients_take_it_as_any_op(place: str) -> None:
    op, x = soft_with_backward(), tf.Variable(drawn(3))
    with tf.GradientTape(persistent=True) as tape:
        plain, traced = op(x, 2.0), tf.function(lambda x: op(x, 2.0) * 1.0)(x)
    np.testing.assert_allclose(plain, traced)
    np.testing.assert_allclose(tape.gradient(plain, x), tape.gradient(traced, x))

    @tf.custom_gradient
    def same(x: Any) -> Any:
        return op(x, 2.0), lambda up: op(up, 2.0)

    with tf.GradientTape() as tape:
        y = same(x)
    np.testing.assert_allclose(tape.gradient(y, x), op(tf.ones([3], tf.float64), 2.0))


def test_a_linear_backward_kernel_with_a_backward_kernel_of_its_own_goes_forwards(place: str) -> None:
    loop = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < size)"
    back = tf.kernel_op(
        "__global__ void cube_back(const T* x, const T* up, T* d, int size)"
        f"{{ {loop} d[i] = 3 * x[i] * x[i] * up[i]; }}",
        types="T",
        signature="(),()->()",
        host=lambda x, up: 3 * x * x * up,
        linear=True,
        backward="__global__ void cube_back_back(const T* x, const T* up, const T* w, T* dx, T* dup, int size)"
        f"{{ {loop} {{ dx[i] = 6 * x[i] * up[i] * w[i]; dup[i] = 3 * x[i] * x[i] * w[i]; }} }}",
        backward_host=lambda x, up, w: (6 * x * up * w, 3 * x * x * w),
    )
    cube = tf.kernel_op(
        f"__global__ void own_cube(const T* x, T* y, int size) {{ {loop} y[i] = x[i] * x[i] * x[i]; }}",
        types="T",
        signature="()->()",
        host=lambda x: x**3,
        backward=back,
        linear=True,
    )
    _, (bent,) = tf.hvp(lambda x: tf.reduce_sum(cube(x)), [tf.constant(drawn(4))], [tf.ones([4], tf.float64)])
    np.testing.assert_allclose(bent, 6 * drawn(4))
    given = [tf.constant(drawn(4))], [tf.constant(drawn(4) + 1.0)]
    found, want = (tf.jvp(lambda x, f=f: f(tf.sin(f(x))), *given) for f in (cube, lambda x: x**3))  # type: ignore[misc]
    np.testing.assert_allclose(found, want)


@pytest.mark.parametrize("grid", [0, -1, 2.5, "a", (1, 1, 1, 1), (1, 70000), lambda size: size - 2])
def test_a_grid_that_no_gpu_takes_is_refused_everywhere(place: str, grid: Any) -> None:
    op = tf.kernel_op(SOFT, name="soft", types="T", signature="(),()->()", host=soft_of, grid=grid)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="`soft` wants one to three whole numbers from 1 as `grid`"
    ):
        op(drawn(2), 2.0)


def test_sizes_of_numpy_are_whole_numbers_too(place: str) -> None:
    op = tf.kernel_op(
        SOFT,
        name="soft",
        types="T",
        signature="(),()->()",
        host=soft_of,
        grid=lambda size: np.int64(size),
        block=np.int32(32),
    )
    np.testing.assert_allclose(op(drawn(2), 2.0), soft_of(drawn(2), 2.0), rtol=1e-12)


@pytest.mark.parametrize("block", [0, 2048, (64, 64), (1, 1, 65), 32.0])
def test_a_block_that_no_gpu_takes_is_refused_everywhere(place: str, block: Any) -> None:
    op = tf.kernel_op(SOFT, name="soft", types="T", signature="(),()->()", host=soft_of, block=block)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"`soft` wants .* as `block`, .*1024 in all"):
        op(drawn(2), 2.0)


@pytest.mark.parametrize("k", [2.5, 2**31, -(2**31) - 1, float("inf"), float("nan")])
def test_a_number_that_its_declared_type_does_not_hold_is_refused_everywhere(place: str, k: float) -> None:
    text = """__global__ void raised(const double* x, double* y, int size, int k) {
        int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < size) y[i] = pow(x[i], (double)k); }"""
    op = tf.kernel_op(text, signature="()->()", host=lambda x, k: x**k)
    with pytest.raises(tf.errors.InvalidArgumentError, match="`raised` declares its parameter `k` as int32"):
        op(drawn(2), k=k)
