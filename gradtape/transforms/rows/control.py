"""Branches and loops for all rows at once. Floor: transforms.

A branch or loop that is one for all rows stays one, and its graphs become graphs of all rows. What enters them are the
factors of the operands' terms; what leaves them are factors of terms that suit both branches, or all iterations: the
least structure that holds both of what may arrive, which for the carry of a loop is a fixpoint. Where rows part ways,
both branches run and each row takes its own; a loop runs as long as any row wants, and rows that are done stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gradtape.ir.aval import Aval, aval
from gradtape.ir.dtypes import bool_, int32
from gradtape.ir.graph import Graph, Node, Value
from gradtape.ops.control import COND, SCAN, WHILE, EmptyStack, is_stack, stacked
from gradtape.transforms.control import Loop
from gradtape.transforms.rows.builder import Builder
from gradtape.transforms.rows.entering import free
from gradtape.transforms.rows.forms import Doors, Form, StackOfRows, joint, stack_of_rows, written
from gradtape.transforms.rows.terms import Item, Rows

Vectorized = Callable[[Builder, Graph, Sequence[Item]], list[Item]]
MAX_ROUNDS = 4  # of a loop, after which what it carries is written out


# ------------------------------------------------------------------ branches


def cond(vectorized: Vectorized, b: Builder, node: Node, operands: list[Item]) -> Sequence[Item]:
    graphs = (node.step.params["true"], node.step.params["false"])
    pred, *given = operands
    rows = next(x.rows for x in operands if isinstance(x, Rows))
    if isinstance(pred, Rows):
        parted, b.parted = b.parted, True
        sides = [vectorized(b, g, given) for g in graphs]
        b.parted = parted
        mask = written(b, pred, rows)
        return [_chosen(b, mask, rows, x, y, v.aval) for x, y, v in zip(*sides, node.outputs, strict=True)]
    doors, builders = [Doors(), Doors()], [Builder(b.parted), Builder(b.parted)]
    found = [
        vectorized(inner, g, [d.item(x) for x in given]) for d, inner, g in zip(doors, builders, graphs, strict=True)
    ]
    outputs: list[list[Value]] = [[], []]
    forms: list[Form | None] = []
    for j, v in enumerate(node.outputs):
        pair = [side[j] for side in found]
        forms.append(_form(builders[0], rows, v.aval, pair))
        for made, inner, x in zip(outputs, builders, pair, strict=True):
            made += _values(inner, forms[-1], x)
    step = COND.bind(true=Graph(doors[0].inside, outputs[0]), false=Graph(doors[1].inside, outputs[1]))
    return _items(b, forms, b.apply(step, [pred, *doors[0].outside]), [v.aval for v in node.outputs])


def _form(b: Builder, rows: tuple[int, ...], of: Aval, items: Sequence[Item]) -> Form | None:
    """How a value leaves a graph inside; None: it is one for all rows."""
    if not any(isinstance(x, Rows) for x in items):
        return None
    if is_stack(of.dtype):
        return Form(rows, of.dims, of, None)
    return joint(b, rows, of, items)


def _values(b: Builder, form: Form | None, x: Item) -> list[Value]:
    if form is None:
        assert isinstance(x, Value)
        return [x]
    if is_stack(form.aval.dtype):
        return [_stack_value(b, form, x)]
    return form.values(b, x)


def _stack_value(b: Builder, form: Form, x: Item) -> Value:
    """A stack with the row axes first; one that is not there is as empty with them."""
    if isinstance(x, StackOfRows):
        assert x.value is not None
        return x.value
    assert isinstance(x, Value) and x.node is not None and isinstance(x.node.step.op, EmptyStack)
    return b.emit("empty_stack", shape=(*form.rows, *form.shape), dtype=form.aval.dtype)


def _items(b: Builder, forms: Sequence[Form | None], made: Sequence[Value], avals: Sequence[Aval]) -> list[Item]:
    """The results of a node of all rows, as what they stand for."""
    left = list(made)
    found: list[Item] = []
    for form, of in zip(forms, avals, strict=True):
        count = 1 if form is None else form.count
        values, left = left[:count], left[count:]
        if form is None:
            found.append(values[0])
        elif is_stack(of.dtype):
            found.append(stack_of_rows(values[0], form.rows))
        else:
            found.append(form.item(b, values))
    return found


def _chosen(b: Builder, mask: Value, rows: tuple[int, ...], x: Item, y: Item, of: Aval) -> Item:
    """Of two values each row's own."""
    if is_stack(of.dtype):  # one of the two is no stack that anybody reads
        empty = isinstance(x, Value) and x.node is not None and isinstance(x.node.step.op, EmptyStack)
        return y if empty else x
    return free(b, _select(b, mask, rows, *(written(b, v, rows) for v in (x, y))), rows)


def _select(b: Builder, mask: Value, rows: tuple[int, ...], x: Value, y: Value) -> Value:
    rank = len(x.aval.dims) - len(rows)
    return b.emit("select", b.reshape(mask, (*rows, *(1,) * rank)), x, y)


