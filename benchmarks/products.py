"""The products of matrices that a traced training step executes, counted at the call of BLAS.

A small library that is loaded before NumPy has BLAS's function for products of float32 matrices; it notes the sizes and
calls the real one."""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import gradtape
from benchmarks import machine, places, plan_training
from benchmarks.harness import OURS
from benchmarks.warming import until_ready
from benchmarks.workload import Count, Figure, Setting

ROOT = Path(__file__).parents[1]
SYMBOLS = ("scipy_cblas_sgemm64_", "cblas_sgemm64_", "scipy_cblas_sgemm", "cblas_sgemm")  # as builds of NumPy name it
LIMIT = 3 * plan_training.LAYERS - 1  # forward, by kernel, by input: the last not for the first layer
MOST = 4096  # calls that are noted

SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
int64_t calls;
int64_t sizes[{most}][3];
typedef void gemm({types}, int, int, {integer}, {integer}, {integer}, float, const float *, {integer}, const float *,
                  {integer}, float, float *, {integer});
void {symbol}({types} order, int ta, int tb, {integer} m, {integer} n, {integer} k, float alpha, const float *a,
              {integer} lda, const float *b, {integer} ldb, float beta, float *c, {integer} ldc) {{
    static gemm *next;
    if (!next) next = (gemm *)dlsym(RTLD_NEXT, "{symbol}");
    if (!next) next = (gemm *)dlsym(dlopen("{library}", RTLD_NOW | RTLD_NOLOAD), "{symbol}");
    int64_t at = __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    if (at < {most}) {{ sizes[at][0] = m; sizes[at][1] = n; sizes[at][2] = k; }}
    next(order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}}
"""


def compiler() -> str | None:
    """A C compiler, without which nothing can be counted here."""
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def blas() -> tuple[Path, str] | None:
    """The library with NumPy's BLAS in this process, and how its function is called."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    files = sorted({line.split(maxsplit=5)[5] for line in maps.splitlines() if "blas" in line})
    for file in files:
        library = ctypes.CDLL(file)
        for symbol in SYMBOLS:
            if hasattr(library, symbol):
                return Path(file), symbol
    return None


def counter(folder: Path) -> Path:
    """The library that counts, compiled.

    Raises:
      RuntimeError: there is no compiler, or no such function.
    """
    cc, found = compiler(), blas()
    if cc is None or found is None:
        raise RuntimeError("Products are counted with a C compiler and a BLAS that is a library of its own.")
    file, symbol = found
    integer = "int64_t" if "64" in symbol else "int"
    text = SOURCE.format(most=MOST, symbol=symbol, library=file, integer=integer, types="int")
    source, made = folder / "counter.c", folder / "counter.so"
    source.write_text(text, encoding="utf-8")
    subprocess.run([cc, "-shared", "-fPIC", "-O1", "-o", str(made), str(source), "-ldl"], check=True)
    return made


def counted(quick: bool) -> dict[str, list[tuple[int, int, int]]]:
    """The sizes of the products of one step, by program of ours; in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        made = counter(Path(folder))
        command = [sys.executable, "-m", "benchmarks.products", str(made), *["--quick"] * quick]
        env = machine.environment(1, os.environ | {"LD_PRELOAD": str(made)})
        run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(run.stderr[-2000:])
    found: dict[str, list[tuple[int, int, int]]] = json.loads(run.stdout.splitlines()[-1])
    return found


def figures(setting: Setting) -> list[Figure]:
    name = f"{OURS} {{}}: products of one training step"
    if compiler() is None:
        return [Figure(name.format("function"), math.nan, "", LIMIT, "not counted: there is no C compiler")]
    found = []
    for variant, sizes in counted(setting.quick).items():
        note = ", ".join("x".join(map(str, s)) for s in sizes)
        found.append(Figure(name.format(variant), len(sizes), "", LIMIT, note))
        work = sum(math.prod(s) for s in sizes)
        found.append(Figure(f"{OURS} {variant}: multiply-adds of them", work, "", needed(setting)))
    return found


def needed(setting: Setting) -> int:
    """The multiply-adds of a step: three products per layer, two for the first."""
    given = plan_training.inputs(setting)
    sizes = [given[f"W{k}"].size for k in range(1, plan_training.LAYERS + 1)]
    return len(given["x"]) * (3 * sum(sizes) - sizes[0])


COUNT = Count(
    "train_products",
    f"products of matrices at the call of BLAS; {plan_training.LAYERS} layers need three each, the first one two",
    figures,
)


def steps(counter: ctypes.CDLL, setting: Setting) -> dict[str, Sequence[tuple[int, ...]]]:
    """The products of one warm step of each program."""
    place = places.ours(gradtape, setting)
    calls = ctypes.c_int64.in_dll(counter, "calls")
    sizes = (ctypes.c_int64 * 3 * MOST).in_dll(counter, "sizes")
    found = {}
    for program in plan_training.our_programs(place, setting):
        program.start()
        until_ready(program.call, 0.2)
        calls.value = 0
        program.call()
        found[program.variant] = [tuple(sizes[k]) for k in range(calls.value)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.products", description=__doc__)
    parser.add_argument("counter", help="the library that counts, which this process was started with")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    print(json.dumps(steps(ctypes.CDLL(options.counter), Setting(1, options.quick))))


if __name__ == "__main__":
    main()
