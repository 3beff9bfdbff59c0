"""Dockerfiles without Docker: their instructions, read from the file, performed in a folder.

A container's `/opt/venv` is ROOT/opt/venv here, in commands, paths and variables alike; what the system has (`/bin`,
`/usr`, ...) stays where it is. Each stage begins with an empty ROOT, which has the same name in all of them, so that
environments that are copied from stage to stage find themselves. The base image is an environment made anew, with the
pip of the one that runs the tests.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

SYSTEM = {"bin", "sbin", "usr", "lib", "lib64", "etc", "dev", "proc", "tmp", "var"}
ABSOLUTE = re.compile(r"(?<![\w./:}~-])/([a-z]\w*)|(?<=[:])/([a-z]\w*)")
# As Docker does, steps are taken once and their folder used again: by what is in a command.
MADE_ONCE = {"pip wheel": "wheels", "tools.bake_kernels": "kernels"}
KEPT = ("PIP_", "SSL_", "REQUESTS_")  # variables that say where pip finds packages
PIP = (sys.executable, "-m", "pip", "--quiet")
OPTION = re.compile(r"--(\w+)=(\S+)\s+")


class Instruction(NamedTuple):
    """One instruction: its word, and the rest of its lines as one."""

    word: str
    rest: str


def instructions(text: str) -> list[Instruction]:
    """The instructions of a Dockerfile."""
    joined = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    lines = [line.strip() for line in joined.splitlines() if line.strip()]
    return [Instruction(*line.split(None, 1)) for line in lines]  # type: ignore[arg-type]


def command(rest: str) -> list[str] | None:
    """The words of an instruction in exec form; None for one in shell form."""
    found = json.loads(rest) if rest.startswith("[") else None
    return None if found is None else [str(word) for word in found]


class Failed(AssertionError):
    """A command ended with another status than 0."""


class Machine:
    """The folders that stand for a container, and what its instructions said so far."""

    def __init__(self, folder: Path, context: Path) -> None:
        self.context, self.root, self.earlier = context, folder / "root", folder / "earlier"
        self.base, self.nobody, self.layers = folder / "base", folder / "empty home", folder / "layers"
        self.nobody.mkdir(parents=True)
        run([sys.executable, "-m", "venv", "--without-pip", self.base], {}, folder)
        (site,) = self.base.glob("lib/python*/site-packages")
        link(["pip"], site)
        self.add_program("pip", 'exec python -m pip "$@"')
        # Adding users is the host's business: their home is made.
        self.add_program("useradd", 'while [ "$1" != --home-dir ]; do shift; done\nmkdir -p "$2"')
        self.given: dict[str, str] = {}
        self.extra: dict[str, str] = {}
        self.for_installs: dict[str, str] = {}
        self.borrowed: list[str] = []
        self.linked: Path | None = None
        self.there: list[str] = []

    def add_program(self, name: str, text: str) -> None:
        """A program of the base image: what a shell does."""
        file = self.base / "bin" / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    def start(self) -> None:
        """A new stage, of the base image."""
        self.environment = {
            **{
                k: v
                for k, v in os.environ.items()
                if k.startswith(("PIP_", "SSL_", "REQUESTS_")) or "proxy" in k.lower()
            },
            "PATH": f"{self.base}/bin:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.nobody),
        }
        self.arguments: dict[str, str] = {}
        self.folder, self.entry, self.words = self.root, [], []
        self.health: list[str] = []
        self.home = self.nobody
        self.root.mkdir()

    def perform(
        self,
        text: str,
        arguments: Mapping[str, str] | None = None,
        extra: Mapping[str, str] | None = None,
        for_installs: Mapping[str, str] | None = None,
        borrowed: Sequence[str | Path] = (),
        linked: Path | None = None,
        there: Sequence[str] = (),
    ) -> None:
        """All instructions of a Dockerfile.

        Args:
          text: of the file.
          arguments: build arguments, as `docker build --build-arg` takes them.
          extra: variables that commands of RUN see besides.
          for_installs: more of them, for those that install packages.
          borrowed: folders that environments find packages in besides, where `for_installs` kept them from coming.
          linked: pip's report of what it would install: gradtape is, and the rest is linked from this environment.
          there: packages that are linked before pip is asked, which then looks for others only.
        """
        self.given, self.extra, self.for_installs = dict(arguments or {}), dict(extra or {}), dict(for_installs or {})
        self.borrowed, self.linked, self.there = [str(folder) for folder in borrowed], linked, list(there)
        for old in (self.root, self.earlier):
            shutil.rmtree(old, ignore_errors=True)
        self.start()
        for word, rest in instructions(text):
            INSTRUCTIONS[word](self, rest)

    def moved(self, text: str) -> str:
        """A text with the container's paths as they are here."""
        return ABSOLUTE.sub(lambda m: m[0] if (m[1] or m[2]) in SYSTEM else f"{self.root}/{m[1] or m[2]}", text)

    def filled(self, text: str) -> str:
        """A text with variables in it replaced."""
        known = {**self.arguments, **self.environment}
        return re.sub(r"\$\{?(\w+)\}?", lambda m: known[m[1]], text)

    def place(self, path: str) -> Path:
        """Where a path of the container is."""
        return self.folder / self.moved(path)

    # ------------------------------------------------------------------ instructions

    def do_from(self, rest: str) -> None:
        assert rest.split()[0] in ("python:3.12-slim", "python:3.12"), "the base image here stands for another one"
        if any(self.root.iterdir()):
            self.root.rename(self.earlier)
            self.start()

    def do_arg(self, rest: str) -> None:
        name, default = rest.split("=")
        self.arguments[name] = self.given.get(name, default)

    def do_env(self, rest: str) -> None:
        for name, value in (pair.split("=", 1) for pair in rest.split()):
            self.environment[name] = self.filled(self.moved(value))

    def do_workdir(self, rest: str) -> None:
        self.folder = self.place(rest)
        self.folder.mkdir(parents=True, exist_ok=True)

    def do_copy(self, rest: str) -> None:
        options = dict(OPTION.findall(rest))
        *sources, target = OPTION.sub("", rest).split()
        whole = target.endswith("/")
        for source in sources:
            destination = self.place(target) / Path(source).name if whole else self.place(target)
            destination.parent.mkdir(parents=True, exist_ok=True)
            if "from" in options:
                (self.earlier / source.lstrip("/")).rename(destination)
                continue
            found = self.context / source
            if found.is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
                shutil.copytree(found, destination, symlinks=True, ignore=ignored)
            else:
                shutil.copy(found, destination)

    def do_run(self, rest: str) -> None:
        home = re.search(r"--home-dir (\S+)", rest)
        if home is not None:
            self.home = self.place(home[1])
        made = next((place for what, place in MADE_ONCE.items() if what in rest), "")
        if made and (self.layers / made).exists():
            shutil.copytree(self.layers / made, self.root / made)
            return
        more = self.for_installs if re.search(r"pip .*install", rest) else {}
        if more and self.there:
            link(self.there, self.site)
        shell = ["/bin/sh", "-c", self.moved(rest)]
        run(command(rest) or shell, {**self.arguments, **self.environment, **self.extra, **more}, self.folder)
        if made:
            shutil.copytree(self.root / made, self.layers / made)
        if more and self.linked is not None:
            self.install_links(self.linked)
        if more and self.borrowed:
            (self.site / "borrowed.pth").write_text("\n".join(self.borrowed))
            for libraries in {Path(folder, "nvidia").resolve() for folder in self.borrowed}:
                if libraries.is_dir():  # they are looked for in this folder only
                    (self.site / "nvidia").symlink_to(libraries)

    @property
    def site(self) -> Path:
        """Where packages lie that are installed in the image."""
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        return self.root / "opt" / "venv" / "lib" / version / "site-packages"

    def install_links(self, report: Path) -> None:
        """What pip would install: gradtape from its wheel, other packages as links to those of this environment."""
        venv = self.root / "opt" / "venv"
        wheels = self.root.glob("wheels/*.whl")
        run([*PIP, "--python", venv, "install", "--no-deps", *wheels], {**self.environment, **self.extra}, self.folder)
        names = {p["metadata"]["name"] for p in json.loads(report.read_text(encoding="utf-8"))["install"]}
        link(sorted(names - {"gradtape"}), self.site)

    def do_user(self, rest: str) -> None:
        """From here on the home is the user's; commands run as who runs the tests, as only root may change that."""
        assert rest.isdigit(), "a number is known on every host"
        self.environment["HOME"] = str(self.home)

    def do_healthcheck(self, rest: str) -> None:
        words = command(OPTION.sub("", rest).removeprefix("CMD "))
        assert words is not None, "a healthcheck in exec form starts no shell every minute"
        self.health = words

    def do_entrypoint(self, rest: str) -> None:
        self.entry = [self.moved(word) for word in command(rest) or []]

    def do_cmd(self, rest: str) -> None:
        self.words = command(rest) or []

    # ------------------------------------------------------------------ what users do

    def started(self, *words: str, status: int = 0, **variables: str) -> str:
        """What `docker run IMAGE WORDS` prints, with its errors."""
        return self.called([*self.entry, *(words or self.words)], status, **variables)

    def called(self, words: Sequence[str], status: int = 0, **variables: str) -> str:
        """What a command in the container prints, with its errors."""
        return run(words, {**self.environment, **variables}, self.folder, status)


