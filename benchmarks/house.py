"""The house in figures: shipped lines by room, long functions and files, arrows that run up.

    .venv/bin/python benchmarks/house.py            the working tree
    .venv/bin/python benchmarks/house.py REVISION   another state of it, by git

Lines are counted as `wc -l` does, of every program that is shipped with the product (Python, shell,
C, templates); data (YAML, JSON) is counted apart, and the lab of throwaway hosts not at all.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path
from statistics import median

PRODUCT = "pyinfra_gpu/"
LAB = "pyinfra_gpu/rehearsal/"  # where the lab was while it was shipped inside the product
DATA = (".yaml", ".json")
LONG_FUNCTION, LONG_FILE = 45, 400


def files(revision: str | None) -> dict[str, str]:
    """Return path -> text of the product's files."""
    tree = ["ls-tree", "-r", "--name-only", revision] if revision else ["ls-files"]
    names = git(*tree, "--", PRODUCT).split()
    return {name: text(name, revision) for name in names if not name.startswith(LAB)}


def git(*arguments: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", *arguments], capture_output=True, check=True, text=True).stdout


def text(name: str, revision: str | None) -> str:
    """Return a file's text, of the working tree or of a revision."""
    if revision:
        return git("show", f"{revision}:{name}")
    return Path(name).read_text(encoding="utf-8")


def room(name: str) -> str:
    """Return the room of a file, or the package's own root."""
    parts = name.removeprefix(PRODUCT).split("/")
    return parts[0] if len(parts) > 1 else "(loose modules)"


def functions(source: str) -> list[int]:
    """Return the length of each function of a module, in lines."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds))
    return [(node.end_lineno or node.lineno) - node.lineno + 1 for node in nodes]


def main() -> None:
    """Print the figures."""
    revision = sys.argv[1] if len(sys.argv) > 1 else None
    sources = files(revision)
    lines: Counter[str] = Counter()
    programs = {name: each for name, each in sources.items() if not name.endswith(DATA)}
    for name, content in programs.items():
        lines[room(name)] += content.count("\n")
    print(f"{'room':24}{'files':>8}{'lines':>8}")
    for name, count in sorted(lines.items()):
        print(f"{name:24}{sum(room(each) == name for each in programs):8}{count:8}")
    print(f"{'programs':24}{len(programs):8}{sum(lines.values()):8}")
    data = [content.count("\n") for name, content in sources.items() if name.endswith(DATA)]
    print(f"{'data':24}{len(data):8}{sum(data):8}")
    python = {name: content for name, content in sources.items() if name.endswith(".py")}
    sizes = sorted(size for content in python.values() for size in functions(content))
    print(f"functions: median {median(sizes):.0f} lines, 90 % below {sizes[len(sizes) * 9 // 10]},")
    print(f"  {sum(size > LONG_FUNCTION for size in sizes)} longer than {LONG_FUNCTION}")
    long = [name for name, content in python.items() if content.count("\n") > LONG_FILE]
    print(f"files longer than {LONG_FILE} lines: {', '.join(long) or 'none'}")


if __name__ == "__main__":
    main()
