"""The images of docker/: linted, and built step by step in a folder, since there is no Docker where tests run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docker.dockerfile import Failed, Machine, command, instructions, run

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker"
DOCKERFILES = sorted(FOLDER.glob("Dockerfile.*"))
SCRIPTS = Path(sysconfig.get_path("scripts"))

# pip's own cache and no bytecode: what is tested stays the same, and takes half the time.
FAST = {"PIP_NO_CACHE_DIR": "0", "PIP_NO_COMPILE": "1", "PIP_PROGRESS_BAR": "off"}


def text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


# ------------------------------------------------------------------ linted


def test_dockerfiles_are_clean() -> None:
    assert [f.name for f in DOCKERFILES] == ["Dockerfile.cpu", "Dockerfile.cuda"]
    run([SCRIPTS / "hadolint", *DOCKERFILES], {}, ROOT)


def test_the_linter_sees_a_fault(tmp_path: Path) -> None:
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM python:latest\nRUN cd /tmp && pip install numpy\n")
    with pytest.raises(Failed, match="DL3013"):
        run([SCRIPTS / "hadolint", bad], {}, ROOT)


def test_the_compose_file_is_valid(tmp_path: Path) -> None:
    schema = [SCRIPTS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec"]
    run([*schema, FOLDER / "compose.yaml"], {}, ROOT)
    bad = tmp_path / "compose.yaml"
    bad.write_text(text("compose.yaml").replace("capabilities: [gpu]", "capability: [gpu]"))
    with pytest.raises(Failed, match="capabilit"):
        run([*schema, bad], {}, ROOT)


def test_compose_uses_the_dockerfiles_and_reserves_the_gpu() -> None:
    compose = text("compose.yaml")
    assert sorted(re.findall(r"dockerfile: docker/(\S+)", compose)) == [f.name for f in DOCKERFILES]
    assert "driver: nvidia" in compose and "capabilities: [gpu]" in compose and "--require-gpu" in compose


def test_both_images_end_alike() -> None:
    """In one user's home, without a shell between the signals and the program, asked for their health."""
    for name in ("Dockerfile.cpu", "Dockerfile.cuda"):
        found = instructions(text(name))
        last = found[max(k for k, i in enumerate(found) if i.word == "FROM") :]
        words = [i.word for i in last]
        assert words[words.index("USER") - 1 :] == [
            *("RUN", "USER", "WORKDIR", "RUN"),
            *["COPY"] * (name == "Dockerfile.cuda"),
            *("HEALTHCHECK", "ENTRYPOINT", "CMD"),
        ]
        assert last[0].rest == "python:3.12-slim"
        assert all(command(i.rest) for i in last if i.word in ("ENTRYPOINT", "CMD"))
        assert not any(re.search(r"apt-get|pip |gcc|g\+\+", i.rest) for i in last)


def test_what_is_copied_is_sent_and_no_more() -> None:
    """The context holds what the Dockerfiles copy; measured results and caches stay."""
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = set()
    for file in DOCKERFILES:
        for word, rest in instructions(file.read_text(encoding="utf-8")):
            if word == "COPY" and "--from" not in rest:
                copied |= set(rest.split()[:-1])
    assert copied == kept and all((ROOT / name).exists() for name in copied)


# ------------------------------------------------------------------ built


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """One for all images, so that what is made once is made once for all."""
    return Machine(tmp_path_factory.mktemp("machine"), ROOT)


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_the_image_of_the_cpu(machine: Machine, tmp_path: Path) -> None:
    """All steps; then what the container does, with what pip would install and nothing else, which is linked from the
    tests' own environment where it has it."""
    report = tmp_path / "installed.json"
    dry = {"PIP_DRY_RUN": "1", "PIP_REPORT": str(report)}
    machine.perform(text("Dockerfile.cpu"), extra=FAST, for_installs=dry, linked=report)
    check_what_it_holds(machine)
    check_what_it_does(machine)
    check_a_home_that_cannot_be_written_to(machine)
    check_slips(machine)


def check_what_it_holds(image: Machine) -> None:
    assert sorted(p.name for p in image.root.iterdir()) == ["gradtape", "opt"]
    assert sorted(p.name for p in (image.root / "opt").iterdir()) == ["gradtape", "venv"]
    assert sorted(p.name for p in (image.root / "opt" / "gradtape").iterdir()) == ["benchmarks", "docker", "examples"]
    installed = {p.name.split("-")[0].lower() for p in image.site.glob("*.dist-info")}
    assert {"gradtape", "numpy", "numba", "mlxtend"} <= installed
    assert not installed & {"pytest", "hypothesis", "mypy", "ruff", "torch", "tensorflow", "jax", "cupy_cuda13x"}
    assert not (image.site / "tests").exists() and not list(image.nobody.glob("*.whl"))


