"""What a source tree says of itself: its build backend, what it needs, which options it reads."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from .errors import BuildError

SETUPTOOLS, SCIKIT = "setuptools", "scikit-build-core"
STAND_IN = "STAND-IN"
"""A file of this name says that a tree is none of PyTorch's, but one of our rehearsals."""


def backend(tree: Path) -> str:
    """Return which of the two backends builds a tree.

    PyTorch 2.14 and newer have a setup.py still, which only forwards: pyproject.toml counts.
    """
    named = _value(_build_system(tree), "build-backend")
    if not isinstance(named, str):
        named = "setuptools.build_meta" if (tree / "setup.py").exists() else ""
    if named.startswith("setuptools"):
        return SETUPTOOLS
    if named.startswith("scikit_build_core"):
        return SCIKIT
    raise BuildError(
        f"the source names the build backend {named!r}, and this builds trees of setuptools and of"
        " scikit-build-core: is it PyTorch at all?"
    )


def requires(tree: Path) -> list[str]:
    """Return what a tree needs to be built, as requirements."""
    listed = _value(_build_system(tree), "requires")
    found = [str(each) for each in listed] if isinstance(listed, list) else []
    extra = tree / "requirements-build.txt"
    if extra.exists():
        rows = (row.partition("#")[0].strip() for row in extra.read_text("utf-8").splitlines())
        found += [row for row in rows if row and not row.startswith("-")]
    return list(dict.fromkeys(found))


def is_stand_in(tree: Path) -> bool:
    """Tell whether a tree says of itself that it is a rehearsal's."""
    return (tree / STAND_IN).exists()


def reads(tree: Path, name: str) -> bool:
    """Tell whether any of a tree's own CMake or Python files of its build reads an option.

    A file that first gives the name a value has a variable of its own: PyTorch's has one named
    CUDA_ARCH_LIST.
    """
    word = re.compile(rf"\b{re.escape(name)}\b")
    given = re.compile(rf"\bset\(\s*{re.escape(name)}\b([^()]*)\)")
    own = [tree / "CMakeLists.txt", tree / "setup.py", *tree.glob("cmake/**/*.cmake")]
    own += [*tree.glob("*/CMakeLists.txt"), *tree.glob("tools/**/*.py")]
    for path in own:
        text = _text(path)
        first, local = word.search(text), given.search(text)
        if first is None:
            continue
        its_own = local is not None and local.start() < first.start() < local.end()
        if local is None or not its_own or "CACHE" in local[1] or word.search(local[1]):
            return True
    return False


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _build_system(tree: Path) -> str:
    """Return the section of pyproject.toml; Python before 3.11 has no reader of TOML."""
    text = _text(tree / "pyproject.toml")
    found = re.search(r"^\[build-system\]\s*$(.*?)(?=^\[|\Z)", text, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def _value(section: str, name: str) -> object:
    """Return a text or a list of texts: TOML writes both as Python does."""
    begin = re.search(rf"^{name}\s*=\s*", section, re.MULTILINE)
    if not begin:
        return None
    rest = section[begin.end() :]
    end = re.match(r"\[[^\]]*\]|\"[^\"\n]*\"|'[^'\n]*'", rest)
    # A requirement with an extra holds a bracket: then the list ends at the next line with one.
    whole = re.match(r"\[.*?^\s*\]", rest, re.MULTILINE | re.DOTALL)
    for candidate in (end, whole):
        try:
            return ast.literal_eval(candidate[0]) if candidate else None
        except (SyntaxError, ValueError):
            continue
    return None
