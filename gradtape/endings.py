"""Where the way from a source to a target ends: one finding for each op, rule, assignment or value that was asked for.
Floor: tape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gradtape.evidence import Evidence
from gradtape.ir.graph import Graph, Node
from gradtape.ops.call import CUSTOM_CALL, RULED
from gradtape.ops.host import HOST
from gradtape.ops.op import Step
from gradtape.runtime.record import MADE, End
from gradtape.transforms.dependence import dependent
from gradtape.transforms.differentiate import residuals


@dataclass(frozen=True)
class Finding:
    """One reason: a short name for it, what happened, and what to do. `sure`: it is seen to be the reason."""

    cause: str
    text: str
    sure: bool = True


def endings(every: Sequence[Evidence]) -> Iterator[Finding]:
    now = every[-1]
    yield from _rules(now)
    yield from _inside(now)
    for end in now.recorder.ends:
        if any(map(now.is_reached, end.operands)):
            yield _ended(now, end)
    for a in now.recorder.assigned:
        if now.is_reached(a.value):
            yield Finding(
                "overwritten",
                f"The variable `{a.name}` was {'made' if a.how == MADE else 'overwritten'} by `{a.how}`"
                f"{f' ({a.place})' if a.place else ''} with a "
                "value that depends on the source. A variable's value has no history: what is computed from it after "
                "that begins anew. Compute with a tensor instead, as `x2 = x1 + x0` for `x1.assign_add(x0)`.",
                now.is_before(a.variable),
            )
    for slot, exit in now.recorder.exits.items():
        if now.is_reached(slot):
            yield _left(now, slot, exit.how, exit.place)
    if now.is_reached(now.slots.get(now.source._id, 0)):
        yield from _before_reset(every)
        yield from _while_stopped(now)


def _rules(e: Evidence) -> Iterator[Finding]:
    ways = dependent(_without(e, e.path.nodes), [e.x]) if e.x is not None else set()
    for node in e.path.nodes:
        if node.step.op is not CUSTOM_CALL:
            continue
        ordinal = node.step.params["ordinal"]
        absent = e.recorder.answers.get(ordinal, ())
        if any(id(node.inputs[k]) in ways or node.inputs[k] is e.x for k in absent) and any(
            id(v) in e.before for v in node.outputs
        ):
            made = e.place(e.ids.get(e.slot_of(node.outputs[0]), 0))
            yield Finding(
                "rule",
                f"The rule of `{e.rules[ordinal]}`{made}, a custom gradient between source and target, returned None "
                "for what leads to the source. Have it return a gradient there.",
            )


def _without(e: Evidence, nodes: Sequence[Node]) -> list[Node]:
    """The nodes that gradients flow through, as far as custom rules have answered."""
    return [n for n in nodes if n.step.op is not CUSTOM_CALL or not e.recorder.answers.get(n.step.params["ordinal"])]


def _inside(e: Evidence) -> Iterator[Finding]:
    """Ops in traced functions through which no gradient flows."""
    if e.y is None or id(e.y) not in e.reached:
        return
    for node in e.path.nodes:
        graph = node.step.params.get("graph")
        if isinstance(graph, Graph) and any(id(v) in e.before and id(v) in e.reached for v in node.outputs):
            marks = [id(v) in e.reached for v in node.inputs]
            for step in _ends_in(graph, marks):
                yield Finding(_cause_of(step), f"In a traced function between source and target stands {_end(step)}.")


def op_name(step: Step) -> str:
    return "traced function" if step.op.kind == "call" else step.name


def _ends_in(graph: Graph, marks: Sequence[bool]) -> list[Step]:
    """The steps that depend on marked inputs and through which no gradient flows, one for each name."""
    reached = dependent(graph.nodes, [v for v, m in zip(graph.inputs, marks, strict=False) if m])
    reached |= {id(v) for v, m in zip(graph.inputs, marks, strict=False) if m}
    found: dict[str, Step] = {}
    for node in graph.nodes:
        active = tuple(id(v) in reached for v in node.inputs)
        if any(active) and residuals(node.step, tuple(v.aval for v in node.inputs), active) is None:
            found.setdefault(_end(node.step), node.step)
    return list(found.values())


CAUSES = {"stop_gradient": "stop_gradient", RULED.name: "rule", HOST.name: "left"}


def _cause_of(step: Step) -> str:
    return CAUSES.get(step.name, "no gradient")


def _end(step: Step) -> str:
    """What stands in the way, as the end of a sentence."""
    if step.op is RULED:
        return (
            f"`{step.params['name']}`, a custom gradient whose rule returns None for what leads to the source. Have it "
            "return a gradient there"
        )
    if step.op is HOST:
        return "a Python function, such as `tf.numpy_function` calls: what it makes is a constant for the tape"
    return f"`{step.name}`, through which no gradient flows"


def _ended(e: Evidence, end: End) -> Finding:
    sure = any(map(e.is_before, end.results))
    where, op = e.place(end.results[0]), op_name(end.step)
    if op == "stop_gradient":
        return Finding(
            "stop_gradient",
            f"`stop_gradient`{where} stands between source and target: no gradient flows through it. Leave it out, or "
            "apply it to the part that is to be a constant.",
            sure,
        )
    if _ends_in_a_graph := [n for g in [end.step.params.get("graph")] if isinstance(g, Graph) for n in _all_ends(g)]:
        step = _ends_in_a_graph[0]
        return Finding(_cause_of(step), f"In a traced function{where} stands {_end(step)}.", sure)
    return Finding(
        "no gradient",
        f"`{op}`{where}, which depends on the source, has no gradient: its result is an integer or a truth value, or "
        "constant wherever it has a derivative. Compute the target without it, or give it a gradient with "
        "`tf.grad_pass_through` or `tf.custom_gradient`.",
        sure,
    )


def _all_ends(graph: Graph) -> list[Step]:
    return _ends_in(graph, [True] * len(graph.inputs))


def _left(e: Evidence, slot: int, how: str, place: str) -> Finding:
    op = e.made_by(e.ids.get(slot, 0))
    what = f"the result of `{op}`{e.place(e.ids.get(slot, 0))}" if op else "a tensor that depends on it"
    return left(what, how, place, e.y is None)


def left(what: str, how: str, place: str, sure: bool) -> Finding:
    """The finding that a value was asked for."""
    at = f" at {place.removeprefix('called at ')}" if place else ""
    return Finding(
        "left",
        f"The way from the source leaves the framework: {how} asked for the value of {what}{at}. What NumPy or Python "
        "makes of it is a constant for the tape. Use the function of the same name here, as `tf.reduce_mean` for "
        "`np.mean`.",
        sure,
    )


def _before_reset(every: Sequence[Evidence]) -> Iterator[Finding]:
    now = every[-1]
    for e in every[:-1]:
        constants = [t for t, slot in now.slots.items() if slot < 0 and now.is_before(t)]
        if any(e.is_reached(e.slots.get(t, 0)) for t in [*constants, now.target._id]):
            yield Finding(
                "reset",
                "What leads from the source to the target was recorded before `tape.reset()`, which forgot it: it is a "
                "constant since then. Compute it after the reset, or leave `reset` out.",
            )
            return


def _while_stopped(e: Evidence) -> Iterator[Finding]:
    if e.stops:
        yield Finding(
            "stopped",
            "The tape was stopped by `stop_recording` in between: what is computed there is a constant for it. Move "
            f"what leads from the source to the target out of that block.{unrecorded(e)}",
            bool(unrecorded(e)) or not e.recorder.exits,
        )


def unrecorded(e: Evidence) -> str:
    """Ops on the way that the ledger saw and the tape did not."""
    if e.ledger is None:
        return ""
    ended = {t for end in e.recorder.ends for t in end.results}
    for tensor, entry in e.ledger.entries.items():
        missed = e.slots.get(tensor, 0) <= 0 and tensor not in ended
        if missed and any(e.is_reached(e.slots.get(t, 0)) or e.is_the_source(t) for t in entry.operands):
            return f" It did not see `{entry.name}` ({entry.place})."
    return ""


def not_recorded(e: Evidence) -> Finding:
    missed = unrecorded(e)
    if e.y is not None and e.slots.get(e.target._id, 0) > 0:
        return Finding(
            "not recorded",
            "Source and target were recorded, but nothing leads from the source to the target: the target was computed "
            f"from other things.{missed}",
        )
    if missed or e.is_late():
        return Finding(
            "outside",
            f"The target was computed outside of the tape's block{' from the source' * bool(missed)}"
            f"{', after that had ended' * e.is_late()}.{missed} Compute it inside.",
        )
    return Finding(
        "not recorded",
        "The target was not recorded: it was computed outside of the tape's block, or from nothing that the tape "
        "watches, or is a constant.",
    )
