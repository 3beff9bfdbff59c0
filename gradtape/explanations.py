"""Why a gradient is None or zero, from what a tape has recorded. Floor: tape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gradtape.endings import Finding, endings, left, not_recorded, op_name, unrecorded
from gradtape.evidence import Evidence
from gradtape.ir.graph import Node, Value
from gradtape.ir.shapes import shape_text
from gradtape.runtime.record import READ, Recorder
from gradtape.runtime.variable import Variable
from gradtape.transforms.differentiate import pull_back
from gradtape.transforms.rows.builder import is_zero

HOW_TO_SEE_LINES = (
    "Files and lines are noted by a tape that is made with `tf.GradientTape(debug=True)`, and everywhere after "
    "`tf.debugging.enable()`."
)


@dataclass(frozen=True)
class Explanation:
    """Why a gradient is what it is.

    Attributes:
      cause: a short name of the first reason: "connected", "zero", "itself", "dtype", "not watched", "not trainable",
        "unused", "replaced", "outside", "reset", "stopped", "stop_gradient", "no gradient", "left", "overwritten",
        "rule" or "not recorded".
      connected: whether `gradient` gives a tensor.
      text: all of it in words; `print` shows it.
    """

    cause: str
    connected: bool
    text: str

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def explain(recorders: Sequence[Recorder], target: Any, source: Any, stops: int, watching: bool) -> Explanation:
    """Why the gradient of `target` by `source` is what it is. `recorders`: what was recorded, the last at the end; the
    others ended with `reset`. `watching`: whether variables are watched when they are read."""
    every = [Evidence(r, target, source, stops) for r in recorders]
    now = every[-1]
    if target._id == source._id:
        return _told(Finding("itself", f"{_named(target)} is both target and source: the gradient is 1."), now, True)
    if now.pulled() is not None:
        return _told(_connected(now), now, True)
    findings = [*_of_types(now), *_of_source(every, watching), *endings(every)]
    if not findings:
        findings = [not_recorded(now)]
    findings.sort(key=lambda f: not f.sure)
    return _told(findings[0], now, False, findings[1:])


def _told(first: Finding, evidence: Evidence, connected: bool, others: Sequence[Finding] = ()) -> Explanation:
    text = first.text
    for f in {f.text: f for f in others}.values():
        text += f"\nBesides: {f.text}"
    return Explanation(first.cause, connected, text if evidence.ledger is not None else f"{text}\n{HOW_TO_SEE_LINES}")


def _named(t: Any) -> str:
    if isinstance(t, Variable):
        return f"the variable `{t.name}`"
    return f"the tensor of shape {shape_text(t._aval.shape)} and dtype {t.dtype.name}"


# ------------------------------------------------------------------ connected


def _connected(e: Evidence) -> Finding:
    assert e.x is not None and e.y is not None
    route = _route(e.path.nodes, e.x, e.y)
    flat = [n for n in route if _is_flat(n)]
    names = " -> ".join(f"`{op_name(n.step)}`" for n in route if n.step is not READ) or "no op at all"
    if flat:
        where = e.place(e.ids.get(e.slot_of(flat[0].outputs[0]), 0))
        return Finding(
            "zero",
            f"The gradient is not None, but zero whatever the values: the derivative of `{op_name(flat[0].step)}`"
            f"{where} is zero everywhere. The way from source to target: {names}.",
        )
    return Finding(
        "connected",
        f"The gradient is a tensor; the way from source to target: {names}. Where it is zero, the derivative of an op "
        "on the way is zero at these values, as those of `relu` below 0 and of maxima for all but the largest are.",
    )


def _route(nodes: Sequence[Node], x: Value, y: Value) -> list[Node]:
    """The nodes of a shortest way from one value to another."""
    steps: dict[int, tuple[int, Node | None, Value | None]] = {id(x): (0, None, None)}
    for node in nodes:
        known = [(steps[id(v)][0], v) for v in node.inputs if id(v) in steps]
        if known:
            length, nearest = min(known, key=lambda k: k[0])
            for v in node.outputs:
                steps[id(v)] = (length + 1, node, nearest)
    route: list[Node] = []
    at: Value | None = y
    while at is not None:
        _, maker, at = steps[id(at)]
        route += [] if maker is None else [maker]
    return route[::-1]


def _is_flat(node: Node) -> bool:
    """Whether a node's derivative is zero whatever the operands."""
    seeds = [Value(v.aval) for v in node.outputs]
    shadow = Node(node.step, tuple(Value(v.aval) for v in node.inputs), tuple(v.aval for v in node.outputs))
    wanted = [v for v in shadow.inputs if v.aval.dtype.is_differentiable]
    live = [(o, s) for o, s in zip(shadow.outputs, seeds, strict=True) if o.aval.dtype.is_differentiable]
    pulled = [p for p in pull_back([shadow], [o for o, _ in live], [s for _, s in live], wanted) if p is not None]
    return bool(pulled) and all(_is_nothing(p) for p in pulled)