INSTRUCTIONS = {
    "ARG": Machine.do_arg,
    "CMD": Machine.do_cmd,
    "COPY": Machine.do_copy,
    "ENTRYPOINT": Machine.do_entrypoint,
    "ENV": Machine.do_env,
    "FROM": Machine.do_from,
    "HEALTHCHECK": Machine.do_healthcheck,
    "RUN": Machine.do_run,
    "USER": Machine.do_user,
    "WORKDIR": Machine.do_workdir,
}


def link(names: Sequence[str], site: Path) -> None:
    """Put packages of this environment into another one, as links."""
    site.mkdir(parents=True, exist_ok=True)
    for name in names:
        found = metadata.distribution(name)
        for top in {f.parts[0] for f in found.files or ()} - {"..", "__pycache__"}:
            (site / top).symlink_to(Path(str(found.locate_file(top))).resolve())


def run(words: Sequence[str | Path], environment: Mapping[str, str], folder: Path, status: int = 0) -> str:
    """Run a command and return what it printed; that is the failure's message too."""
    path = environment.get("PATH", os.environ["PATH"])
    program = shutil.which(str(words[0]), path=path)
    assert program is not None, f"there is no `{words[0]}` in {path}"
    done = subprocess.run(
        [program, *map(str, words[1:])],
        cwd=folder,
        env={"PATH": path, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != status:
        raise Failed(f"{' '.join(map(str, words))}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout
