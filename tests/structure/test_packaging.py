"""The package that is built is the package that is here: lists equal folders, and wheel and sdist install and import.

Builds run without isolation and installs without an index, so none of this needs a network.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from gradtape.version import __version__

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command and return what it printed; its output is the failure's message."""
    # A PYTHONPATH of the caller's could bring the checkout back in.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def folders_with_modules() -> set[str]:
    """Every folder with an __init__.py under gradtape/, by its package name; kernels/ under the name it ships as."""
    packages = set()
    for folder, package in ((ROOT / "gradtape", "gradtape"), (ROOT / "kernels", "gradtape.kernels")):
        for file in folder.rglob("__init__.py"):
            parts = file.parent.relative_to(folder).parts
            packages.add(".".join([package, *parts]))
    return packages


def shipped_files() -> set[str]:
    """What a wheel must hold beside its metadata: each module and each file of package data, by its place."""
    shipped = set()
    for folder, place in ((ROOT / "gradtape", "gradtape"), (ROOT / "kernels", "gradtape/kernels")):
        for file in folder.rglob("*"):
            relative = file.relative_to(folder)
            if place == "gradtape" and relative.parts[0] == "kernels":
                continue
            if file.suffix in {".py", ".cu", ".cuh"} or file.name == "py.typed":
                shipped.add(f"{place}/{relative.as_posix()}")
    return shipped


def test_packages_listed_are_the_folders() -> None:
    listed = PROJECT["tool"]["setuptools"]["packages"]
    assert len(listed) == len(set(listed))
    assert set(listed) == folders_with_modules()


def test_no_module_lies_in_a_folder_without_init() -> None:
    folders = {file.parent for top in ("gradtape", "kernels") for file in (ROOT / top).rglob("*.py")}
    assert [str(folder.relative_to(ROOT)) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_kernels_link_is_relative_and_leads_home() -> None:
    link = ROOT / "gradtape" / "kernels"
    assert link.is_symlink(), "gradtape/kernels must be a link, or a bare checkout imports other kernels than it ships"
    assert os.readlink(link) == "../kernels"
    assert PROJECT["tool"]["setuptools"]["package-dir"] == {"gradtape.kernels": "kernels"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sdist, the wheel made from the sdist, and the wheel made from the checkout."""
    place = tmp_path_factory.mktemp("build")
    # In a copy: setuptools leaves build/ and egg-info where it works, and parallel test processes would share them.
    source = place / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    for name in ("gradtape", "kernels"):
        shutil.copytree(
            ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", place / "a", source, cwd=place)
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", place / "b", source, cwd=place)
    [sdist] = (place / "a").glob("*.tar.gz")
    [wheel_from_sdist] = (place / "a").glob("*.whl")
    [wheel] = (place / "b").glob("*.whl")
    return {"sdist": sdist, "wheel from the sdist": wheel_from_sdist, "wheel": wheel}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel", "wheel from the sdist"])
def test_wheel_holds_every_module_and_nothing_else(built: dict[str, Path], kind: str) -> None:
    with zipfile.ZipFile(built[kind]) as archive:
        names = archive.namelist()
    assert len(names) == len(set(names))
    assert {name for name in names if ".dist-info/" not in name} == shipped_files()
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_sdist_holds_what_a_build_needs(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    wanted = {name.replace("gradtape/kernels/", "kernels/") for name in shipped_files()}
    assert wanted | {"pyproject.toml", "README.md", "LICENSE"} <= names


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel", "wheel from the sdist", "sdist"])
def test_installs_into_an_empty_environment_and_imports(built: dict[str, Path], kind: str, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    venv.create(home, with_pip=False, symlinks=os.name != "nt")
    python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    arguments = ["--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    if kind == "sdist":
        # pip builds with the interpreter it installs for, which has no setuptools here; so the build happens in
        # the one that runs the tests, as it would in a packager's environment.
        run(sys.executable, "-m", "pip", "wheel", *arguments, "-w", tmp_path, built[kind], cwd=tmp_path)
        [package] = tmp_path.glob("*.whl")
    else:
        package = built[kind]
    # What is imported is compiled then.
    quick = [*arguments[:2], "--no-compile"]
    run(sys.executable, "-m", "pip", "--python", python, "install", *quick, package, cwd=tmp_path)

    # The dependencies come from the environment that runs the tests. A path in a .pth file is searched after the
    # environment's own packages, and .pth files inside it (an editable gradtape!) are not read.
    site = Path(sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)}))
    borrowed = dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    (site / "borrowed.pth").write_text("\n".join(borrowed) + "\n", encoding="utf-8")

    outside = tmp_path / "elsewhere"
    outside.mkdir()
    script = (
        "import gradtape, gradtape.kernels, gradtape.version, importlib.metadata as m;"
        "print(gradtape.__file__); print(gradtape.kernels.__file__); print(m.version('gradtape'));"
        "print(gradtape.version.__version__)"
    )
    package_file, kernels_file, metadata_version, version = run(python, "-c", script, cwd=outside).split("\n")[:4]
    assert Path(package_file) == site / "gradtape" / "__init__.py"
    assert Path(kernels_file) == site / "gradtape" / "kernels" / "__init__.py"
    assert metadata_version == version

    command = python.with_name("gradtape")
    assert version in run(command, "--version", cwd=outside)
    assert "backend" in run(command, "doctor", "--quick", cwd=outside)


def test_version_stands_in_one_place() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert "version" not in PROJECT["project"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {__version__}" in changes, "CHANGELOG.md has no section for this version"
