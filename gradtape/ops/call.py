"""Calls: a graph as one op; and the two halves of a custom rule, which runs as Python. Floor: ops.

How a call is differentiated stands in `transforms.differentiate`: graph to graph, from its own nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtape.ir.aval import Aval
from gradtape.ir.bounded import Bounded
from gradtape.ir.graph import Graph, Node, Value
from gradtape.ops.op import Op, Step, apply, constant


class Call(Op):
    """A graph applied to values. Its results are the graph's outputs, residuals for its VJP among them."""

    kind = "call"

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        return tuple(v.aval for v in params["graph"].outputs)


CALL = Call("call", doc="A graph as an op.")


def call_step(graph: Graph) -> Step:
    """A step that runs a graph; make it once per graph, since structural keys compare steps by identity."""
    return Step(CALL, {"graph": graph})


class Effectful(Call):
    """A call of a graph that has effects besides, which are Python: it stays one step, that is run each time.

    Parameters: `graph` (without the effects: what derivatives, and all rows at once, are made of), `effect` (what runs
    it; `effect.on_arrays` is a function of arrays)."""


EFFECTFUL = Effectful("effectful", doc="A rule of a custom gradient that prints, asserts or assigns.")


class CustomCall(Op):
    """A function with a rule of its own, as the tape recorded it; pulling back asks the rule (a host step)."""

    kind = "custom"

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        results: tuple[Aval, ...] = params["results"]
        return results

    def vjp(self, node: Node, cotangents: list[Value | None], wanted: list[bool]) -> list[Value | None]:
        given = [
            constant(0, v.aval.dtype, v.aval.dims) if g is None else g
            for v, g in zip(node.outputs, cotangents, strict=True)
            if v.aval.dtype.is_differentiable
        ]
        ordinal, absent = node.step.params["ordinal"], node.step.params["absent"]
        step = HOST_RULE.bind(ordinal=ordinal, results=tuple(v.aval for v in node.inputs))
        pulled = apply(step, given)
        node.step.params.get("reached", []).append(pulled[0])
        return [None if i in absent else v for i, v in enumerate(pulled)]


CUSTOM_CALL = CustomCall("custom_call", doc="A function whose gradient is a Python rule.")


def expecting(step: Step, absent: tuple[int, ...], reached: list[Value]) -> Step:
    """The step of a custom call for one backward pass: its rule is expected to answer None for the operands
    `absent`. `reached` collects a result of each rule that the pass comes to: what it answers is only known
    when it has run, so that it must run even where nothing is expected of it."""
    return Step(CUSTOM_CALL, step.params | {"absent": absent, "reached": reached})


class HostRule(Op):
    """A Python rule that sees concrete values: it runs between the compiled segments of a backward pass."""

    kind = "host"

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        results: tuple[Aval, ...] = params["results"]
        return results


HOST_RULE = HostRule("host_rule", doc="The Python rule of a custom call, applied to its cotangents.")


# ------------------------------------------------------------------ rules that are graphs


class Bent(Call):
    """A call that hands on its first operand, an answer of a rule; the others are the rule's cotangents, in which the
    answer may be anything but linear, and what `forwards` reads.

    Parameters: `graph`, `rule` (its name), `linear` (whether the answer is known to be linear all the same),
    `forwards` (a graph of the other operands that forward mode takes in place of the answer, or None)."""


BENT = Bent("bent", doc="What a rule that may not be linear answers to its cotangents.")

_bent_steps: Bounded[Any, Step] = Bounded(512)  # one step per signature, so that graphs can be compared


def bent(answer: Value, cotangents: Sequence[Value], rule: str) -> Value:
    """An answer that is marked as one which may not be linear in the cotangents."""
    avals = tuple(v.aval for v in (answer, *cotangents))

    def make() -> Step:
        inner = [Value(a) for a in avals]
        return Step(BENT, {"graph": Graph(inner, inner[:1]), "rule": rule, "linear": False, "forwards": None})

    return apply(_bent_steps.find((avals, rule), make), [answer, *cotangents])[0]


class Ruled(Op):
    """The results of a function with a rule of its own, where the rule is a graph. Operands are the results as they
    are, the function's operands, which the rule answers for, and what else the rule reads.

    Parameters: `results` (how many), `rule` (a graph, from the cotangents of differentiable results and from what it
    reads), `answers` (per operand of the function: whether the rule answers for it), `linear` (whether the rule is,
    in its cotangents), `name` (of the function), `forwards` (None, or a graph of the same operands as the rule and with
    the same results, the transpose of the JVP that was given: what forward mode takes in the rule's place), `effectful`
    (None, or the step of a rule that has effects)."""

    kind = "ruled"

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        return avals[: params["results"]]

    def vjp(self, node: Node, cotangents: list[Value | None], wanted: list[bool]) -> list[Value | None]:
        p = node.step.params
        given = [
            constant(0, v.aval.dtype, v.aval.dims) if g is None else g
            for v, g in zip(node.outputs, cotangents, strict=True)
            if v.aval.dtype.is_differentiable
        ]
        read = node.inputs[p["results"] + len(p["answers"]) :]
        if p["effectful"] is None:
            pulled = applied(p["rule"], [*given, *read])
        else:
            pulled = list(apply(p["effectful"], [*given, *read])[: len(p["rule"].outputs)])
        marked = iter(_marked(node.step, pulled, given, read))
        answers = [next(marked) if a else None for a in p["answers"]]
        every = [*[None] * p["results"], *answers, *[None] * len(read)]
        return [v if w else None for v, w in zip(every, wanted, strict=True)]


