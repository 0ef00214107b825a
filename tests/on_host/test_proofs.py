"""The proofs of stages cuda and libcuda, with a real compiler, in every shell a host may have."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pyinfra_gpu.on_host import proofs
from tests.on_host.proving import SHELLS, last_line, prove_cuda

VERSION = "580.95.05"


@dataclass
class Machine:
    """A tree with libraries, a compiler that looks there only, and dpkg's word on who owns what."""

    root: Path
    shell: list[str]
    owned: set[Path] = field(default_factory=set)

    def __post_init__(self) -> None:
        for folder in ("bin", "lib", "tmp", "proofs"):
            (self.root / folder).mkdir()
        for name, content in proofs.programs("libcuda").items():
            (self.root / "proofs" / name).write_bytes(content)
        gcc = shutil.which("gcc")
        self.program("cc", f'exec {gcc} -L{self.lib} -Wl,-rpath,{self.lib} "$@"')

    @property
    def lib(self) -> Path:
        return self.root / "lib"

    @property
    def output(self) -> Path:
        return self.root / "proofs" / "libcuda.json"

    def program(self, name: str, text: str) -> None:
        path = self.root / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def library(self, place: Path, *, error: int = 0, symbol: str = "cuDriverGetVersion") -> Path:
        """A library as the driver's, as far as the proof asks it."""
        place.parent.mkdir(parents=True, exist_ok=True)
        source = self.root / "tmp" / "library.c"
        source.write_text(f"int {symbol}(int *version) {{ *version = 13000; return {error}; }}\n")
        command = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(place)]
        subprocess.run([*command, str(source)], check=True)
        return place

    def driver(self) -> Path:
        """The driver's library with both links, owned by its package."""
        real = self.library(self.lib / f"libcuda.so.{VERSION}")
        self.link("libcuda.so.1", real.name)
        self.link("libcuda.so", "libcuda.so.1")
        self.owned.add(real)
        return real

    def link(self, name: str, target: str) -> None:
        (self.lib / name).unlink(missing_ok=True)
        (self.lib / name).symlink_to(target)

    def prove(
        self,
        *,
        fingerprint: str = "f1",
        kind: str = "proof",
        owned: str = "1",
        compiler: str = "cc",
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        known = " ".join(f"'{path}') echo 'libcuda1:amd64: {path}' ;;" for path in self.owned)
        self.program("dpkg-query", f"case $2 in {known} *) exit 1 ;; esac")
        path = f"{self.root}/bin:{os.environ['PATH']}"
        script = str(self.root / "proofs" / "libcuda_proof.sh")
        arguments = [fingerprint, str(self.output), kind, VERSION, owned, compiler]
        return subprocess.run(
            [*self.shell, script, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": path, "TMPDIR": "/nowhere", **environment},
        )


@pytest.fixture(params=SHELLS)
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    return Machine(tmp_path, request.param)


def test_both_programs_load_the_drivers_library(machine: Machine) -> None:
    real = machine.driver()
    result = machine.prove(fingerprint='a"b\\c')
    assert result.returncode == 0, result.stderr
    assert last_line(result) == f"programs load {real} of libcuda1:amd64"
    assert json.loads(machine.output.read_text()) == {
        "schema_version": 1,
        "fingerprint": 'a"b\\c',
        "status": "pass",
        "kind": "proof",
        "library": str(real),
        "package": "libcuda1:amd64",
        "driver": VERSION,
    }
    left = [path.name for path in machine.output.parent.iterdir() if "json" in path.name]
    assert left == [machine.output.name]


def test_a_rehearsal_says_so_in_what_it_leaves(machine: Machine) -> None:
    machine.driver()
    assert machine.prove(kind="rehearsal").returncode == 0
    assert json.loads(machine.output.read_text())["kind"] == "rehearsal"


def test_a_library_of_no_package_is_no_proof_unless_the_driver_came_as_none(
    machine: Machine,
) -> None:
    real = machine.driver()
    machine.owned.clear()
    result = machine.prove()
    assert result.returncode == 1
    assert last_line(result) == f"{real} belongs to no package"
    assert not machine.output.exists()
    assert machine.prove(owned="0").returncode == 0
    assert json.loads(machine.output.read_text())["package"] == ""


def test_what_the_person_set_in_the_environment_proves_nothing(machine: Machine) -> None:
    machine.driver()
    foreign = machine.library(machine.root / "opt" / "libcuda.so.1").parent
    assert machine.prove(LD_LIBRARY_PATH=str(foreign), LIBRARY_PATH=str(foreign)).returncode == 0


def spoil_missing_link(machine: Machine) -> str:
    (machine.lib / "libcuda.so").unlink()
    return "cc cannot link with -lcuda: "


def spoil_missing_soname(machine: Machine) -> str:
    (machine.lib / "libcuda.so.1").unlink()
    machine.link("libcuda.so", f"libcuda.so.{VERSION}")
    return "a program that is linked with -lcuda does not run: "


def spoil_other_version(machine: Machine) -> str:
    real = machine.library(machine.lib / "libcuda.so.580.105.08")
    machine.link("libcuda.so.1", real.name)
    machine.owned.add(real)
    return f"programs load {real}, and the loaded driver is {VERSION}"


def spoil_stub(machine: Machine) -> str:
    stub = machine.library(machine.root / "stubs" / f"libcuda.so.{VERSION}")
    machine.link("libcuda.so.1", str(stub))
    machine.owned.add(stub)
    return f"{stub} is the toolkit's stub: it is for linking only"


def spoil_compat(machine: Machine) -> str:
    compat = machine.library(machine.root / "compat" / f"libcuda.so.{VERSION}")
    machine.link("libcuda.so.1", str(compat))
    machine.owned.add(compat)
    return f"{compat} is of a CUDA compatibility package, not of the driver"


def spoil_error(machine: Machine) -> str:
    machine.library(machine.lib / f"libcuda.so.{VERSION}", error=34)
    return "a program that is linked with -lcuda does not run: cuDriverGetVersion returned error 34"


def spoil_symbol(machine: Machine) -> str:
    machine.library(machine.lib / f"libcuda.so.{VERSION}", symbol="other")
    return "cc cannot link with -lcuda: "


def spoil_different(machine: Machine) -> str:
    """The linker takes a library of another name, the loader the driver's."""
    other = machine.lib / "libother.so"
    source = machine.root / "tmp" / "other.c"
    source.write_text("int cuDriverGetVersion(int *version) { *version = 1; return 0; }\n")
    command = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libother.so", "-o", str(other)]
    subprocess.run([*command, str(source)], check=True)
    machine.link("libcuda.so", other.name)
    return f"a program linked with -lcuda loads {other}, one that opens libcuda.so.1 loads "


def spoil_output(machine: Machine) -> str:
    machine.output.with_name("libcuda.json.new").mkdir()
    return f"{machine.output}.new cannot be written"


SPOILS = [
    spoil_missing_link,
    spoil_missing_soname,
    spoil_other_version,
    spoil_stub,
    spoil_compat,
    spoil_error,
    spoil_symbol,
    spoil_different,
    spoil_output,
]


@pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__)
def test_whatever_is_wrong_is_said_in_the_last_line_and_nothing_is_written(
    machine: Machine, spoil: object
) -> None:
    machine.driver()
    expected = spoil(machine)  # type: ignore[operator]
    result = machine.prove()
    assert result.returncode == 1
    assert last_line(result).startswith(expected)
    assert not machine.output.exists()


def test_without_a_compiler_there_is_no_proof(machine: Machine) -> None:
    result = machine.prove(compiler="cc-99")
    assert result.returncode == 1
    assert last_line(result) == "there is no compiler cc-99"


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ("printf 'no code' > \"$out\"", "nvcc made something else than GPU code for sm_120"),
        ("exit 2", "nvcc cannot make code for sm_120: it printed nothing"),
        ("echo one; echo an error; echo two; exit 2", "nvcc cannot make code for sm_120: an error"),
        ("echo one; echo two; exit 2", "nvcc cannot make code for sm_120: two"),
        (":", "nvcc made something else than GPU code for sm_120"),
    ],
)
@pytest.mark.parametrize("shell", SHELLS)
def test_an_nvcc_that_ends_well_is_not_believed(
    shell: list[str], tmp_path: Path, made: str, words: str
) -> None:
    nvcc = tmp_path / "toolkit" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(
        '#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done\n' + made + "\n"
    )
    nvcc.chmod(0o755)
    result = prove_cuda(shell, tmp_path, "120", compiler="sh", toolkit=tmp_path / "toolkit")
    assert result.returncode == 1
    assert last_line(result).startswith(words)
    assert not (tmp_path / "cuda.json").exists()


def test_a_proof_is_of_its_programs() -> None:
    assert proofs.digest("cuda") != proofs.digest("libcuda")
    assert set(proofs.programs("libcuda")) == {"libcuda_proof.sh", "linked.c", "dlopened.c"}
    assert set(proofs.programs("cuda")) == {"cuda_proof.sh", "kernel.cu"}
