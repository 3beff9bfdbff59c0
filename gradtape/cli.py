"""The `gradtape` command. Top floor: it asks the floors below what they found and prints it.

`gradtape doctor` says which backend is in use and why, what is installed, and whether it works.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from gradtape.doctor import examine
from gradtape.version import __version__


def doctor(arguments: argparse.Namespace) -> int:
    """Print what gradtape found on this machine; 1 if something must be mended, else 0."""
    findings = examine(arguments.quick, arguments.require_gpu)
    faults = [finding.name for finding in findings if finding.fault]
    if arguments.json:
        print(json.dumps({"findings": [finding._asdict() for finding in findings], "faults": faults}, indent=2))
        return 1 if faults else 0
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        mark = "!" if finding.fault else " "
        print(f"{mark} {finding.name:<{width}}  {finding.text}")
    if faults:
        print(f"\nTo mend: {', '.join(faults)}.")
    return 1 if faults else 0


class Parser(argparse.ArgumentParser):
    """argparse, with errors that end in the way out."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: {message}\nSee `{self.prog} --help`.\n")


def parser() -> tuple[Parser, dict[str, Callable[[argparse.Namespace], int]]]:
    """The command line and what each command calls."""
    top = Parser(prog="gradtape", description="Automatic differentiation with GradientTape, on CuPy or NumPy arrays.")
    top.add_argument("--version", action="version", version=f"gradtape {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    check = commands.add_parser(
        "doctor",
        help="say which backend is used and why, what is installed, and whether it works",
        description="Say which backend is used and why, which packages, driver and libraries of CUDA there are, and "
        "whether a second of work gives the right results. Exit status 1 if something must be mended.",
    )
    check.add_argument("--quick", action="store_true", help="only the backend and the versions of gradtape and Python")
    check.add_argument("--require-gpu", action="store_true", help="a GPU that cannot be used is a fault")
    check.add_argument("--json", action="store_true", help="print JSON")
    return top, {"doctor": doctor}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    top, commands = parser()
    # argparse would list the choices only; a slip of the finger deserves its correction.
    if words and not words[0].startswith("-") and words[0] not in commands:
        near = difflib.get_close_matches(words[0], commands, n=1)
        hint = f" Did you mean `{near[0]}`?" if near else f" There is: {', '.join(f'`{name}`' for name in commands)}."
        top.error(f"there is no command `{words[0]}`.{hint}")
    arguments = top.parse_args(words)
    if arguments.command is None:
        top.print_help(sys.stderr)
        return 2
    return commands[arguments.command](arguments)
