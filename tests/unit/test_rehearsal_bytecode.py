"""What a throwaway host compiles of Python it compiles once, and the hosts after it not at all."""

from __future__ import annotations

import ensurepip
import inspect
import marshal
import subprocess
import sys
from pathlib import Path

import pytest

from pyinfra_gpu_rehearsal import base_image

# As uv's own does: the paths of files come in, and are compiled one after another.
COMPILES = "import compileall, sys; compileall.compile_file('module.py', force=True, quiet=2)"
RUNS = 'run_module("pip"'  # what ensurepip has Python do, by a text


def python(folder: Path, *words: str) -> str:
    """Run Python as it starts on a host."""
    done = subprocess.run(
        [sys.executable, "-B", *words],
        cwd=folder,
        env={"PYTHONPATH": str(folder)},
        text=True,
        capture_output=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("program", "kept"), [("pip_compileall.py", True), ("-c", True), ("compile_all.py", False)]
)
def test_what_installers_compile_is_kept_and_taken_again(
    program: str, kept: bool, tmp_path: Path
) -> None:
    assert RUNS in inspect.getsource(ensurepip._run_pip)  # type: ignore[attr-defined]
    (tmp_path / "kept").mkdir()
    for path in base_image.PYTHON:
        text = path.read_text().replace("/run/rehearsal-bytecode", str(tmp_path / "kept"))
        (tmp_path / path.name).write_text(text)
    module = tmp_path / "module.py"
    module.write_text("VALUE = 'as written'\n")
    words = ("-c", f"# {RUNS}\n{COMPILES}") if program == "-c" else (str(tmp_path / program),)
    (tmp_path / program).write_text(COMPILES)
    python(tmp_path, *words)
    assert python(tmp_path, "-c", "import module; print(module.VALUE)") == "as written"
    found = list((tmp_path / "kept").iterdir())
    assert len(found) == kept
    for each in found:  # bytecode that tells on itself when it is imported
        each.write_bytes(marshal.dumps(compile("VALUE = 'as kept'", "module.py", "exec")))
    python(tmp_path, *words)
    value = "as kept" if kept else "as written"
    assert python(tmp_path, "-c", "import module; print(module.VALUE)") == value
