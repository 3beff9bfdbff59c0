"""NVIDIA's compiler takes the kernels that move elements for every architecture, and no register is spilled."""

from __future__ import annotations

import functools

import pytest

from gradtape.ir.dtypes import int64
from tests.backends.cuda import test_assembling as assembling
from tests.backends.cuda import test_positions as positions
from tests.backends.cuda import test_windows as windows
from tests.backends.cuda.running import texts_of
from tests.backends.cuda.test_moves import LARGE, SCATTERED, called
from tests.backends.cuda.test_samples import OPS, call_of, tried

pytest.importorskip(
    "cuda.bindings.nvrtc", reason="NVIDIA's compiler is not installed: `pip install -e .[nvrtc]`, or the extra `dev`"
)

from tests.kernels.cuda import nvrtc

FEW_DTYPES = frozenset({"bfloat16"})
ELSEWHERE = ("scans.cuh", "sorting.cuh", "drawing.cuh")  # what `kernels/cuda/test_compile_scans` compiles


@functools.cache
def texts() -> list[str]:
    """The kernels of large operands, and those of samples in some dtypes."""
    calls = [called(name, arrays, **p) for name, arrays, p in LARGE.values()]
    calls += [called("scatter_add", arrays, **{"batch_dims": 0} | p) for arrays, p in SCATTERED.values()]
    calls += [call_of(*c) for name in OPS for c in tried(name) if c[1].name in FEW_DTYPES]
    calls += [assembling.called(p, [*factors, *vectors]) for p, factors, vectors in assembling.programs(12, 0)]
    calls += [called("argmax", [x], axis=axis, dtype=int64) for x, axis in positions.ARRAYS.values()]
    for x, p in windows.IMAGES.values():
        g = windows.wanted("max_pool", [x], **p)
        calls += [called(name, [x], **p) for name in ("max_pool", "avg_pool")]
        calls += [called("max_pool_input", [g, x], shape=x.shape[1:-1], **p)]
        calls += [called("max_pool_pick", [x, x], **p), called("avg_pool_input", [g], shape=x.shape[1:-1], **p)]
    found = texts_of(lambda cuda: [call(cuda) for call in calls])
    return [text for text in found if not any(f'#include "{template}"' in text for template in ELSEWHERE)]


@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
def test_every_kernel(architecture: int) -> None:
    ptx, usage = nvrtc.compiled("\n".join(texts()), architecture)
    assert len(ptx) > 30
    local = {name: usage[name] for name in ptx if usage[name].spilled or usage[name].stack}
    assert not local, f"local memory on sm_{architecture}: {local}"
    assert all(0 < usage[name].registers <= 128 and usage[name].shared <= 16 * 1024 for name in ptx)


def test_rows_move_in_words_of_16_bytes() -> None:
    name, arrays, p = LARGE["gather of rows"]
    (text,) = texts_of(called(name, arrays, **p))
    ((_, ptx),) = nvrtc.compiled(text, 90)[0].items()
    assert "ld.global.nc.v4.u32" in ptx and "st.global.v4.u32" in ptx
