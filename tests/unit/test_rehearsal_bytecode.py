"""What a throwaway host compiles of Python it compiles once, and the hosts after it not at all."""

from __future__ import annotations

import ensurepip
import hashlib
import inspect
import marshal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from pyinfra_gpu_rehearsal import base_image

# As uv's own does: the paths of files come in, and are compiled one after another.
PROGRAM = """
import compileall, sys
for path in sys.stdin:
    assert compileall.compile_file(path.strip(), force=True, quiet=2)
"""


@dataclass(frozen=True)
class Host:
    """A folder with a Python that starts as a host's does, and a module."""

    folder: Path

    @property
    def kept(self) -> list[Path]:
        """What is kept for other hosts."""
        return sorted((self.folder / "kept").iterdir())

    @property
    def module(self) -> Path:
        """The module."""
        return self.folder / "module.py"

    def compile(self, program: str = "pip_compileall.py") -> None:
        """Compile the module by the program that is called so."""
        script = self.folder / program
        script.write_text(PROGRAM)
        self._python(str(script), stdin=f"{self.module}\n")

    def compile_as_ensurepip(self) -> None:
        """Compile the module by a text of Python, as pip does where ensurepip runs it."""
        runs = 'run_module("pip"'
        assert runs in inspect.getsource(ensurepip._run_pip)  # type: ignore[attr-defined]
        self._python("-c", f"# {runs}{PROGRAM}", stdin=f"{self.module}\n")

    def imported(self) -> str:
        """What the module's VALUE is for who imports it."""
        return self._python("-c", "import module; print(module.VALUE)", stdin="").strip()

    def _python(self, *arguments: str, stdin: str) -> str:
        done = subprocess.run(
            [sys.executable, "-B", *arguments],
            cwd=self.folder,
            env={"PYTHONPATH": str(self.folder)},
            input=stdin,
            text=True,
            capture_output=True,
            check=True,
        )
        assert done.stderr == ""
        return done.stdout


@pytest.fixture
def host(tmp_path: Path) -> Host:
    (tmp_path / "kept").mkdir()
    texts = [path.read_text() for path in base_image.PYTHON]
    assert "/run/rehearsal-bytecode" in texts[1]
    for path, text in zip(base_image.PYTHON, texts, strict=True):
        (tmp_path / path.name).write_text(
            text.replace("/run/rehearsal-bytecode", str(tmp_path / "kept"))
        )
    (tmp_path / "module.py").write_text("VALUE = 'as written'\n")
    return Host(tmp_path)


def forged(host: Host) -> bytes:
    """Return bytecode that tells on itself when it is imported."""
    return marshal.dumps(compile("VALUE = 'as kept'", str(host.module), "exec"))


def test_what_was_compiled_is_kept_and_taken_again(host: Host) -> None:
    host.compile()
    (kept,) = host.kept
    assert host.imported() == "as written"
    code = forged(host)
    kept.write_bytes(hashlib.sha256(code).digest() + code)
    host.compile()
    assert host.imported() == "as kept"


def test_what_pip_compiles_for_ensurepip_is_kept_as_well(host: Host) -> None:
    host.compile_as_ensurepip()
    assert len(host.kept) == 1
    assert host.imported() == "as written"


def test_what_is_kept_damaged_is_compiled_and_kept_anew(host: Host) -> None:
    host.compile()
    (kept,) = host.kept
    whole = kept.read_bytes()
    for damaged in (b"", whole[:-1], bytes(32) + forged(host)):
        kept.write_bytes(damaged)
        host.compile()
        assert host.imported() == "as written"
        assert kept.read_bytes() == whole


def test_other_programs_compile_as_ever(host: Host) -> None:
    host.compile("compile_all.py")
    assert host.kept == []
    assert host.imported() == "as written"
