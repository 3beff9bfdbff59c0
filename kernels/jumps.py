"""Lines of a program that are no kernels: they jump, and change the registers that say where values lie.
Floor: kernels.

A loop counts in a register. What it carries has two places, for this round and the next, whose registers lie side by
side and change places at the end of a round. What it walks through, rows of stacks that it reads or writes, has two
registers: where the row lies, and how far it is to the next one. A *stack* is a register too: where its first row is.
Rows that loops write are numbered, from the first time a loop runs in a call to the last: the stacks of a loop in a
loop lie one behind the other."""

from __future__ import annotations

from dataclasses import dataclass

from gradtape.ir.dtypes import DType, bool_, int32, int64

# Why a program ended. FAR: an operand was beyond what an operation takes, or a position beyond an array. FULL: there is
# no room for a row more; the register `LACKING` names the one that says how much there is. PAUSED: after so many rounds
# Python should have a look; called again, the program goes on where it was.
DONE, FAR, FULL, PAUSED = range(4)
ROUNDS = 1 << 18  # rounds of loops after which a program pauses

LINE, LACKING, ONE, NONE_USED, ENDLESS = range(5)  # registers that every program has
REGISTERS = (0, 0, 1, 0, 1 << 62)
LEAD = (f"    p = at[{LINE}]", "    rounds = 0")


@dataclass(frozen=True)
class Jump:
    """How many words a line has after its number, and what it does: `t` is the line, `at` the registers."""

    words: int
    lines: tuple[str, ...]


def _again(target: str) -> tuple[str, ...]:
    """The end of a round after which there is one more."""
    return (
        f"    p = {target}",
        "    rounds += 1",
        f"    if rounds == {ROUNDS}:",
        f"        at[{LINE}] = p",
        f"        return {PAUSED}",
    )


_SWAP = ("for q in range(t[2], t[3], 2):", "    at[q], at[q + 1] = at[q + 1], at[q]")
_WALK = ("for q in range(t[4], t[5], 2):", "    at[q] += at[q + 1]")


def _step(space: str) -> Jump:
    k = f"{space}[at[t[3]] + t[4]]"
    return Jump(7, (f"if {k} < t[5] or {k} >= t[6]:", f"    return {FAR}", f"at[t[1]] = at[t[2]] + {k} * t[7]"))


JUMPS: dict[str, Jump] = {
    # to this line
    "go": Jump(1, ("p = t[1]",)),
    # unless this is true, to that line
    "unless": Jump(2, ("if not s_bool[at[t[1]]]:", "    p = t[2]")),
    # if this register is 0 or less, to that line
    "skip": Jump(2, ("if at[t[1]] <= 0:", "    p = t[2]")),
    # a register becomes what another one is
    "point": Jump(2, ("at[t[1]] = at[t[2]]",)),
    # a register is read from a row, or written to one
    "fetch": Jump(2, ("at[t[1]] = s_int64[at[t[2]]]",)),
    "store": Jump(2, ("s_int64[at[t[1]]] = at[t[2]]",)),
    # a register becomes 0, or a number among the values; and the other way round
    "clear": Jump(1, ("at[t[1]] = 0",)),
    "count": Jump(2, ("at[t[1]] = s_int32[at[t[2]]]",)),
    "tell": Jump(2, ("s_int32[at[t[1]]] = int32(at[t[2]])",)),
    # a part of an array, so many elements behind its beginning
    "shift": Jump(3, ("at[t[1]] = at[t[2]] + t[3]",)),
    # so many steps behind it as a position says, if there is one: part, array, positions, which, from, to, step
    "step32": _step("s_int32"),
    "step64": _step("s_int64"),
    # so many rows more: is there room, and from now on they are used
    "room": Jump(3, ("if at[t[1]] + at[t[2]] > at[t[3]]:", f"    at[{LACKING}] = t[3]", f"    return {FULL}")),
    "use": Jump(2, ("at[t[2]] += at[t[1]]",)),
    # a stack begins where the first row is that is not used: stack, start of all rows, rows used, elements of a row
    "begin": Jump(4, ("at[t[1]] = at[t[2]] + at[t[3]] * t[4]",)),
    # a row is the first of a stack, or the last of so many: row, stack, rows, elements of a row (0: the first)
    "row": Jump(4, ("at[t[1]] = at[t[2]] + (at[t[3]] - 1) * t[4]",)),
    # the end of a round of a loop over stacks: counter, what changes places, what walks, where the next round begins
    "next": Jump(6, (*_SWAP, *_WALK, "at[t[1]] -= 1", "if at[t[1]] > 0:", *_again("t[6]"))),
    # of a loop that tests: besides, rows used and room for them, and what the test said
    "while": Jump(
        9,
        (
            *_SWAP,
            *_WALK,
            "at[t[1]] += 1",
            "at[t[6]] += 1",
            "if s_bool[at[t[8]]]:",
            "    if at[t[6]] >= at[t[7]]:",
            f"        at[{LACKING}] = t[7]",
            f"        return {FULL}",
            *_again("t[9]"),
        ),
    ),
}

_SPACES: dict[str, DType] = {"s_bool": bool_, "s_int32": int32, "s_int64": int64}


def spaces_of(name: str) -> list[DType]:
    """The workspaces that a line touches."""
    return [d for word, d in _SPACES.items() if any(word in line for line in JUMPS[name].lines)]
