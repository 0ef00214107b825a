"""The zipapp: the same bytes each time, and runnable with nothing but Python 3.10 and torch."""

from __future__ import annotations

import ast
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from pyinfra_gpu import on_host
from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu.stacks.bundle import gpu_kinds, smoke_bundle, smoke_digest

_SMOKE = Path(on_host.__file__).parent / "smoke"
_SOURCES = sorted(_SMOKE.rglob("*.py"))


def test_the_bytes_depend_on_the_sources_alone() -> None:
    program = "import sys; from pyinfra_gpu.stacks import bundle; print(bundle.smoke_digest())"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            check=True,
            text=True,
            env={"PYTHONHASHSEED": seed, "TZ": zone, "PYTHONPATH": ":".join(sys.path)},
        ).stdout.strip()
        for seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo"))
    }
    assert digests == {smoke_digest()}
    assert hashlib.sha256(smoke_bundle()).hexdigest() == smoke_digest()


def test_the_bundle_knows_the_gpus_of_the_compatibility_data(tmp_path: Path) -> None:
    bundle = tmp_path / "smoke_test.pyz"
    bundle.write_bytes(smoke_bundle())
    program = (
        "import json, sys; sys.path.insert(0, sys.argv[1])\n"
        "from smoke import gpus\n"
        "known = gpus.kinds()\n"
        "print(json.dumps([known, gpus.kind_of('NVIDIA H200', known)]))"
    )
    run = subprocess.run(
        [sys.executable, "-S", "-c", program, str(bundle)],
        capture_output=True,
        check=True,
        text=True,
    )
    kinds, h200 = json.loads(run.stdout)
    assert kinds == [*gpu_kinds(catalogue())]
    assert h200 in kinds
    assert h200["capability"] == [9, 0]


@pytest.mark.parametrize("path", _SOURCES, ids=lambda path: str(path.relative_to(_SMOKE)))
def test_a_module_is_python_3_10_and_imports_only_the_standard_library_and_torch(
    path: Path,
) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 10))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            imported.add(str(node.module).partition(".")[0])
    assert imported <= {*sys.stdlib_module_names, "torch"}


def test_the_launchers_half_never_imports_torch() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from pyinfra_gpu.on_host.smoke import across, launcher, worker\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_python_without_torch_gets_a_failed_verdict(tmp_path: Path) -> None:
    bundle = tmp_path / "smoke_test.pyz"
    bundle.write_bytes(smoke_bundle())
    arguments = [
        *("--mode", "rehearsal-cpu", "--fingerprint", "c0ffee", "--host", "box"),
        *("--output", str(tmp_path / "verdict.json")),
    ]
    bare = str(Path(sys.executable).resolve())  # not the environment's, which has torch
    run = subprocess.run([bare, str(bundle), *arguments], capture_output=True, text=True)
    assert run.returncode == 2, run.stdout
    failed = json.loads((tmp_path / "verdict.json").read_text())["failed"]
    assert failed["id"] == "S1.import"
    assert "No module named 'torch'" in failed["sentence"]
