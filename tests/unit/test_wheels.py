"""A built wheel on its way to the controller's cache and to other hosts: whole or not at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api import Config, Inventory, State
from pyinfra.api.connect import connect_all
from pyinfra.api.host import Host

from pyinfra_gpu.engine import wheels
from pyinfra_gpu.facts.pytorch_build import Wheel

CONTENT = bytes(range(256)) * 400
FILE = "torch-2.14.1+cu130-cp312-cp312-linux_x86_64.whl"
NOBODY: dict[str, Any] = {"_sudo": False}


def manifest(fingerprint: str = "ab" * 32, content: bytes = CONTENT) -> Wheel:
    return Wheel(
        fingerprint=fingerprint, file=FILE, size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )  # fmt: skip


def this_machine() -> Host:
    """This machine as the host of a run."""
    state = State(Inventory((["@local"], {})), Config())
    connect_all(state)
    return state.inventory.get_host("@local")


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def build(tmp_path: Path) -> Path:
    (tmp_path / "build/wheels").mkdir(parents=True)
    (tmp_path / "build/wheels" / FILE).write_bytes(CONTENT)
    return tmp_path / "build"


def fetched(build: Path) -> Path:
    host = this_machine()
    (path,) = wheels.fetch(host.state, host, NOBODY, str(build), manifest())
    return path


def sent(folder: Path, wheel: Path, sha256: str) -> None:
    host = this_machine()
    wheels.send(host.state, host, NOBODY, str(folder), wheel, sha256)


def left() -> list[str]:
    """Return what lies in the cache."""
    return sorted(each.name for each in wheels.folder().rglob("*") if each.is_file())


def test_a_wheel_is_in_the_cache_then_and_is_not_fetched_again(build: Path) -> None:
    assert wheels.cached(manifest().fingerprint) is None
    assert fetched(build).read_bytes() == CONTENT
    assert left() == ["kept.json", FILE]
    (build / "wheels" / FILE).unlink()
    assert wheels.cached(manifest().fingerprint) == {fetched(build): manifest().sha256}


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: path.write_bytes(CONTENT[:-1]),
    "changed": lambda path: path.write_bytes(b"x" + CONTENT[1:]),
    "endless": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
    "missing": lambda path: path.unlink(),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_another_file_than_was_proven_is_refused_and_leaves_nothing(what: str, build: Path) -> None:
    DAMAGES[what](build / "wheels" / FILE)
    with pytest.raises(OSError, match="is not the one that was proven there"):
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
    sent(there, fetched(build), manifest().sha256)
    assert (there / FILE).read_bytes() == CONTENT
    assert [each.name for each in there.iterdir()] == [FILE]
    with pytest.raises(OSError, match="another digest than it was sent with"):
        sent(there, fetched(build), "0" * 64)
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
