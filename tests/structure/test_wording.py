"""What is written here makes sense to any reader: no paths of one machine, no package hosts, no talk of its makers."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Where there is no git (an unpacked sdist), the same is meant by leaving these out.
LEFT_BY_TOOLS = {"__pycache__", "build", "dist", "out", "_build", "node_modules"}

# Put together from pieces, so that this file does not contain what it looks for.
FORBIDDEN = {
    "a path on one machine": r"(?<![\w.])/" + r"(?:work|root|home/\w+|opt/(?:wheels|pypi)\S*)/|/tmp/" + r"\w",
    "a package host": r"pypi" + r"\.org|python" + r"hosted|registry\.npm" + r"js|deb\.deb" + r"ian|proxy\.go" + r"lang",
    "a number of an issue": r"\bissues?" + r" #?\d|\(#\d+" + r"\)",
    "a file outside the repository": r"\.\./" + r"shared\b|\bshared/" + r"\w+\.\w|\b(?:DESIGN|ECOSYSTEM)" + r"\.md",
    "talk about how the work is organised": r"\b(?:C" + r"EO|work" + r"place)\b|\b(?:this|last|next) sess" + r"ion\b",
}


def repository_files() -> list[Path]:
    """Files that are, or could be, committed."""
    if (ROOT / ".git").exists():
        command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
        files = [ROOT / name for name in listed if name]
    else:
        files = [
            path
            for path in ROOT.rglob("*")
            if not any(part in LEFT_BY_TOOLS or part.startswith(".venv") for part in path.relative_to(ROOT).parts)
        ]
    return [path for path in files if path.is_file() and not path.is_symlink()]


def faults(text: str) -> list[tuple[int, str, str]]:
    """Line, kind and words of each forbidden wording in a text."""
    return [
        (text.count("\n", 0, match.start()) + 1, kind, match.group())
        for kind, pattern in FORBIDDEN.items()
        for match in re.finditer(pattern, text)
    ]


def test_no_file_has_forbidden_words() -> None:
    files = repository_files()
    assert {"README.md", "pyproject.toml", Path(__file__).name} <= {path.name for path in files}
    found = [
        f"{path.relative_to(ROOT)}:{line}: {kind}: {words!r}"
        for path in files
        # latin-1 reads any bytes, so that pictures and other data are searched like text.
        for line, kind, words in faults(path.read_bytes().decode("latin-1"))
    ]
    assert not found, "\n".join(found)


def test_planted_words_are_found() -> None:
    planted = {
        "a path on one machine": ["see /" + "work/main", "in /" + "root/.cache", "/" + "tmp/x"],
        "a package host": ["https://pypi" + ".org/simple"],
        "a number of an issue": ["as issue" + " 3 says", "issue" + " #12"],
        "a file outside the repository": ["read ../" + "shared", "shared/" + "NOTES.md"],
        "talk about how the work is organised": ["the work" + "place", "in the next: this sess" + "ion"],
    }
    assert set(planted) == set(FORBIDDEN)
    for kind, texts in planted.items():
        for text in texts:
            assert [found for _, found, _ in faults(text)] == [kind], text


def test_ordinary_words_pass() -> None:
    text = "shared memory, a shared letter, issue a warning, docs/architecture.md, a Session, the network/root/leaf"
    assert faults(text) == []