def check_what_it_does(image: Machine) -> None:
    assert "train FILE" in image.started()
    where = image.started("python", "-c", "import gradtape; print(gradtape.__file__)")
    assert where.strip().startswith(str(image.root / "opt" / "venv"))
    assert image.called(image.health).count("\n") == 3
    image.called([*image.health, "--require-gpu"], status=1)
    program = image.folder / "mine.py"
    program.write_text("import sys, gradtape as tf; print(float(tf.square(float(sys.argv[1]))))")
    assert image.started("train", "mine.py", "3") == "9.0\n"
    assert "images/s" in image.started("train", "--network", "dense", "--epochs", "1", "--limit", "500")
    assert "training" in image.started("bench", "--list")
    report = image.started("test")
    assert "\n  trial " in report and re.search(r"\n(\d+) of \1 examples of the documentation do", report)
    shown = image.started("demo", "--epochs", "1", "--limit", "500", "--rows-of", "32")
    assert "held-out accuracy" in shown
    assert {p.name for p in image.folder.glob("*.png")} == {"saliency.png", "jacobian.png"}
    assert (image.home / ".cache").is_dir() and image.home == image.folder


def check_a_home_that_cannot_be_written_to(image: Machine) -> None:
    program = "import os, gradtape as tf; print(os.environ['HOME'], float(tf.exp(0.0)))"
    said = image.started("python", "-c", program, HOME="/dev/null/nowhere")
    assert "cannot be written to" in said and re.search(r"home-\w+ 1\.0$", said.strip())
    report = image.called(["gradtape", "doctor"], status=1, GRADTAPE_CACHE="/dev/null/nowhere")
    assert "! cache" in report and report.rstrip().endswith("To mend: cache.")
    kept = image.called(["gradtape", "doctor"])
    assert f"{image.home}/.cache/gradtape/kernels" in kept


def check_slips(image: Machine) -> None:
    assert "There is no `trian`. There is:" in image.started("trian", status=1)
    assert "there is no file `absent.py`" in image.started("train", "absent.py", status=1)


# ------------------------------------------------------------------ with CUDA


def needs_an_index() -> None:
    """Skip, and say so, where pip finds no packages at all."""
    ask = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "opt_einsum"]
    done = subprocess.run(ask, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the CUDA extras cannot be resolved, as pip finds no packages here: {done.stderr.strip()[-200:]}")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_images_with_cuda(machine: Machine, tmp_path: Path) -> None:
    """All steps, for both versions of CUDA; what pip would install beside what the CPU's image has too is resolved and
    not installed, and gradtape is put there from the checkout."""
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVIDIA's compiler is not installed: the extra `nvrtc` or `dev`")
    needs_an_index()
    for extra in ("cu13", "cu12"):
        check_cuda(machine, extra, tmp_path / f"{extra}.json")


def dependencies(*names: str) -> list[str]:
    """All that packages need beside themselves, by what is installed here."""
    found: set[str] = set()
    wanted = set(names)
    while wanted:
        found |= wanted
        needs = [Requirement(r) for name in wanted for r in metadata.requires(name) or ()]
        always = [r for r in needs if r.marker is None or r.marker.evaluate({"extra": ""})]
        wanted = {canonicalize_name(r.name) for r in always} - found
    return sorted(found - set(names))


def check_cuda(machine: Machine, extra: str, report: Path) -> None:
    dry = {"PIP_DRY_RUN": "1", "PIP_REPORT": str(report)}
    borrowed = (ROOT, sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    few = text("Dockerfile.cuda").replace("--steps 1", "--steps 1 --limit 30")  # digits: shown as well, and sooner
    assert "--limit 30" in few
    chosen = {"CUDA": extra, "ARCHITECTURES": "90"}
    machine.perform(few, chosen, FAST, dry, borrowed, there=dependencies("gradtape", "mlxtend"))
    found = {p["metadata"]["name"].lower().replace("_", "-") for p in json.loads(report.read_text())["install"]}
    major = extra.removeprefix("cu")
    assert {"gradtape", f"cupy-cuda{major}x", "cuda-core", "cuda-bindings", "cuda-pathfinder", "mlxtend"} <= found
    wheels = " ".join(sorted(found))
    for library in ("cublas", "cusolver", "cuda-nvrtc", "cuda-runtime", "nvjitlink"):
        assert re.search(rf"nvidia-{library}\b", wheels), f"{library} is missing in {wheels}"
    assert not any(name.startswith("cupy") for name in found - {f"cupy-cuda{major}x"})
    assert machine.environment["NVIDIA_VISIBLE_DEVICES"] == "all"
    baked = len(list((machine.home / ".cache" / "gradtape" / "kernels").glob("cuda_*.code")))
    cache = re.search(r"  cache .*\((\d+) kernels\)", machine.started("python", "-m", "gradtape", "doctor"))
    assert baked > 5 and cache is not None and int(cache[1]) >= baked  # they are those that will be looked for
    assert "train FILE" in machine.started()
    assert machine.started("python", "-c", "import gradtape as tf; print(float(tf.exp(0.0)))") == "1.0\n"
