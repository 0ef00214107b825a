"""What the code of the product reads: for tests that nothing is declared in vain."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pyinfra_gpu

PACKAGE = Path(pyinfra_gpu.__file__).parent


@cache
def attributes_read() -> frozenset[str]:
    """Every attribute name that code of the product reads, or a template of it."""
    templates = "".join(each.read_text(encoding="utf-8") for each in PACKAGE.rglob("*.j2"))
    inside = " ".join(re.findall(r"\{[{%].*?[%}]\}", templates))
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")]
    nodes = (node for tree in trees for node in ast.walk(tree))
    return frozenset(
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    ) | frozenset(re.findall(r"\.([a-z_]+)", inside))
