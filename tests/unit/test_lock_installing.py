"""Installing by a lock with a real uv and a real pip: small wheels, and their digests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from locks import locked, written
from wheels import sha256, wheel

from pyinfra_gpu.compatibility import resolve
from pyinfra_gpu.diagnosis.command import explain_lines
from pyinfra_gpu.engine.torch_install import installing_mark, locked_install
from pyinfra_gpu.on_host import program
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.spec.lock import Lock

VERSION = "2.13.0+cpu"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def uv() -> str:
    """The uv that is locked for the tests."""
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    found = shutil.which("uv", path=beside)
    assert found, "the tests need uv: `make check` installs it"
    return found


@dataclass(frozen=True, kw_only=True)
class Place:
    """A prefix on this machine, with an environment in it, and a folder of wheels beside it."""

    spec: HostSpec
    wheels: Path

    @property
    def site(self) -> Path:
        return Path(self.spec.paths.venv, "lib", f"python{PYTHON}", "site-packages")

    @property
    def mark(self) -> Path:
        return Path(installing_mark(self.spec))

    def lock(self, **digests: str) -> Lock:
        """The lock of what is in the folder, with other digests where a test says so."""
        packages = []
        for path in self.wheels.glob("*-none-any.whl"):
            name, version = path.name.split("-")[:2]
            packages.append(locked(name, version, digests.get(name, sha256(path))))
        return written(self.wheels.parent, *packages, platform=f"{PYTHON}-x86_64")

    def sends(self, lock: Lock) -> None:
        """Do what the operation does before its commands."""
        Path(f"{self.spec.paths.torch_lock}.new").write_text(lock.requirements)

    def installs(self, *, there: bool = False) -> subprocess.CompletedProcess[str]:
        """Run the command that installs as the operation has it run."""
        return ran(locked_install(self.spec, there=there))

    def files(self) -> dict[str, tuple[int, int]]:
        """Each file of the environment with its inode and time: what shows any change."""
        every = [each for each in self.site.rglob("*") if each.is_file()]
        stats = {str(each): each.stat() for each in every}
        return {path: (each.st_ino, each.st_mtime_ns) for path, each in stats.items()}


def ran(command: str, path: str = "") -> subprocess.CompletedProcess[str]:
    known = {"PATH": f"{path}:{os.environ['PATH']}", "HOME": "/nonexistent"}
    return subprocess.run(
        ["sh", "-c", command], env=known, capture_output=True, text=True, check=False, timeout=300
    )


def declared(prefix: Path, **sources: str) -> HostSpec:
    data = {"stack": "cpu-torch2.13", "privilege": "none", "prefix": str(prefix), **sources}
    return resolve(data, "h")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    prefix, wheels = tmp_path / "prefix", tmp_path / "wheels"
    spec = declared(prefix, pytorch_wheels=str(wheels))
    for folder in (spec.paths.cache, f"{spec.paths.tools}/bin"):
        Path(folder).mkdir(parents=True)
    Path(spec.paths.uv).symlink_to(uv())
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", spec.paths.venv], check=True)
    wheel(wheels, "torch", VERSION, requires="tiny==1.0")
    wheel(wheels, "tiny", "1.0")
    return Place(spec=spec, wheels=wheels)


def installed(place: Place) -> None:
    """Install by the lock."""
    place.sends(place.lock())
    done = place.installs()
    assert done.returncode == 0, done.stderr
    assert {"torch", "tiny"} <= {each.name for each in place.site.iterdir()}
    assert list(place.site.glob("tiny/__pycache__/*.pyc"))
    assert Path(place.spec.paths.torch_lock).read_text() == place.lock().requirements
    assert not place.mark.exists()


def test_a_wrong_digest_is_refused_and_leaves_the_environment_as_it_was(place: Place) -> None:
    installed(place)
    before = place.files()
    place.sends(place.lock(tiny="0" * 64))
    refused = place.installs(there=True)
    assert refused.returncode != 0
    assert place.files() == before
    assert not place.mark.exists()
    place.mark.touch()  # of another run, which was cut off
    assert place.installs(there=True).returncode != 0
    assert place.mark.exists()
    sentence = explain_lines(refused.stderr.splitlines()) or ""
    assert sentence.startswith("A downloaded package is not the one the lock file names")
    assert "`tiny==" in sentence
    assert "uv cache clean" in sentence


def test_what_was_installed_without_its_digest_having_been_asked_is_installed_anew(
    place: Place,
) -> None:
    wheel(place.wheels, "tiny", "1.0", text="somebody else's")
    installed(place)
    right = wheel(place.wheels, "tiny", "1.0", text="the right one")
    place.sends(place.lock(tiny=sha256(right)))
    assert place.installs(there=True).returncode == 0
    assert "the right one" in (place.site / "tiny" / "__init__.py").read_text()


def test_root_takes_uv_from_no_folder_that_somebody_else_can_change(place: Place) -> None:
    place.wheels.chmod(0o777)
    arguments = ("/nonexistent/tools", "uv==9.9.9", "1", str(place.wheels), "--no-index")
    uses = ("files/root_only.sh",)
    done = ran(program("pytorch/installer.sh", *arguments, uses=uses))
    assert done.returncode == 1
    assert done.stderr.startswith("somebody else than root can change /")


def test_uv_is_installed_by_its_digest(place: Place) -> None:
    tools = Path(place.spec.paths.tools).with_name("own-tools")
    digest = sha256(wheel(place.wheels, "uv", "9.9.9", text="ours"))
    options = (str(place.wheels), "--no-index", "--find-links", str(place.wheels))
    for asked, ok in (("0" * 64, False), (digest, True), (digest, True)):
        arguments = (str(tools), f"uv==9.9.9 --hash=sha256:{asked}", "", *options)
        done = ran(program("pytorch/installer.sh", *arguments, uses=("files/root_only.sh",)))
        assert (done.returncode == 0, (tools / "bin/uv").exists()) == (ok, ok), done.stderr
