"""Python functions as object code, compiled by Numba. Floor: kernels.

Numba's own way to call what it has compiled knows Python's objects, and its own library. Here a function gets another
entry, which takes a block of words (`gradtape.kernels.arguments`), and memory from the C library, so that its object
code needs nothing but that."""

from __future__ import annotations

import functools
import hashlib
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from gradtape.kernels import arguments, vector_math
from gradtape.kernels.arguments import Array, Integers, Parameter
from gradtape.kernels.streaming import past_the_cache

HEADER = 64  # bytes before the elements of an array that a function makes: what Numba notes of it
WORD = 8  # bytes
ELSEWHERE = ("NUMBA_CACHE_DIR", "NUMBA_NUM_THREADS")  # settings that do not change the code


@dataclass(frozen=True)
class ObjectCode:
    """What a compiler made: the code, and the names of what it may call elsewhere."""

    code: bytes
    calls: tuple[str, ...]


@functools.cache
def maker() -> str:
    """What makes object code, and from which functions: what is on disk belongs to one of these. Numba is not imported
    for this."""
    settings = [f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith("NUMBA_") and k not in ELSEWHERE]
    modules = ("objects", "arguments", "requests", "spelling", "streaming")
    own = [Path(__file__).with_name(f"{name}.py").read_bytes() for name in modules]
    words = [_version("numba"), _version("llvmlite"), vector_math.version(), hashlib.sha256(b"".join(own)).hexdigest()]
    return " ".join([*words, str(arguments.HEAD), *settings])


def _version(package: str) -> str:
    """The version of a package that is not imported: what it says of itself in a file, since asking what is installed
    takes longer than reading a kernel."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"Kernels want `{package}`. Install it, or set GRADTAPE_KERNELS=never.")
    return Path(spec.origin).with_name("_version.py").read_text(encoding="utf-8")


def object_code(
    function: Callable[..., Any],
    name: str,
    parameters: Sequence[Parameter],
    answer: np.dtype[Any] | None,
    options: Mapping[str, Any],
    streamed: bool = False,
) -> ObjectCode:
    """A function of such parameters as object code whose entry has this name; `answer`: what it returns, a
    bool or an integer; `streamed`: its results go past the cache.

    Raises:
      ValueError: it holds addresses of this process.
    """
    from numba.core.compiler_lock import global_compiler_lock

    with global_compiler_lock:
        module, target = optimized(function, name, parameters, answer, options)
        if any(v.name.startswith("numba.dynamic.globals") for v in module.global_variables):
            raise ValueError(f"`{function.__name__}` holds addresses of this process, which no other can use.")
        calls = [f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.")]
        return ObjectCode(target.emit_object(past_the_cache(module) if streamed else module), tuple(calls))


def optimized(
    function: Callable[..., Any],
    name: str,
    parameters: Sequence[Parameter],
    answer: np.dtype[Any] | None,
    options: Mapping[str, Any],
) -> tuple[Any, Any]:
    """The module of LLVM that becomes object code, and what emits it: all that is known here of Numba's inner parts."""
    import numba
    from numba.core import types

    returned = types.void if answer is None else numba.from_dtype(answer)
    made = _lowered(function, tuple(map(_type, parameters)), returned, options)
    library = made.library
    library.add_ir_module(_entry(made, name, parameters))
    module = library._final_module
    for other in dict.fromkeys(library._linking_libraries):
        module.link_in(other._get_module_for_linking(), preserve=True)
    for f in module.functions:
        if not f.is_declaration and f.name != name:
            f.linkage = "internal"
    library._optimize_final_module()
    module.verify()
    return module, library.codegen._tm


def _lowered(function: Callable[..., Any], given: tuple[Any, ...], returned: Any, options: Mapping[str, Any]) -> Any:
    """What Numba knows of a function when its code is not optimized yet."""
    from numba.core import compiler, registry

    target = registry.cpu_target
    flags: Any = compiler.Flags()
    target.options.parse_as_flags(flags, {"nopython": True, **options})
    flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = True
    flags.enable_pyobject = False
    return compiler.compile_extra(
        target.typing_context, target.target_context, function, given, returned, flags=flags, locals={}
    )