def _is_nothing(v: Value) -> bool:
    if v.node is None:
        return False
    return is_zero(v.node.step, [_is_nothing(x) for x in v.node.inputs])


# ------------------------------------------------------------------ dtypes, and what is watched


def _of_types(e: Evidence) -> Iterator[Finding]:
    for what, t in (("source", e.source), ("target", e.target)):
        if not t.dtype.is_differentiable:
            made = next((end for end in e.recorder.ends if t._id in end.results), None)
            by = f", which `{made.step.name}` made{e.place(t._id)}" if made else ""
            yield Finding(
                "dtype",
                f"The {what} is {_named(t)}{by}: gradients exist for floating and complex dtypes only. Begin with a "
                "float, as `tf.constant(10.0)` for `tf.constant(10)`, or use `tf.cast` before `tape.watch`.",
            )


def _of_source(every: Sequence[Evidence], watching: bool) -> Iterator[Finding]:
    now, source = every[-1], every[-1].source
    if now.x is not None and now.slots[source._id] > 0:
        return
    if any(e.slots.get(source._id, 0) > 0 for e in every[:-1]):
        yield Finding(
            "reset",
            f"{_capital(_named(source))} was watched before `tape.reset()`, which forgot that and all that was "
            "recorded. Use it after the reset, and watch it again if it is no variable.",
        )
    elif isinstance(source, Variable):
        yield _of_variable(now, watching)
    else:
        yield _of_tensor(now)


def _of_variable(e: Evidence, watching: bool) -> Finding:
    v, name = e.source, _named(e.source)
    if not v.trainable:
        return Finding(
            "not trainable",
            f"{_capital(name)} is not trainable, and such variables are not watched by themselves. Call `tape.watch` "
            "with it, or make it with `trainable=True`.",
        )
    if not watching:
        return Finding(
            "not watched",
            f"The tape was made with `watch_accessed_variables=False`, and {name} was not given to `tape.watch`.",
        )
    if v._id in e.recorder.looks:
        return left(name, *e.recorder.looks[v._id], sure=True)
    if e.stops:
        return Finding(
            "stopped",
            f"{_capital(name)} was read by nothing that the tape recorded; the tape was stopped by `stop_recording` in "
            f"between. What is read there is a constant.{unrecorded(e)}",
        )
    return Finding(
        "unused", f"{_capital(name)} was not read in the tape's block: the target was not computed from it there."
    )


def _of_tensor(e: Evidence) -> Finding:
    name = _named(e.source)
    variable = _variable_behind(e, e.source._id)
    if variable is not None:
        return Finding(
            "replaced",
            f"The source is no variable, but {name}, the result of `{e.made_by(e.source._id)}`{e.place(e.source._id)} "
            f"of the variable `{variable}`: a statement such as `x = x + 1` has put it in the variable's place. Change "
            "variables by `x.assign_add(1)`.",
        )
    used = "took part in it as a constant" if e.source._id in e.slots else "took no part in what was recorded"
    return Finding(
        "not watched",
        f"The source, {name}, was not given to `tape.watch` and {used}: only trainable variables are watched by "
        "themselves. Call `tape.watch` with it before it is used. If it was a variable once, a statement such as "
        "`x = x + 1` has replaced it by a tensor: change variables by `x.assign_add(1)`.",
    )


def _variable_behind(e: Evidence, tensor: int) -> str | None:
    """The name of a variable that a tensor was computed from, if the ledger knows."""
    if e.ledger is None:
        return None
    todo, seen = [tensor], set[int]()
    while todo:
        t = todo.pop()
        if t in e.ledger.variables:
            return e.ledger.names[e.ledger.variables[t]]
        entry = e.ledger.entries.get(t)
        if entry is not None and t not in seen:
            seen.add(t)
            todo += entry.operands
    return None


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
