"""What rewritten statements do: of values, what Python does; of tensors, branches and loops. Floor: tape.

A statement comes as functions: of its blocks, and of the names that they change (`get_state`, `set_state`)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gradtape.ops.comparison import LOGICAL_AND, LOGICAL_NOT
from gradtape.runtime import control
from gradtape.runtime.convert import convert
from gradtape.runtime.counting import Rows
from gradtape.runtime.dispatch import binary, unary
from gradtape.runtime.ranges import SymbolicRange
from gradtape.runtime.tensor import SymbolicTensor, Tensor
from gradtape.runtime.variable import Variable
from gradtape.tracing.assertions import assert_stmt
from gradtape.tracing.branching import cond, truth
from gradtape.tracing.carried import Outgrown, settled, widened
from gradtape.tracing.loop_options import Limited, Options, counted, inside
from gradtape.tracing.open import Callback, OpenTracer, open_tracer
from gradtape.tracing.state import Names, NoneBefore, pair_up

LIBRARY: list[Any] = []  # the library that rewrites functions, when it is loaded
Get = Callable[[], Sequence[Any]]
Set = Callable[[Sequence[Any]], None]


def _value(x: Any) -> Any:
    """A condition as a tensor where it is a variable."""
    return x.read() if isinstance(x, Variable) and control.is_staged() else x


# ------------------------------------------------------------------ if


def if_stmt(
    test: Any,
    body: Callable[[], Any],
    orelse: Callable[[], Any],
    get_state: Get,
    set_state: Set,
    symbol_names: Sequence[str],
    nouts: int,
) -> None:
    """`if test: body; else: orelse`. The first `nouts` names are used later."""
    test = _value(test)
    if not control.is_symbolic(test):
        (body if test else orelse)()
        return
    if (tracer := open_tracer()) is not None:
        _if_open(tracer, test, body, orelse, get_state, set_state, symbol_names, nouts)
        return
    before = get_state()
    after: list[Sequence[Any]] = []

    def block(f: Callable[[], Any]) -> control.Block:
        def run(_: list[Tensor]) -> list[Tensor]:
            set_state(before)
            f()
            after.append([settled(x) for x in get_state()])
            return []

        return run

    holds = truth(test, "if")
    branches = [control.Traced(block(f), []) for f in (body, orelse)]
    wider = [widened(widened(x, true), false) for x, true, false in zip(before, *after, strict=True)]
    if any(x is not y for x, y in zip(before, wider, strict=True)):  # a branch says how large an array is
        before = wider
        after.clear()
        branches = [control.Traced(block(f), []) for f in (body, orelse)]
    names = Names(symbol_names[:nouts], LIBRARY[0])
    joined = [pair_up(names.names[k], (after[0][k], after[1][k]), names, _opposite_of(test)) for k in range(nouts)]
    for k, b in enumerate(branches):
        b.convert(lambda k=k: [t for j in joined for t in j.tensors(k)])  # type: ignore[misc]
    made = iter(control.join(holds, branches))
    set_state([*(j.rebuilt(made) for j in joined), *before[nouts:]])


def _opposite_of(test: SymbolicTensor) -> Any:
    """The value that a condition is the `not` of, if it is one."""
    node = test._value.node
    return node.inputs[0] if node is not None and node.step.op is LOGICAL_NOT else None


def if_exp(test: Any, if_true: Callable[[], Any], if_false: Callable[[], Any], expr_repr: str) -> Any:
    """`if_true if test else if_false`."""
    test = _value(test)
    if not control.is_symbolic(test):
        return if_true() if test else if_false()
    if (tracer := open_tracer()) is not None:
        return tracer.perform(cond, (test, Callback(tracer, if_true), Callback(tracer, if_false), "if"), {})
    return cond(test, if_true, if_false, "if")


# ------------------------------------------------------------------ and, or, not


def and_(a: Callable[[], Any], b: Callable[[], Any]) -> Any:
    """`a and b`; b is only looked at where a holds."""
    first = _value(a())
    if not control.is_symbolic(first):
        return first and b()
    if (tracer := open_tracer()) is not None:
        return tracer.perform(_and_known, (first, Callback(tracer, b)), {})
    return cond(first, lambda: truth(_value(b()), "and"), lambda: convert(False), "and")


def or_(a: Callable[[], Any], b: Callable[[], Any]) -> Any:
    """`a or b`; b is only looked at where a does not hold."""
    first = _value(a())
    if not control.is_symbolic(first):
        return first or b()
    if (tracer := open_tracer()) is not None:
        return tracer.perform(_or_known, (first, Callback(tracer, b)), {})
    return cond(first, lambda: convert(True), lambda: truth(_value(b()), "or"), "or")


def _and_known(a: Any, b: Any) -> Any:
    return and_(lambda: a, b)


def _or_known(a: Any, b: Any) -> Any:
    return or_(lambda: a, b)


def not_(a: Any) -> Any:
    """`not a`."""
    a = _value(a)
    if control.is_symbolic(a) and (tracer := open_tracer()) is not None:
        return tracer.perform(not_, (a,), {})
    return unary(LOGICAL_NOT.bind(), truth(a, "not")) if control.is_symbolic(a) else not a


# ------------------------------------------------------------------ while


def while_stmt(
    test: Callable[[], Any],
    body: Callable[[], Any],
    get_state: Get,
    set_state: Set,
    symbol_names: Sequence[str],
    opts: Any,
) -> None:
    """`while test: body`. Python's loop as long as the test is one of Python's; from then on one of tensors."""
    while True:
        state = get_state()
        probe: list[Any] = []

        def look(_: list[Tensor], probe: list[Any] = probe) -> list[Tensor]:
            probe.append(_value(test()))
            return []

        if control.is_staged() and open_tracer() is None:
            control.Traced(look, [])
            set_state(state)
        else:
            look([])
        if control.is_symbolic(probe[0]) or (isinstance(probe[0], Tensor) and control.is_staged()):
            break
        if not probe[0]:
            return
        with inside(None):
            body()
    _loop(lambda: _value(test()), body, get_state, set_state, symbol_names)


def _loop(
    test: Callable[[], Any],
    body: Callable[[], Any],
    get_state: Get,
    set_state: Set,
    names: Sequence[str],
    is_sure: bool = False,
) -> None:
    """A loop of tensors over the names that it changes. `is_sure`: there is a round."""
    if (tracer := open_tracer()) is not None:
        _loop_open(tracer, test, body, get_state, set_state, names)
        return
    before = tuple(get_state())
    try:
        with inside(Options(is_limited=False)):
            _carried(test, body, get_state, set_state, names, is_sure)
    except Limited as e:
        set_state(before)
        with inside(Options(is_limited=True)):
            _carried(*counted(test, body, get_state, set_state, e.most), (*names, "the number of rounds"), is_sure)


def _carried(
    test: Callable[[], Any],
    body: Callable[[], Any],
    get_state: Get,
    set_state: Set,
    names: Sequence[str],
    is_sure: bool,
) -> None:
    """The loop, whose names take other types where they have to."""
    state = Names(names, LIBRARY[0], get_state(), is_sure)
    refused: NoneBefore | None = None  # None before the loop is no value, if no round reads it
    while True:
        try:
            made = control.while_loop(
                functools.partial(_tested, test, set_state, state),
                functools.partial(_round, body, get_state, set_state, state),
                state.start(),
                state.labels(),
                fresh=True,
            )
            break
        except Outgrown as e:
            state = state.widened(e.after)
        except control.LoopVariableError as e:
            if not state.retyped(e):  # a Python number takes the dtype that it becomes
                raise
        except NoneBefore as e:
            state, refused = state.unset(e.at), e
        except UnboundLocalError as e:
            raise refused or e from None
    set_state(state.end(made))


def _tested(test: Callable[[], Any], set_state: Set, state: Names, now: list[Tensor]) -> list[Tensor]:
    set_state(state.inside(now))
    return [truth(test(), "while")]


def _round(body: Callable[[], Any], get_state: Get, set_state: Set, state: Names, now: list[Tensor]) -> list[Tensor]:
    set_state(state.inside(now))
    body()
    return state.after(get_state())


# ------------------------------------------------------------------ for


def for_stmt(
    iter_: Any,
    extra_test: Callable[[], Any] | None,
    body: Callable[[Any], Any],
    get_state: Get,
    set_state: Set,
    symbol_names: Sequence[str],
    opts: Any,
) -> None:
    """`for target in iter_: body(target)`, as long as `extra_test` holds."""
    iter_ = _value(iter_)
    if isinstance(iter_, SymbolicRange) or (isinstance(iter_, Tensor) and control.is_staged()):
        _for_tensor(iter_, extra_test, body, get_state, set_state, symbol_names, opts)
    else:
        _for_python(iter_, extra_test, body, get_state, set_state, symbol_names)


def _for_python(
    iter_: Iterable[Any],
    extra_test: Callable[[], Any] | None,
    body: Callable[[Any], Any],
    get_state: Get,
    set_state: Set,
    names: Sequence[str],
) -> None:
    """Python's loop; after a `break` that depends on a tensor what is left are branches."""
    for target in iter_:
        goes_on = True if extra_test is None else _value(extra_test())
        with inside(None):
            if control.is_symbolic(goes_on):
                step = functools.partial(body, target)
                if_stmt(goes_on, step, lambda: None, get_state, set_state, names, len(names))
            elif goes_on:
                body(target)
            else:
                break


