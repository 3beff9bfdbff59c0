"""`import gradtape` defines things and loads little: counted in a fresh process, not timed."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Each costs more than the whole package may (0.1 to 0.5 s), and is needed only once something is run or drawn.
HEAVY = {"cupy", "cupyx", "cuda", "numba", "llvmlite", "matplotlib", "scipy", "sklearn", "pandas", "pytest"}
# What the package may load beyond the standard library.
LIGHT = {"gradtape", "numpy", "optree", "opt_einsum", "ml_dtypes", "safetensors", "tqdm", "typing_extensions"}

# A .pth file of the environment may load modules before the first line runs (editable installs do); they are not ours.
SCRIPT = """
import json, sys
before = set(sys.modules)
import gradtape
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def loaded_by_import() -> list[str]:
    run = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_import_loads_nothing_heavy() -> None:
    loaded = loaded_by_import()
    assert {"gradtape", "numpy"} <= set(loaded), "the import itself was not seen"
    roots = {name.split(".")[0] for name in loaded}
    assert not roots & HEAVY, f"`import gradtape` loads {sorted(roots & HEAVY)}"
    strangers = roots - LIGHT - set(sys.stdlib_module_names)
    strangers = {name for name in strangers if not name.startswith("_")}  # companions such as _distutils_hack
    assert not strangers, f"`import gradtape` loads {sorted(strangers)}: a new need, or one to load later"