# ------------------------------------------------------------------ loops


def loop(vectorized: Vectorized, b: Builder, node: Node, operands: list[Item]) -> Sequence[Item]:
    rows = next(x.rows for x in operands if isinstance(x, Rows))
    found = _Loop(vectorized, b, node, operands, rows)
    varies = isinstance(operands[0], Rows) if found.view.is_scan else found.test_varies()
    return found.one_by_one() if varies else found.together()


class _Loop:
    """A loop on its way to all rows."""

    def __init__(
        self, vectorized: Vectorized, b: Builder, node: Node, operands: list[Item], rows: tuple[int, ...]
    ) -> None:
        self.vectorized, self.b, self.node, self.rows = vectorized, b, node, rows
        self.parted = b.parted
        self.view = view = Loop(node.step)
        self.trips = operands[0] if view.is_scan else None
        given = operands[view.lead :]
        n, k = view.carried, view.constants
        self.starts, self.constants, self.stacks = given[:n], given[n : n + k], given[n + k :]
        self.avals = [v.aval for v in view.carry]
        self.forms: list[Form | None] = [_form(b, rows, a, [x]) for a, x in zip(self.avals, self.starts, strict=True)]
        self._find_forms()

    # -------------------------------------------------- the carry, a fixpoint

    def _find_forms(self) -> None:
        """Until the body makes of what it carries nothing that the forms do not hold."""
        for attempt in range(MAX_ROUNDS + len(self.forms) + 2):
            inside = _Inside(self)
            new = [self._grown(inside, j) for j in range(len(self.forms))]
            if attempt >= MAX_ROUNDS:
                new = [f and replace(f, terms=None) for f in new]
            if all(_same(f, g) for f, g in zip(self.forms, new, strict=True)):
                return
            self.forms = new
        raise AssertionError("forms grow, and there is a largest one")

    def _grown(self, inside: _Inside, j: int) -> Form | None:
        """The form of one carried value before and after an iteration. Zeros fit into every form."""
        before, after, start, form = inside.carry[j], inside.results[j], self.starts[j], self.forms[j]
        if form is not None and form.terms is None:
            return form
        from_zero = form is None and isinstance(start, Value) and id(start) in self.b.zeros
        items = [after] if from_zero and isinstance(after, Rows) else [before, after]
        return _form(inside.b, self.rows, self.avals[j], items)

    def test_varies(self) -> bool:
        inside = _Inside(self, graph="test")
        return isinstance(inside.results[0], Rows)

    # -------------------------------------------------- one loop for all rows

    def together(self) -> Sequence[Item]:
        inside = _Inside(self)
        results, n = inside.results, self.view.carried
        outputs = [v for f, x in zip(self.forms, results, strict=False) for v in _values(inside.b, f, x)]
        pushed: list[Form | None] = [
            Form(self.rows, v.aval.dims, v.aval, None) if isinstance(x, Rows) else None
            for x, v in zip(results[n:], self.view.pushed, strict=True)
        ]
        outputs += [v for f, x in zip(pushed, results[n:], strict=True) for v in _values(inside.b, f, x)]
        starts = [v for f, x in zip(self.forms, self.starts, strict=True) for v in _values(self.b, f, x)]
        inputs = [*inside.carried, *inside.doors.inside, *inside.elements.inside]
        body = Graph(inputs, outputs)
        operands = [*starts, *inside.doors.outside, *inside.elements.outside]
        counts = {"carried": len(starts), "constants": len(inside.doors.inside)}
        forms: list[Form | None] = [*self.forms, *(f and replace(f, aval=stacked(f.aval)) for f in pushed)]
        if self.view.is_scan:
            assert isinstance(self.trips, Value)
            step = SCAN.bind(body=body, **counts, reverse=self.node.step.params["reverse"])
            made = self.b.apply(step, [self.trips, *operands])
        else:
            test = _Inside(self, graph="test", doors=inside.doors, carried=inside.carried, carry=inside.carry)
            step = WHILE.bind(test=Graph(inputs, test.results), body=body, carried=counts["carried"])
            made = self.b.apply(step, operands)
            forms.append(None)
        return _items(self.b, forms, made, [v.aval for v in self.node.outputs])

    # -------------------------------------------------- rows that stop at different times

    def one_by_one(self) -> Sequence[Item]:
        """Everything carried is written out, and with it which rows still run (`while`) or where it is (`scan`)."""
        self.forms, self.parted = [Form(self.rows, a.dims, a, None) for a in self.avals], True
        return self._scan_with_mask() if self.view.is_scan else self._while_with_mask()

    def _while_with_mask(self) -> Sequence[Item]:
        b, rows, n, test = self.b, self.rows, self.view.carried, self.node.step.params["test"]
        starts = [written(b, x, rows) for x in self.starts]
        (wanted,) = self.vectorized(b, test, [*self.starts, *self.constants])
        running, trips = Value(aval(rows, bool_)), Value(aval(rows, int32))
        inside = _Inside(self)
        inner = inside.b
        carry = self._next(inside, running)
        (again,) = self.vectorized(inner, test, [*(free(inner, v, rows) for v in carry), *inside.constants])
        still = inner.emit("logical_and", running, written(inner, again, rows))
        more = inner.emit("add", trips, inner.emit("cast", running, dtype=int32))
        pushed = [written(inner, x, rows) if isinstance(x, Rows) else x for x in inside.results[n:]]
        inputs = [*inside.carried, running, trips, *inside.doors.inside]
        step = WHILE.bind(
            test=Graph(inputs, [Builder().emit("reduce_any", running, axes=_all_axes(rows), keepdims=False)]),
            body=Graph(inputs, [*carry, still, more, *pushed]),
            carried=n + 2,
        )
        counters = [written(b, wanted, rows), b.constant(0, int32, rows)]
        made = b.apply(step, [*starts, *counters, *inside.doors.outside])
        stacks = self._stacks(made[n + 2 : -1], inside.results[n:])
        return [*(free(b, v, rows) for v in made[:n]), *stacks, free(b, made[n + 1], rows)]

    def _scan_with_mask(self) -> Sequence[Item]:
        b, rows, n, backwards = self.b, self.rows, self.view.carried, self.node.step.params["reverse"]
        assert self.trips is not None
        trips = written(b, self.trips, rows)
        longest = b.emit("reduce_max", trips, axes=_all_axes(rows), keepdims=False)
        start = b.emit("subtract", longest, b.constant(1, int32)) if backwards else b.constant(0, int32)
        at = Value(aval((), int32))
        inside = _Inside(self)
        inner = inside.b
        running = inner.emit("less", at, inside.doors.value(trips))
        carry = self._next(inside, running)
        pushed = [self._of_running(inner, running, x) for x in inside.results[n:]]
        following = inner.emit("subtract" if backwards else "add", at, inner.constant(1, int32))
        step = SCAN.bind(
            body=Graph(
                [*inside.carried, at, *inside.doors.inside, *inside.elements.inside], [*carry, following, *pushed]
            ),
            carried=n + 1,
            constants=len(inside.doors.inside),
            reverse=backwards,
        )
        starts = [written(b, x, rows) for x in self.starts]
        made = b.apply(step, [longest, *starts, start, *inside.doors.outside, *inside.elements.outside])
        return [*(free(b, v, rows) for v in made[:n]), *self._stacks(made[n + 1 :], inside.results[n:])]

    def _next(self, inside: _Inside, running: Value) -> list[Value]:
        """What is carried on: of rows that are done, what they had."""
        new = [written(inside.b, x, self.rows) for x in inside.results[: self.view.carried]]
        return [_select(inside.b, running, self.rows, x, y) for x, y in zip(new, inside.carried, strict=True)]

    def _of_running(self, b: Builder, running: Value, x: Item) -> Value:
        """What is pushed: zeros by rows that are done."""
        if not isinstance(x, Rows):
            return x
        v = written(b, x, self.rows)
        if is_stack(v.aval.dtype):
            return v
        return _select(b, running, self.rows, v, b.constant(0, v.aval.dtype, v.aval.dims))

    def _stacks(self, made: Sequence[Value], pushed: Sequence[Item]) -> list[Item]:
        return [stack_of_rows(v, self.rows) if isinstance(x, Rows) else v for v, x in zip(made, pushed, strict=True)]