def _for_tensor(
    over: Any,
    extra_test: Callable[[], Any] | None,
    body: Callable[[Any], Any],
    get_state: Get,
    set_state: Set,
    names: Sequence[str],
    opts: Any,
) -> None:
    """A loop over a range of numbers, or over the first axis of a tensor: its counter is one more name."""
    if (tracer := open_tracer()) is not None:
        _for_open(tracer, over, extra_test, body, get_state, set_state, names)
        return
    counter = over if isinstance(over, SymbolicRange) else Rows(over)
    at: list[Any] = [counter.first]

    def test() -> Any:
        more = counter.more(at[0])
        if extra_test is None:
            return more
        goes_on = _value(extra_test())
        if isinstance(goes_on, bool):
            return more if goes_on else convert(False)
        return binary(LOGICAL_AND.bind(), more, truth(goes_on, "for"))

    def step() -> None:
        now = at[0]
        counter.note(now, extra_test is None)
        body(counter.item(now))
        at[0] = counter.after(now)

    def get() -> Sequence[Any]:
        return (*get_state(), at[0])

    def put(values: Sequence[Any]) -> None:
        set_state(tuple(values[:-1]))
        at[0] = values[-1]

    is_sure = isinstance(counter, Rows) and counter.count > 0
    _loop(test, step, get, put, (*names, "the loop's counter"), is_sure)


