"""A built wheel on its way to the controller's cache and to other hosts: whole or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.api.command import StringCommand

from pyinfra_gpu.engine import wheels
from pyinfra_gpu.engine.ask import Answer
from pyinfra_gpu.facts.pytorch_build import Manifest

CONTENT = bytes(range(256)) * 400
FILE = "torch-2.14.1+cu130-cp312-cp312-linux_x86_64.whl"
NOBODY: dict[str, Any] = {}
STAGED: list[Path] = []


def manifest(fingerprint: str = "ab" * 32, content: bytes = CONTENT) -> Manifest:
    return Manifest(
        fingerprint=fingerprint, ingredients={}, file=FILE, size=len(content), built="b",
        sha256=hashlib.sha256(content).hexdigest(), stand_in=False, observed={}, proven={},
    )  # fmt: skip


def get_file(path: str, file: Any, **more: Any) -> bool:
    file.seek(0)
    with Path(path).open("rb") as there:
        shutil.copyfileobj(there, file, 1000)
    return True


HOST: Any = SimpleNamespace(
    name="ws1", get_file=get_file, put_file=lambda here, there, **more: shutil.copy(here, there)
)


def be_the_host(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let this machine be the host that wheels go to; return the commands that it is given."""
    commands: list[str] = []

    def ask(state: Any, host: Any, command: Any, run_as: Any, **more: Any) -> Answer:
        commands.append(str(command))
        done = subprocess.run(commands[-1], shell=True, capture_output=True, text=True)
        lines = tuple(f"{done.stdout}{done.stderr}".splitlines())
        STAGED.extend(Path(each) for each in lines if each.startswith("/var/tmp/"))
        return Answer(ok=done.returncode == 0, stdout=tuple(done.stdout.splitlines()), lines=lines)

    monkeypatch.setattr(wheels, "ask", ask)
    monkeypatch.setattr(wheels, "guard", lambda host: None)
    monkeypatch.setattr(wheels, "as_user", lambda state, host, text, run_as: StringCommand(text))
    return commands


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return be_the_host(monkeypatch)


@pytest.fixture
def build(tmp_path: Path) -> Path:
    (tmp_path / "build/wheels").mkdir(parents=True)
    (tmp_path / "build/wheels" / FILE).write_bytes(CONTENT)
    return tmp_path / "build"


def fetched(build: Path) -> Path:
    return wheels.fetch(HOST, HOST, NOBODY, str(build), manifest())[0]


def left() -> list[str]:
    """Return what lies in the cache, and on the host beside the build."""
    there = [each for each in STAGED if each.exists()]
    return sorted(each.name for each in (*wheels.folder().glob("*/*"), *there))


def test_a_wheel_is_in_the_cache_then_and_is_not_fetched_again(
    asked: list[str], build: Path
) -> None:
    assert wheels.cached(manifest().fingerprint) is None
    assert fetched(build).read_bytes() == CONTENT
    assert left() == [FILE, "wheel.json"]
    asked.clear()
    assert wheels.cached(manifest().fingerprint) == (fetched(build), manifest())
    assert asked == []


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: path.write_bytes(CONTENT[:-1]),
    "changed": lambda path: path.write_bytes(b"x" + CONTENT[1:]),
    "endless": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
    "missing": lambda path: path.unlink(),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_another_file_than_was_proven_is_refused_and_leaves_nothing(what: str, build: Path) -> None:
    DAMAGES[what](build / "wheels" / FILE)
    with pytest.raises(wheels.TransferError, match=r"another wheel|longer than|No such file"):
        fetched(build)
    assert left() == []


def test_a_wheel_that_was_damaged_in_the_cache_is_fetched_again(build: Path) -> None:
    DAMAGES["changed"](fetched(build))
    assert wheels.cached(manifest().fingerprint) is None
    assert fetched(build).read_bytes() == CONTENT


def test_a_wheel_goes_to_another_host_in_the_place_of_others(build: Path, tmp_path: Path) -> None:
    there = tmp_path / "there/wheels"
    there.mkdir(parents=True)
    (there / ".part").write_bytes(b"what a cut left")
    (there / "torch-2.13.0-old.whl").write_bytes(b"")
    wheels.send(HOST, HOST, NOBODY, str(there), fetched(build), manifest().sha256)
    assert (there / FILE).read_bytes() == CONTENT
    assert [each.name for each in there.iterdir()] == [FILE]
    with pytest.raises(wheels.TransferError, match="another digest than it was sent with"):
        wheels.send(HOST, HOST, NOBODY, str(there), fetched(build), "0" * 64)
    assert (there / FILE).read_bytes() == CONTENT
    assert [each.name for each in there.iterdir()] == [FILE]


def test_the_cache_keeps_the_newest_builds_alone(build: Path) -> None:
    for number in range(6):
        place = wheels.folder() / f"{number:064d}"
        place.mkdir(parents=True)
        os.utime(place, (number, number))
    fetched(build)
    kept = sorted(each.name for each in wheels.folder().iterdir())
    assert kept == [*(f"{number:064d}" for number in (3, 4, 5)), manifest().fingerprint]


def test_a_host_without_sftp_is_one_sentence(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object, **more: object) -> bool:
        raise RuntimeError("Unable to establish SFTP connection")

    monkeypatch.setattr(HOST, "get_file", refuse)
    with pytest.raises(wheels.TransferError, match=r"\(SFTP\) failed: .*Unable to establish"):
        fetched(build)
    assert left() == []
