"""The text of CUDA kernels: what it depends on, how it reads, and that every atom has a spelling."""

from __future__ import annotations

import re

import pytest

from gradtape.ir.cluster import Access, Cluster, Loop, Operation, Read, Write
from gradtape.ir.dtypes import float32
from gradtape.kernels.cuda_launch import Buffer, CudaProgram
from gradtape.kernels.cuda_render import TEMPLATES, render_cuda
from gradtape.kernels.cuda_spelling import KINDS, MONOIDS, spells_cuda
from gradtape.kernels.vector_math import FORMS
from gradtape.ops.op import all_ops
from gradtape.ops.pointwise import Pointwise
from gradtape.ops.reduction import Reduction
from gradtape.transforms.fuse import fuse
from tests.kernels.cuda.table import kernels
from tests.kernels.steps import wide

LIBRARY = "\n".join(file.read_text(encoding="utf-8") for file in sorted(TEMPLATES.glob("*.cuh")))
# Ops whose names mean something else in C++, and what they are spelled.
SPELLED = {"complex": "complex_of"}


def atoms() -> list[Pointwise]:
    """The pointwise ops that are not composed of others, and those that are one function on the CPU."""
    return [op for op in all_ops() if isinstance(op, Pointwise) and (op.formula is None or op.name in FORMS)]


@pytest.mark.parametrize("op", atoms(), ids=lambda op: op.name)
def test_every_atom_has_a_spelling(op: Pointwise) -> None:
    """One that is declared anew needs a function of its name in kernels/cuda/, and the kinds that it takes."""
    name = SPELLED.get(op.name, op.name)
    assert re.search(rf"\bDEVICE [\w<>]+ {name}\(|\(({name}), \w+, \w+\)", LIBRARY), f"`{name}` is not in kernels/cuda/"
    missing = set(op.accepts) - set(KINDS[op.name]) - {"s"}
    assert not missing or op.formula is not None, f"`{op.name}` is not there for kinds {missing}"


def test_kinds_name_ops_only() -> None:
    assert set(KINDS) <= {op.name for op in all_ops()}


@pytest.mark.parametrize("op", [o for o in all_ops() if isinstance(o, Reduction) and o.monoid], ids=lambda op: op.name)
def test_every_monoid_has_a_structure(op: Reduction) -> None:
    name, kinds = MONOIDS[op.monoid or ""]
    assert f"struct {name} {{" in LIBRARY and set(op.accepts) <= set(kinds)


def program(name: str, shape: tuple[int, ...]) -> CudaProgram:
    (node,) = kernels(fuse(wide(shape)[name], spells_cuda))
    return render_cuda(node.step.params["cluster"])


@pytest.mark.parametrize("name", ["rows", "pointwise", "columns", "sinks"])
def test_the_text_depends_on_size_classes_of_extents_only(name: str) -> None:
    first, second = program(name, (5000, 1000)), program(name, (7000, 1020))
    assert first.text == second.text and first.launches != second.launches
    assert program(name, (5000, 1000)) == first


@pytest.mark.parametrize("name", ["rows", "pointwise", "columns", "sinks"])
def test_how_a_text_reads(name: str) -> None:
    """The formula in a comment, a name made of operations, launch bounds, one line for each operation."""
    made = program(name, (5000, 1000))
    text = made.texts[0]
    kernel = re.search(r"(\w+)\(\n", text)
    assert kernel and kernel[1].startswith("add_tanh") and kernel[1] == made.launches[0].kernel
    assert re.search(r"// t2 = add\(r0, r1\)\n// t3 = tanh\(t2\)\n", text)
    assert 'extern "C" __global__ void __launch_bounds__(' in text
    assert re.search(r"const float32 t2_add = t\d_read \+ t\d_read;\n +const float32 t3_tanh = tanh\(t2_add\);", text)
    for line in text.splitlines():
        assert len(line) < 160, line


def test_launches_say_all_that_a_backend_needs() -> None:
    made = program("sinks", (5000, 1000))
    assert [launch.kernel in made.text for launch in made.launches] == [True, True]
    for launch in made.launches:
        head = re.search(rf"__launch_bounds__\((\d+)[^)]*\)\n{launch.kernel}\((.*?)\)\n{{", made.text, re.DOTALL)
        assert head and launch.block <= int(head[1]) <= 1024 and launch.grid >= 1
        declared = head[2].split(",")
        assert len(declared) == len(launch.arguments)
        for text, argument in zip(declared, launch.arguments, strict=True):
            assert ("*" in text) == isinstance(argument, Buffer), text
            assert argument.dtype.name in text.replace("*", " ").split()
    buffers = [a for launch in made.launches for a in launch.arguments if isinstance(a, Buffer)]
    assert {b.kind for b in buffers} == {"operand", "result", "scratch"}
    assert {b.number for b in buffers if b.kind == "scratch"} == set(range(len(made.scratch)))


def line(extent: int, reduced: bool) -> Cluster:
    """x² along one loop, written or added up."""
    code = [Operation("read", (), float32, 0), Operation("square", (0,), float32)]
    if reduced:
        code.append(Operation("reduce", (1,), float32, "sum"))
    write = Write(len(code) - 1, Access(float32, (int(not reduced),)), (not reduced,))
    return Cluster((Loop(extent, reduced),), (Read(0, Access(float32, (1,))),), tuple(code), (write,))


def test_what_has_no_elements_is_not_launched() -> None:
    assert render_cuda(line(0, False)).launches == ()
    assert len(render_cuda(line(0, True)).launches) == 1  # the sum of nothing is 0, and has to be written


@pytest.mark.parametrize("extent, index", [(1000, "int32"), ((1 << 31) - 1, "int64"), (1 << 33, "int64")])
def test_places_have_64_bits_where_extents_and_the_grid_ask_for_it(extent: int, index: str) -> None:
    for reduced in (False, True):
        assert f"const {index} n0" in render_cuda(line(extent, reduced)).text


# ------------------------------------------------------------------ what no kernel may do

GENERATORS = {file.name: file.read_text(encoding="utf-8") for file in sorted(TEMPLATES.parent.glob("cuda_*.py"))}
OF_USERS = "cuda_source.py"  # which reads texts of users, and writes none


def test_every_kernel_says_how_many_threads_it_has() -> None:
    """One function writes what stands before its name; templates hold none."""
    assert "__global__" not in LIBRARY
    ours = [x.strip() for n, t in GENERATORS.items() if n != OF_USERS for x in t.splitlines() if "__global__" in x]
    assert ours == ["f'extern \"C\" __global__ void __launch_bounds__({bounds})',"]


def test_shuffles_name_all_lanes_of_a_warp() -> None:
    calls = re.findall(r"__(?!syncthreads)\w+_sync\((\w+),", LIBRARY)
    assert len(calls) >= 8 and set(calls) == {"0xffffffffu"}
    assert "__syncwarp" not in LIBRARY and "__activemask" not in LIBRARY
    assert not any("_sync(" in text for name, text in GENERATORS.items() if name != OF_USERS)


def test_nothing_is_added_up_by_atomic_operations() -> None:
    """In whatever order threads come: results would not be the same twice."""
    assert not re.search(r"\batomic[A-Z]", LIBRARY)
    assert not any(re.search(r"\batomic[A-Z]", text) for text in GENERATORS.values())
