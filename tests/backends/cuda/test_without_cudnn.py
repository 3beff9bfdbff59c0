"""Convolutions that cuDNN is not asked to do, or cannot do: by rule, or after one warning; its failures are errors."""

from __future__ import annotations

from typing import Any

import pytest

import gradtape as tf
from gradtape.backends.cuda import cudnn, nvidia
from gradtape.backends.cuda.convolution import is_for_cudnn
from gradtape.backends.cuda.cudnn import Policy
from gradtape.ir.aval import aval
from gradtape.ir.dtypes import DType, bfloat16, complex64, float16, float32, float64
from gradtape.ops.convolution import CONVOLVE
from gradtape.runtime.devices import DEVICES
from tests.backends.cuda.convolving import K, X, derivatives, numbers, on_host, used
from tests.cuda_emulator import cudnn_stand_in, cupy_stand_in
from tests.cuda_emulator.device import Device as EmulatedDevice
from tests.cuda_emulator.devices import emulated
from tests.kernels.cuda.test_run import assert_near

SPACE = {"window": (3, 3), "strides": (1, 1), "dilations": (1, 1), "low": (1, 1), "high": (1, 1)}
POINT = SPACE | {"window": (1, 1), "low": (0, 0), "high": (0, 0)}
LONG = {"window": (3,), "strides": (1,), "dilations": (1,), "low": (1,), "high": (1,)}
FOUR = {
    "window": (1, 1, 1, 2),
    **dict.fromkeys(("strides", "dilations"), (1,) * 4),
    **dict.fromkeys(("low", "high"), (0,) * 4),
}
RULES: dict[str, tuple[bool, DType, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "float32": (True, float32, (2, 5, 5, 1, 4), (3, 3, 4, 1, 8), SPACE),
    "float16": (True, float16, (2, 5, 5, 1, 4), (3, 3, 4, 1, 8), SPACE),
    "bfloat16": (True, bfloat16, (2, 5, 5, 1, 4), (3, 3, 4, 1, 8), SPACE),
    "float64": (False, float64, (2, 5, 5, 1, 4), (3, 3, 4, 1, 8), SPACE),
    "complex numbers": (False, complex64, (2, 5, 5, 1, 4), (3, 3, 4, 1, 8), SPACE),
    "groups": (True, float32, (2, 5, 5, 4, 1), (3, 3, 1, 4, 2), SPACE),
    "products of matrices": (False, float32, (2, 5, 5, 1, 4), (1, 1, 4, 1, 8), POINT),
    "single elements with steps": (True, float32, (2, 5, 5, 1, 4), (1, 1, 4, 1, 8), POINT | {"strides": (2, 2)}),
    "no images": (False, float32, (0, 5, 5, 1, 4), (3, 3, 4, 1, 8), SPACE),
    "no channels": (False, float32, (2, 5, 5, 1, 0), (3, 3, 0, 1, 8), SPACE),
    "four axes": (False, float32, (1, 2, 2, 2, 2, 1, 1), (1, 1, 1, 2, 1, 1, 1), FOUR),
    "2³¹ elements": (False, float32, (1 << 20, 1 << 11, 1, 1), (3, 1, 1, 1), LONG),
    "less than 2³¹ elements": (True, float32, ((1 << 20) - 1, 1 << 11, 1, 1), (3, 1, 1, 1), LONG),
}


@pytest.mark.parametrize("name", RULES)
def test_which_convolutions_are_for_cudnn(name: str) -> None:
    wanted, dtype, x, k, params = RULES[name]
    assert is_for_cudnn(CONVOLVE, (aval(x, dtype), aval(k, dtype)), params) == wanted


def test_others_are_done_as_without_it(cudnn_device: EmulatedDevice) -> None:
    x, k = tf.cast(numbers(*X), tf.float64), tf.cast(numbers(*K), tf.float64)
    found = derivatives(x, k)
    assert not used(cudnn_device)
    assert "cublasGemmStridedBatchedEx" in cudnn_device.counts.library_calls
    for one, other in zip(found, on_host(derivatives, x, k), strict=True):
        assert_near(one.numpy(), other, "float64", 64)


def test_what_cudnn_refuses_is_said_once_and_done_without_it() -> None:
    """bfloat16 has no units before sm_80."""
    before = DEVICES.device
    with cupy_stand_in.using_device("sm_75") as old:
        DEVICES.use(emulated(cudnn_stand_in))
        x, k = (tf.cast(a, tf.bfloat16) for a in (numbers(*X), numbers(*K)))
        with pytest.warns(RuntimeWarning) as told:
            found = derivatives(x, k)
        (text,) = [str(w.message) for w in told]
        assert "cuDNN has no plan for fprop of bfloat16 (2, 7, 6, 4) and (6, 3, 2, 2)" in text
        assert "No valid engine configs" in text
        assert "im2col and cuBLAS do it" in text
        assert "GRADTAPE_CUDNN=never" in text
        assert not used(old)
        for one, other in zip(found, on_host(derivatives, x, k), strict=True):
            assert_near(one.numpy(), other, "refused", 64)
        DEVICES.use(None if before is None else before.cuda)


def test_never(cudnn_device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudnn.POLICY, "use", "never")
    tf.nn.conv2d(numbers(*X), numbers(*K), 1, "SAME")
    assert not used(cudnn_device)


def test_the_environment_says_whether(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADTAPE_CUDNN", "never")
    assert Policy().use == "never"
    monkeypatch.setenv("GRADTAPE_CUDNN", "always")
    with pytest.raises(ValueError, match="GRADTAPE_CUDNN should be one of auto, never, got 'always'"):
        Policy()


def test_a_library_that_has_no_handle(cudnn_device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise RuntimeError("CUDNN_STATUS_NOT_INITIALIZED")

    monkeypatch.setattr(cudnn_stand_in, "create_handle", refuse)
    x, k = numbers(*X), numbers(*K)
    with pytest.warns(RuntimeWarning, match="cuDNN cannot be used.*im2col and cuBLAS.*NOT_INITIALIZED"):
        found = derivatives(x, k)
    assert not used(cudnn_device)
    for one, other in zip(found, on_host(derivatives, x, k), strict=True):
        assert_near(one.numpy(), other, "without", 64)


@pytest.mark.parametrize("name", ["build_plans", "execute"])
def test_failures_are_errors(cudnn_device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """And no reason to do without it in silence."""

    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")

    monkeypatch.setattr(cudnn_stand_in.pygraph, name, fail)
    with pytest.raises(RuntimeError, match=r"cuDNN failed at fprop of float32.*EXECUTION_FAILED.*GRADTAPE_CUDNN=never"):
        tf.nn.conv2d(numbers(*X), numbers(*K), 1, "SAME")


def test_the_frontend_without_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> Any:
        raise OSError("libcudnn.so.9: cannot open shared object file")

    monkeypatch.setattr(nvidia.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(nvidia.importlib, "import_module", broken)
    with pytest.warns(RuntimeWarning, match=r"libcudnn.so.9.*gradtape\[cudnn-cu13\].*GRADTAPE_CUDNN=never"):
        assert nvidia.cudnn() is None
    monkeypatch.setattr(nvidia.importlib.util, "find_spec", lambda name: None)
    assert nvidia.cudnn() is None


def test_plans_are_shown(cudnn_device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from gradtape.ir.show import SHOWN

    monkeypatch.setattr(SHOWN, "words", frozenset(["plan"]))
    tf.nn.conv2d(numbers(*X), numbers(*K), 1, "SAME")
    text = capsys.readouterr().err
    assert "cudnn_fprop" in text
    assert "by cuDNN\n0 bytes of workspace" in text