def _type(p: Parameter) -> Any:
    import numba
    from numba.core import types

    if isinstance(p, Integers):
        return types.UniTuple(types.int64, p.count)
    element = numba.from_dtype(p.dtype)
    if isinstance(p, Array):
        return types.Array(element, 1 if p.axes is None else p.axes, "C", readonly=not p.written)
    return element


def _entry(made: Any, name: str, parameters: Sequence[Parameter]) -> Any:
    """The function that is called with a block of words, and the memory of arrays that functions make."""
    from llvmlite import ir

    context, described = made.target_context, made.fndesc
    module = made.library.create_ir_module(f"{name} entry")
    shape = context.call_conv.get_function_type(described.restype, described.argtypes)
    inner = ir.Function(module, shape, described.llvm_func_name)
    word, answer = ir.IntType(8 * WORD), ir.IntType(32)
    entry = ir.Function(module, ir.FunctionType(answer, [word.as_pointer()]), name)
    builder = ir.IRBuilder(entry.append_basic_block())
    values, at = [], 0
    for p, kind in zip(parameters, described.argtypes, strict=True):
        count = struct.calcsize(f"={p.code}") // WORD
        places = [builder.gep(entry.args[0], [word(at + k)]) for k in range(count)]
        values.append(_value(context, builder, p, kind, places))
        at += count
    status, result = context.call_conv.call_function(builder, inner, described.restype, described.argtypes, values)
    with builder.if_then(status.is_error, likely=False):
        builder.ret(answer(-1))
    builder.ret(_small(builder, result, answer))
    _memory(module)
    _reshape(module)
    return module


def _small(builder: Any, result: Any, answer: Any) -> Any:
    """What a function returned, as what its entry answers."""
    width = getattr(result.type, "width", None)
    if width is None:  # nothing
        return answer(0)
    return builder.zext(result, answer) if width < answer.width else builder.trunc(result, answer)


def _value(context: Any, builder: Any, p: Parameter, kind: Any, places: Sequence[Any]) -> Any:
    """An argument as Numba has it, from its words."""
    if isinstance(p, Integers):
        return context.make_tuple(builder, kind, [builder.load(w) for w in places])
    if isinstance(p, Array):
        return _array(context, builder, p, kind, builder.load(places[0]))
    stored = builder.load(builder.bitcast(places[0], context.get_data_type(kind).as_pointer()))
    return context.data_model_manager[kind].from_data(builder, stored)


def _array(context: Any, builder: Any, p: Array, kind: Any, address: Any) -> Any:
    """An array from the address of its Python object: after the head that all objects have lie the address of its
    elements, how many axes there are, and the address of their extents."""
    from llvmlite import ir
    from numba.core import cgutils
    from numba.np.arrayobj import populate_array

    size, count, byte = cgutils.intp_t, ir.IntType(32), ir.IntType(8).as_pointer()
    fields = ir.LiteralStructType([byte, count, size.as_pointer()])
    begin = builder.inttoptr(builder.add(address, address.type(arguments.HEAD)), fields.as_pointer())
    elements, axes, extents = (builder.load(cgutils.gep_inbounds(builder, begin, 0, k)) for k in range(3))
    if p.axes is None:
        shape = [_product(builder, extents, builder.zext(axes, size))]
    else:
        shape = [builder.load(builder.gep(extents, [size(k)])) for k in range(p.axes)]
    width = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    strides = [size(width)]
    for n in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], n))
    array = context.make_array(kind)(context, builder)
    data = builder.bitcast(elements, array.data.type)
    populate_array(array, data=data, shape=shape, strides=strides, itemsize=size(width), meminfo=None)
    return array._getvalue()


