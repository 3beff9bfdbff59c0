"""How Sphinx builds the manual: MyST pages, furo's look, the public docstrings. In `make docs` warnings are errors."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from sphinx.application import Sphinx  # noqa: E402

from gradtape.version import __version__  # noqa: E402  (the path above has to come first)

project = "gradtape"
author = "The gradtape maintainers"
project_copyright = author
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# Single backticks in docstrings mean code, as they do on the pages.
default_role = "code"
autodoc_member_order = "alphabetical"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False

# Copy what is typed, not prompts and output.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = f"gradtape {release}"


def plain_text(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Bars and stars in docstrings are mathematics, not markup; code and examples stay as they are."""
    example = False
    for i, line in enumerate(lines):
        example = bool(line.strip()) and (example or line.lstrip().startswith(">>>"))
        if not example:
            pieces = line.split("`")
            pieces[::2] = [p.replace("|", r"\|").replace("*", r"\*") for p in pieces[::2]]
            lines[i] = "`".join(pieces)


def setup(app: Sphinx) -> None:
    """Called by Sphinx. The hook runs before napoleon's."""
    app.connect("autodoc-process-docstring", plain_text, priority=400)
