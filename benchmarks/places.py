"""Where a library's programs run: on the host, where results are read inside the timing, or on a GPU, where the timing
ends when the GPU is done and results are read for checks only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks import peers
from benchmarks.harness import Program
from benchmarks.workload import Setting
from gradtape.runtime.devices import DEVICES


class Place(NamedTuple):
    """One library where its programs run. `module`: the library; `wait`: until results are there, and None on the host;
    `read`: a result as a NumPy array; `device`: the name by which PyTorch knows it."""

    module: Any
    read: Callable[[Any], Any]
    wait: Callable[[Sequence[Any]], object] | None = None
    device: str = "cpu"

    def program(
        self,
        peer: str,
        run: Callable[[], Sequence[Any]],
        variant: str = "",
        prepare: Callable[[], None] | None = None,
        read: Callable[[Any], Any] | None = None,
    ) -> Program:
        """A program; `read`: for results that are read in another way than most."""
        read = read or self.read
        if self.wait is None:
            return Program(peer, lambda: [read(r) for r in run()], variant, prepare)
        return Program(peer, run, variant, prepare, self.wait, read)


def ours(module: Any, setting: Setting) -> Place:
    """gradtape, which has chosen its device itself.

    Raises:
      RuntimeError: a GPU is asked for, and there is none.
    """
    if not setting.gpu:
        return Place(module, np.asarray)
    device = DEVICES.device
    if device is None:
        raise RuntimeError("gradtape sees no GPU: `gradtape doctor` says why")
    return Place(module, np.asarray, lambda results: device.cuda.xp.cuda.get_current_stream().synchronize())


def of(peer: str, setting: Setting) -> Place:
    """A peer; on a GPU with all bits of float32 in its products, as all have here.

    Raises:
      ImportError: it is not installed, or sees no GPU.
    """
    module = peers.load(peer, setting.threads)
    return (ON_GPU if setting.gpu else ON_HOST)[peer](module)


def _torch(torch: Any) -> Place:
    if not torch.cuda.is_available():
        raise ImportError("torch sees no GPU")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    return Place(torch, lambda t: t.detach().cpu().numpy(), lambda results: torch.cuda.synchronize(), "cuda")


def _tensorflow(tf: Any) -> Place:
    found = tf.config.list_physical_devices("GPU")
    if not found:
        raise ImportError("tensorflow sees no GPU")
    for gpu in found:
        tf.config.experimental.set_memory_growth(gpu, True)
    tf.config.experimental.enable_tensor_float_32_execution(False)
    return Place(tf, lambda t: t.numpy(), lambda results: tf.test.experimental.sync_devices())


def _jax(jax: Any) -> Place:
    if jax.default_backend() != "gpu":
        raise ImportError("jax sees no GPU")
    jax.config.update("jax_default_matmul_precision", "highest")
    return Place(jax, np.asarray, jax.block_until_ready)


def _autograd(autograd: Any) -> Place:
    raise ImportError("autograd knows no GPU")


ON_GPU: dict[str, Callable[[Any], Place]] = {
    "torch": _torch,
    "tensorflow": _tensorflow,
    "jax": _jax,
    "autograd": _autograd,
}
ON_HOST: dict[str, Callable[[Any], Place]] = {
    "torch": lambda torch: Place(torch, lambda t: t.detach().numpy()),
    "tensorflow": lambda tf: Place(tf, lambda t: np.asarray(memoryview(t))),
    "jax": lambda jax: Place(jax, np.asarray),
    "autograd": lambda autograd: Place(autograd, lambda a: np.asarray(a, np.float32)),
}
