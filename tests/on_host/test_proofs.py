"""The proofs of stages cuda and libcuda, with a real compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.on_host.proving import last_line, prove, prove_cuda

VERSION = "580.95.05"


@dataclass
class Machine:
    """A tree with libraries, a compiler that looks there only, and dpkg's word on who owns what."""

    root: Path
    owned: set[Path] = field(default_factory=set)

    def __post_init__(self) -> None:
        for folder in ("bin", "lib"):
            (self.root / folder).mkdir()
        lib = self.root / "lib"
        self.program("cc", f'exec {shutil.which("gcc")} -L{lib} -Wl,-rpath,{lib} "$@"')

    def program(self, name: str, text: str) -> None:
        path = self.root / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def library(
        self, name: str, text: str = "*version = 13000; return 0;", soname: str = ""
    ) -> Path:
        """A library as the driver's, as far as the proof asks it."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        source = self.root / "library.c"
        source.write_text(f"int cuDriverGetVersion(int *version) {{ {text} }}\n")
        options = ["-shared", "-fPIC", f"-Wl,-soname,{soname or 'libcuda.so.1'}"]
        subprocess.run(["gcc", *options, "-o", str(path), str(source)], check=True)
        self.owned.add(path)
        return path

    def driver(self) -> Path:
        """The driver's library with both links, owned by its package."""
        real = self.library(f"lib/libcuda.so.{VERSION}")
        self.link("libcuda.so.1", real.name)
        self.link("libcuda.so", "libcuda.so.1")
        return real

    def link(self, name: str, target: str) -> None:
        (self.root / "lib" / name).unlink(missing_ok=True)
        (self.root / "lib" / name).symlink_to(target)

    def prove(
        self, *, owned: bool = True, compiler: str = "cc", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        known = " ".join(f"'{path}') echo 'libcuda1:amd64: {path}' ;;" for path in self.owned)
        self.program("dpkg-query", f"case $2 in {known} *) exit 1 ;; esac")
        asked = {"work": str(self.root / "work"), "version": VERSION, "owned": owned}
        path = f"{self.root}/bin:{os.environ['PATH']}"
        return prove("libcuda", {**asked, "compiler": compiler}, PATH=path, **environment)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_both_programs_load_the_drivers_library_whatever_a_person_set(machine: Machine) -> None:
    real = machine.driver()
    foreign = str(machine.library("opt/libcuda.so.1").parent)
    result = machine.prove(LD_LIBRARY_PATH=foreign, LIBRARY_PATH=foreign)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"programs load {real}\n"
    assert not (machine.root / "work").exists()


def test_a_library_of_no_package_is_no_proof_unless_the_driver_came_as_none(
    machine: Machine,
) -> None:
    real = machine.driver()
    machine.owned.clear()
    result = machine.prove()
    assert (result.returncode, last_line(result)) == (1, f"{real} belongs to no package")
    assert machine.prove(owned=False).returncode == 0


def _other_version(machine: Machine) -> None:
    machine.link("libcuda.so.1", machine.library("lib/libcuda.so.580.105.08").name)


def _in(folder: str) -> Callable[[Machine], None]:
    return lambda machine: machine.link(
        "libcuda.so.1", str(machine.library(f"{folder}/libcuda.so.{VERSION}"))
    )


def _no_soname(machine: Machine) -> None:
    (machine.root / "lib/libcuda.so.1").unlink()
    machine.link("libcuda.so", f"libcuda.so.{VERSION}")


def _error(machine: Machine) -> None:
    machine.library(f"lib/libcuda.so.{VERSION}", "return 34;")


def _another(machine: Machine) -> None:
    """The linker takes a library of another name, the loader the driver's."""
    machine.link("libcuda.so", machine.library("lib/libother.so", soname="libother.so").name)


SPOILS: dict[str, tuple[Callable[[Machine], object], str]] = {
    "no link": (
        lambda machine: (machine.root / "lib/libcuda.so").unlink(), "cc cannot link with -lcuda: ",
    ),
    "no soname": (_no_soname, "a program that is linked with -lcuda does not run: "),
    "another version": (
        _other_version,
        f"programs load ROOT/lib/libcuda.so.580.105.08, and the loaded driver is {VERSION}",
    ),
    "a stub": (
        _in("stubs"),
        f"programs load ROOT/stubs/libcuda.so.{VERSION}, which is of a CUDA toolkit",
    ),
    "compat": (
        _in("compat"),
        f"programs load ROOT/compat/libcuda.so.{VERSION}, which is of a CUDA toolkit",
    ),
    "it says an error": (
        _error,
        "a program that is linked with -lcuda does not run: cuDriverGetVersion returned error 34",
    ),
    "two libraries": (
        _another,
        "a program linked with -lcuda loads ROOT/lib/libother.so, one that opens libcuda.so.1",
    ),
    "nothing can be written": (
        lambda machine: (machine.root / "work").write_text(""),
        "[Errno 17] File exists: 'ROOT/work'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", SPOILS)
def test_whatever_is_wrong_is_said_in_the_last_line(machine: Machine, what: str) -> None:
    machine.driver()
    spoil, words = SPOILS[what]
    spoil(machine)
    result = machine.prove()
    assert result.returncode == 1
    assert last_line(result).startswith(words.replace("ROOT", str(machine.root)))


def test_without_a_compiler_there_is_no_proof(machine: Machine) -> None:
    assert last_line(machine.prove(compiler="cc-99")) == "there is no compiler cc-99"


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ("printf 'no code' > \"$out\"", "nvcc made something else than GPU code for sm_120"),
        (":", "[Errno 2] No such file or directory: 'ROOT/work/made'"),
        ("exit 2", "nvcc cannot make code for sm_120: it printed nothing"),
        ("echo one; echo an error; echo two; exit 2", "nvcc cannot make code for sm_120: an error"),
        ("echo one; echo two; exit 2", "nvcc cannot make code for sm_120: two"),
    ],
)
def test_an_nvcc_that_ends_well_is_not_believed(tmp_path: Path, made: str, words: str) -> None:
    nvcc = tmp_path / "toolkit/bin/nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(
        '#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done\n' + made + "\n"
    )
    nvcc.chmod(0o755)
    result = prove_cuda(tmp_path, 120, compiler="sh", toolkit=str(tmp_path / "toolkit"))
    reported = words.replace("ROOT", str(tmp_path))
    assert (result.returncode, last_line(result)) == (1, reported)