# ------------------------------------------------------------------ for shapes that are not all known


class _Cell:
    """The names of a statement in a world, which the user's code does not see."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = tuple(values)

    def get(self) -> Sequence[Any]:
        return self.values

    def set(self, values: Sequence[Any]) -> None:
        self.values = tuple(values)

    def through(self, block: Any) -> Callable[[], None]:
        """A block as a statement has it."""
        return lambda: self.set(block(self.values))


def _on_state(block: Callable[..., Any], get_state: Get, set_state: Set) -> Callable[..., Any]:
    """A block of a statement as a function from its names' values to their values."""

    def run(state: Sequence[Any], *args: Any) -> Sequence[Any]:
        set_state(state)
        block(*args)
        return tuple(get_state())

    return run


def _if_open(
    tracer: OpenTracer,
    test: Any,
    body: Any,
    orelse: Any,
    get_state: Get,
    set_state: Set,
    names: Sequence[str],
    nouts: int,
) -> None:
    blocks = [Callback(tracer, _on_state(b, get_state, set_state)) for b in (body, orelse)]
    set_state(tracer.perform(_if_known, (test, tuple(get_state()), *blocks, tuple(names), nouts), {}))


def _if_known(test: Any, state: Any, true: Any, false: Any, names: Sequence[str], nouts: int) -> Any:
    cell = _Cell(state)
    if_stmt(test, cell.through(true), cell.through(false), cell.get, cell.set, names, nouts)
    return cell.values


def _testing(test: Callable[[], Any], set_state: Set) -> Callable[..., Any]:
    def run(state: Sequence[Any]) -> Any:
        set_state(state)
        return test()

    return run


def _loop_open(tracer: OpenTracer, test: Any, body: Any, get_state: Get, set_state: Set, names: Sequence[str]) -> None:
    blocks = Callback(tracer, _testing(test, set_state)), Callback(tracer, _on_state(body, get_state, set_state))
    set_state(tracer.perform(_loop_known, (tuple(get_state()), *blocks, tuple(names)), {}))


def _loop_known(state: Any, test: Any, body: Any, names: Sequence[str]) -> Any:
    cell = _Cell(state)
    _loop(lambda: test(cell.values), cell.through(body), cell.get, cell.set, names)
    return cell.values


def _for_open(
    tracer: OpenTracer, over: Any, extra: Any, body: Any, get_state: Get, set_state: Set, names: Sequence[str]
) -> None:
    goes_on = None if extra is None else Callback(tracer, _testing(extra, set_state))
    block = Callback(tracer, _on_state(body, get_state, set_state))
    set_state(tracer.perform(_for_known, (over, tuple(get_state()), goes_on, block, tuple(names)), {}))


def _for_known(over: Any, state: Any, extra: Any, body: Any, names: Sequence[str]) -> Any:
    cell = _Cell(state)
    goes_on = None if extra is None else lambda: extra(cell.values)
    for_stmt(over, goes_on, lambda item: cell.set(body(cell.values, item)), cell.get, cell.set, names, None)
    return cell.values


NAMES: dict[str, Any] = {
    "if_stmt": if_stmt,
    "if_exp": if_exp,
    "and_": and_,
    "or_": or_,
    "not_": not_,
    "while_stmt": while_stmt,
    "for_stmt": for_stmt,
    "assert_stmt": assert_stmt,
}