def _marked(step: Step, answers: list[Value], given: Sequence[Value], read: Sequence[Value]) -> list[Value]:
    """The answers of a rule, marked where forward mode must not transpose them or has something else to take."""
    p = step.params
    if p["forwards"] is None:
        return answers if p["linear"] else [bent(v, given, p["name"]) for v in answers]
    return [apply(_with_forwards(step, k), [v, *given, *read])[0] for k, v in enumerate(answers)]


def _with_forwards(step: Step, k: int) -> Step:
    """The mark of the k-th answer of a rule that has a JVP beside it."""
    if ("bent", k) not in step.cache:
        p, graph = step.params, step.params["forwards"]
        inner = [Value(v.aval) for v in (p["rule"].outputs[k], *graph.inputs)]
        params = {"rule": p["name"], "linear": p["linear"], "forwards": Graph(graph.inputs, [graph.outputs[k]])}
        step.cache["bent", k] = Step(BENT, {"graph": Graph(inner, inner[:1]), **params})
    found: Step = step.cache["bent", k]
    return found


def applied(graph: Graph, operands: Sequence[Value]) -> list[Value]:
    """The outputs of a graph over operands."""
    new = {id(v): x for v, x in zip(graph.inputs, operands, strict=True)}
    for node in graph.nodes:
        results = apply(node.step, [new[id(v)] for v in node.inputs])
        new.update((id(v), r) for v, r in zip(node.outputs, results, strict=True))
    return [new[id(v)] for v in graph.outputs]


RULED = Ruled("ruled", doc="Results whose gradient is a rule that was traced.")


def ruled_step(
    results: int,
    rule: Graph,
    answers: tuple[bool, ...],
    linear: bool,
    name: str = "",
    forwards: Graph | None = None,
    effectful: Step | None = None,
) -> Step:
    """A step of `RULED`; like that of a call it is made once per graph."""
    params = {"results": results, "rule": rule, "answers": answers, "linear": linear, "name": name}
    return Step(RULED, params | {"forwards": forwards, "effectful": effectful})


class UnknownRule(Op):
    """A rule that this process knows by its `name` only; values are computed without it, and whoever asks for the
    gradient is told. Parameters besides: `results`, the avals of its answers."""

    kind = "unknown"

    def infer(self, avals: tuple[Aval, ...], **params: Any) -> tuple[Aval, ...]:
        results: tuple[Aval, ...] = params["results"]
        return results

    def vjp(self, node: Node, cotangents: list[Value | None], wanted: list[bool]) -> list[Value | None]:
        raise self.error(node.step)

    def error(self, step: Step) -> Exception:
        """What is raised in the place of a gradient."""
        name = step.params["name"]
        return LookupError(
            f"No gradient defined for operation '{name}': the gradient registry has no entry for it. The model was "
            "saved without its custom gradients, in another process. Save it with "
            "`tf.saved_model.SaveOptions(experimental_custom_gradients=True)`."
        )


class NoGradient(UnknownRule):
    """The gradient of a user's kernel that has none."""

    def error(self, step: Step) -> Exception:
        return self.refusal(step.params["name"])

    def refusal(self, name: str) -> LookupError:
        """The error for the kernel of a name."""
        return LookupError(
            f"No gradient defined for operation '{name}': the gradient registry has no entry for it. Give "
            f"`kernel_op` a `backward` or a `derivative`, or register a rule with `@tf.RegisterGradient('{name}')`."
        )


class Gone(UnknownRule):
    """A rule that could not be traced any more when it was asked for, since a tensor that it reads was gone. Who runs
    it, or asks for its derivative, is told; who only passes by is not."""

    def error(self, step: Step) -> Exception:
        name = step.params["name"]
        return TypeError(
            f"The rule of `{name}` calls `{name}`, so that it is traced when a further derivative asks for it, and a "
            "tensor of the function around it, which is not among its arguments, is gone by then: pass it as one."
        )


GONE = Gone("gone", listed=False)
NO_GRADIENT = NoGradient("no_gradient", listed=False)
UNKNOWN_RULE = UnknownRule("unknown_rule", doc="A rule that is known by name only.")


def unknown_rule(name: str, inputs: Sequence[Aval], outputs: Sequence[Aval]) -> Graph:
    """The graph of such a rule."""
    given = [Value(a) for a in inputs]
    return Graph(given, apply(UNKNOWN_RULE.bind(name=name, results=tuple(outputs)), given))
