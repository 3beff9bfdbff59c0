"""The public names of `gradtape` are those on the committed list, no more and no fewer.

After a change that is meant, `make public-names` (or running this file) rewrites the list; its diff is then reviewed.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("public_names.txt")


def names_in_a_fresh_process() -> list[str]:
    """dir(gradtape) as a user meets it: other tests import submodules, which then appear as attributes."""
    script = "import json, gradtape; print(json.dumps([n for n in dir(gradtape) if not n.startswith('_')]))"
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return sorted(json.loads(run.stdout))


def test_public_names_are_those_on_the_list() -> None:
    listed = LIST.read_text(encoding="utf-8").split()
    assert listed == sorted(set(listed)), f"{LIST.name} is not sorted, or names something twice"
    found = names_in_a_fresh_process()
    assert found, "gradtape has no public name"
    new, gone = sorted(set(found) - set(listed)), sorted(set(listed) - set(found))
    assert (new, gone) == ([], []), f"new: {new}, gone: {gone}. If that is meant, run `make public-names`"


def test_every_name_in_all_is_public_and_there() -> None:
    script = "import json, gradtape; print(json.dumps([n for n in gradtape.__all__ if not hasattr(gradtape, n)]))"
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == []


NAMESPACES = ["autodiff", "bitwise", "dtypes", "errors", "image", "linalg", "math", "nn", "random", "signal"]


@pytest.mark.parametrize("name", NAMESPACES)
def test_a_namespace_shows_no_more_than_its_public_names(name: str) -> None:
    script = (
        f"import json, gradtape; m = gradtape.{name}; "
        "print(json.dumps([sorted(n for n in dir(m) if not n.startswith('_')), sorted(m.__all__)]))"
    )
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    shown, public = json.loads(run.stdout)
    assert public
    assert shown == public


if __name__ == "__main__":
    LIST.write_text("\n".join(names_in_a_fresh_process()) + "\n", encoding="utf-8")
    print(f"wrote {LIST}")
