"""What the container does: `demo`, `bench`, `test`, `train FILE` or `python`, with whatever arguments follow.

It uses the standard library only until it knows what to run, and then becomes that program.
"""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

SHARED = Path(__file__).resolve().parents[1]  # where examples/ and benchmarks/ lie
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS

USAGE = """\
demo [OPTION ...]        train a network on real handwritten digits; pictures land in the working folder
bench [NAME ...]         time gradtape (`bench --list` names the workloads, `bench --quick` takes seconds)
test                     what `gradtape doctor` finds, then every example of the documentation
train FILE [ARG ...]     run a program of yours; without FILE, the example that trains two networks
python [ARG ...]         Python, with gradtape installed"""


def become(*words: str | Path, folder: Path | None = None) -> NoReturn:
    """Run a Python program in the place of this process, so that signals reach it."""
    if folder is not None:
        os.chdir(folder)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *map(str, words)])


def demo(arguments: Sequence[str]) -> NoReturn:
    picture = [] if any(a.startswith("--picture") for a in arguments) else ["--picture", Path.cwd() / "saliency.png"]
    become(SHARED / "examples" / "digits.py", *picture, *arguments)


def bench(arguments: Sequence[str]) -> NoReturn:
    become("-m", "benchmarks.run", *arguments, folder=SHARED)


def train(arguments: Sequence[str]) -> NoReturn:
    if not arguments or arguments[0].startswith("-"):
        become(SHARED / "examples" / "train_gpu.py", *arguments)
    file = Path(arguments[0])
    if not file.is_file():
        sys.exit(
            f"train: there is no file `{file}` in the container (working folder: {Path.cwd()}). "
            'Mount yours: docker run -v "$PWD:/here" -w /here IMAGE train FILE'
        )
    become(file, *arguments[1:])


def python(arguments: Sequence[str]) -> NoReturn:
    become(*arguments)


def test(arguments: Sequence[str]) -> NoReturn:
    """What the doctor finds, then every example of the documentation."""
    found = subprocess.run([sys.executable, "-m", "gradtape", "doctor", *arguments], check=False).returncode
    print(flush=True)
    os.environ["GRADTAPE_DEVICE"] = "cpu"  # they show numbers as the host rounds them
    tried, failed = examples("gradtape")
    print(f"{tried - failed} of {tried} examples of the documentation do what they say")
    sys.exit(1 if found or failed or not tried else 0)


def examples(package: str) -> tuple[int, int]:
    """How many examples a package's docstrings have, and how many fail."""
    top = importlib.import_module(package)
    import numpy

    determinism = importlib.import_module("gradtape.ir.determinism")
    names = {"np": numpy, "tf": top}
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner(optionflags=FLAGS)
    for info in pkgutil.walk_packages(top.__path__, f"{package}."):
        if not info.name.endswith("__main__"):
            for found in finder.find(importlib.import_module(info.name), extraglobs=names):
                if not found.examples:  # most; and before each run doctest asks for every file's age
                    continue
                runner.run(found)
                determinism.DETERMINISM.required = False  # one example asks for it, and nothing public takes it back
    return runner.tries, runner.failures


COMMANDS: dict[str, Callable[[Sequence[str]], NoReturn]] = {
    "demo": demo,
    "bench": bench,
    "test": test,
    "train": train,
    "python": python,
}


def find_a_home() -> None:
    """Compiled kernels are kept in the home folder. A user without one that can be written to (`docker run --user`)
    gets one that ends with the container."""
    home = Path(os.path.expanduser("~"))
    if home != Path("/") and os.access(home, os.W_OK):
        return
    os.environ["HOME"] = tempfile.mkdtemp(prefix="home-")
    print(f"{home} cannot be written to: what is compiled is kept in {os.environ['HOME']}", file=sys.stderr)


def main(words: Sequence[str]) -> None:
    """Run what the first word names."""
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE)
        return
    command = COMMANDS.get(words[0])
    if command is None:
        sys.exit(f"There is no `{words[0]}`. There is:\n{USAGE}")
    find_a_home()
    command(list(words[1:]))


if __name__ == "__main__":
    main(sys.argv[1:])
