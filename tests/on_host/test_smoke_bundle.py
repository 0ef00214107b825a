"""The zipapp: the same bytes each time, and runnable with nothing but Python 3.10 and torch."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from pyinfra_gpu import on_host
from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu.stacks.bundle import gpu_kinds, smoke_bundle, smoke_digest

_SMOKE = Path(on_host.__file__).parent / "smoke"


def run(program: str, *words: str, **variables: str) -> str:
    """Run a program of Python and return what it printed."""
    command = [sys.executable, "-c", program, *words]
    path = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, capture_output=True, check=True, text=True, env=path | variables)
    return done.stdout.strip()


def test_the_bytes_depend_on_the_sources_alone() -> None:
    program = "import sys; from pyinfra_gpu.stacks import bundle; print(bundle.smoke_digest())"
    assert run(program, PYTHONHASHSEED="1", TZ="Asia/Tokyo") == smoke_digest()


def test_the_bundle_knows_the_gpus_of_the_compatibility_data(tmp_path: Path) -> None:
    bundle = tmp_path / "smoke_test.pyz"
    bundle.write_bytes(smoke_bundle())
    program = (
        "import json, sys; sys.path.insert(0, sys.argv[1])\n"
        "from smoke import gpus\n"
        "known = gpus.kinds()\n"
        "print(json.dumps([known, gpus.kind_of('NVIDIA H200', known)]))"
    )
    kinds, h200 = json.loads(run(program, str(bundle), PYTHONPATH=""))
    assert kinds == [*gpu_kinds(catalogue())]
    assert h200 in kinds
    assert h200["memory_gb_s"] == 4800


@pytest.mark.parametrize("path", sorted(_SMOKE.glob("*.py")), ids=lambda path: str(path.name))
def test_a_module_is_python_3_10_and_imports_only_the_standard_library_and_torch(
    path: Path,
) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(), feature_version=(3, 10))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            imported.add(str(node.module).partition(".")[0])
    assert imported <= {*sys.stdlib_module_names, "torch"}


def test_a_python_without_torch_gets_a_failed_verdict(tmp_path: Path) -> None:
    """The launcher's half never imports it, and so lives to say so."""
    bundle, output = tmp_path / "smoke_test.pyz", tmp_path / "verdict.json"
    bundle.write_bytes(smoke_bundle())
    bare = str(Path(sys.executable).resolve())  # not the environment's, which has torch
    command = [bare, str(bundle), json.dumps({"mode": "rehearsal-cpu", "output": str(output)})]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2, done.stdout
    failed = json.loads(output.read_text())["failed"]
    assert failed["id"] == "S1.import"
    assert "No module named 'torch'" in failed["sentence"]
