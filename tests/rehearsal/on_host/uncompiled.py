"""Print torch's modules whose bytecode is not there; those that no Python compiles are left out."""

import importlib.util
from pathlib import Path

import torch

for path in Path(torch.__file__).parent.rglob("*.py"):
    if not Path(importlib.util.cache_from_source(path)).exists():
        try:
            compile(path.read_bytes(), path, "exec")
        except SyntaxError:
            continue
        print(path)