def _same(f: Form | None, g: Form | None) -> bool:
    if f is None or g is None:
        return f is g
    return f.equals(g)


def _all_axes(rows: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(range(len(rows)))


class _Inside:
    """The body of a loop (or its test) for all rows, what it carries being in the loop's forms."""

    def __init__(
        self,
        of: _Loop,
        graph: str = "body",
        doors: Doors | None = None,
        carried: list[Value] | None = None,
        carry: list[Item] | None = None,
    ) -> None:
        self.b = Builder(of.parted)
        self.doors, self.elements = doors or Doors(), Doors()
        self.carried: list[Value] = carried or []
        self.carry: list[Item] = carry or []
        if carry is None:
            for form, a in zip(of.forms, of.avals, strict=True):
                values = [Value(a)] if form is None else [Value(x) for x in form.avals()]
                self.carried += values
                self.carry += _items(self.b, [form], values, [a])
        self.constants = [self.doors.item(x) for x in of.constants]
        given = [*self.carry, *self.constants]
        if graph == "body":
            given += [self.elements.element(self.b, x) for x in of.stacks]
        self.results: list[Any] = of.vectorized(self.b, of.node.step.params[graph], given)


def added_stacks(b: Builder, node: Node, operands: list[Item]) -> Sequence[Item]:
    """Elements that are one for all rows are broadcast."""
    rows = next(x.rows for x in operands if isinstance(x, Rows))
    values = [x if isinstance(x, Value) else written(b, x, rows) for x in operands]
    return [stack_of_rows(b.apply(node.step, values)[0], rows)]