def _product(builder: Any, extents: Any, axes: Any) -> Any:
    """How many elements an array has."""
    from numba.core import cgutils

    total = cgutils.alloca_once_value(builder, axes.type(1))
    with cgutils.for_range(builder, axes) as loop:
        builder.store(builder.mul(builder.load(total), builder.load(builder.gep(extents, [loop.index]))), total)
    return builder.load(total)


def _memory(module: Any) -> None:
    """The two functions that arrays which a function makes need of Numba's library: a block with a note before its
    elements, and the end of such a block."""
    from llvmlite import ir
    from numba.core.runtime.nrtdynmod import _meminfo_struct_type as note

    size, pointer = note.elements[0], ir.IntType(8).as_pointer()
    count = ir.IntType(32)
    malloc = ir.Function(module, ir.FunctionType(pointer, [size]), "malloc")
    free = ir.Function(module, ir.FunctionType(ir.VoidType(), [pointer]), "free")
    begin = ir.Function(module, ir.FunctionType(pointer, [size, count]), "NRT_MemInfo_alloc_aligned")
    builder = ir.IRBuilder(begin.append_basic_block())
    align = builder.zext(begin.args[1], size)
    block = builder.call(malloc, [builder.add(builder.add(begin.args[0], align), size(HEADER))])
    with builder.if_then(builder.icmp_unsigned("==", block, pointer(None)), likely=False):
        builder.ret(pointer(None))
    last = builder.add(builder.add(builder.ptrtoint(block, size), size(HEADER - 1)), align)
    elements = builder.inttoptr(builder.and_(last, builder.neg(align)), pointer)
    made = note([size(1), pointer(None), pointer(None), pointer(None), size(0)])
    held = builder.bitcast(block, note.as_pointer())
    builder.store(made, held)
    builder.store(elements, builder.gep(held, [count(0), count(3)]))
    builder.ret(block)
    end = ir.Function(module, ir.FunctionType(ir.VoidType(), [pointer]), "NRT_MemInfo_call_dtor")
    builder = ir.IRBuilder(end.append_basic_block())
    builder.call(free, [end.args[0]])
    builder.ret_void()


def _reshape(module: Any) -> None:
    """What an array in C order that is seen in another shape needs of Numba's library: the steps through it. The answer
    is 0 where the elements do not lie in a row, which is an error of the function."""
    from llvmlite import ir
    from numba.core import cgutils

    size, answer = cgutils.intp_t, ir.IntType(32)
    many = size.as_pointer()
    kind = ir.FunctionType(answer, [size, many, many, size, many, many, size, answer])
    function = ir.Function(module, kind, "numba_attempt_nocopy_reshape")
    count, extents, steps, new_count, new_extents, new_steps, width, _ = function.args
    builder = ir.IRBuilder(function.append_basic_block())

    def backwards(count: Any, extents: Any, use: Callable[[Any, Any], None]) -> None:
        """`use` the place of each extent, the last first, and the step that belongs there."""
        step = cgutils.alloca_once_value(builder, width)
        with cgutils.for_range(builder, count) as loop:
            k = builder.sub(builder.sub(count, size(1)), loop.index)
            use(k, builder.load(step))
            builder.store(builder.mul(builder.load(step), builder.load(builder.gep(extents, [k]))), step)

    def check(k: Any, step: Any) -> None:
        moves = builder.icmp_signed(">", builder.load(builder.gep(extents, [k])), size(1))
        other = builder.icmp_signed("!=", builder.load(builder.gep(steps, [k])), step)
        with builder.if_then(builder.and_(moves, other), likely=False):
            builder.ret(answer(0))

    backwards(count, extents, check)
    backwards(new_count, new_extents, lambda k, step: builder.store(step, builder.gep(new_steps, [k])))
    builder.ret(answer(1))


def known_to_numba(names: Sequence[str]) -> dict[str, int]:
    """Addresses of functions that code compiled by Numba may call in this process."""
    import llvmlite.binding as llvm
    import numba  # noqa: F401  (it tells LLVM of its functions)

    found = {name: llvm.address_of_symbol(name) for name in names}
    return {name: address for name, address in found.items() if address}
