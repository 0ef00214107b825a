"""A built wheel on its way: in pieces, gone on with where it was cut off, whole or not at all."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyinfra_gpu.engine import wheels
from pyinfra_gpu.engine.ask import Answer
from pyinfra_gpu.facts.pytorch_build import Manifest

CONTENT = bytes(range(256)) * 40
FILE = "torch-2.14.1+cu130-cp312-cp312-linux_x86_64.whl"


def manifest(fingerprint: str = "ab" * 32, content: bytes = CONTENT) -> Manifest:
    return Manifest(
        fingerprint=fingerprint, ingredients={}, file=FILE, size=len(content), built="b",
        sha256=hashlib.sha256(content).hexdigest(), stand_in=False, observed={}, proven={},
    )  # fmt: skip


HOST: Any = SimpleNamespace(name="ws1")
NOBODY: dict[str, Any] = {}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Let this machine be the host; return the commands that it was given."""
    commands: list[str] = []

    def ask(state: Any, host: Any, command: str, run_as: Any, **more: Any) -> Answer:
        commands.append(command)
        done = subprocess.run(
            command, shell=True, input=more.get("_stdin"), capture_output=True, text=True
        )
        lines = tuple(f"{done.stdout}{done.stderr}".splitlines())
        return Answer(ok=done.returncode == 0, stdout=tuple(done.stdout.splitlines()), lines=lines)

    monkeypatch.setattr(wheels, "ask", ask)
    monkeypatch.setattr(wheels, "_PIECE", 3000)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return commands


@pytest.fixture
def build(tmp_path: Path) -> Path:
    (tmp_path / "build/wheels").mkdir(parents=True)
    (tmp_path / "build/wheels" / FILE).write_bytes(CONTENT)
    return tmp_path / "build"


def fetched(build: Path) -> wheels.Cached:
    return wheels.fetch(HOST, HOST, NOBODY, str(build), manifest())


def test_a_wheel_comes_in_pieces_and_is_in_the_cache_then(asked: list[str], build: Path) -> None:
    assert wheels.cached(manifest().fingerprint) is None
    made = fetched(build)
    assert made.path.read_bytes() == CONTENT
    assert len(asked) == 4
    assert wheels.cached(manifest().fingerprint) == made
    assert fetched(build) == made
    assert len(asked) == 4  # it was not sent again


def test_what_came_before_a_cut_is_not_sent_again(asked: list[str], build: Path) -> None:
    place = wheels.folder() / manifest().fingerprint
    place.mkdir(parents=True)
    (place / f"{FILE}.part").write_bytes(CONTENT[:6500])
    assert fetched(build).path.read_bytes() == CONTENT
    assert len(asked) == 2


def damage_length(path: Path) -> None:
    path.write_bytes(CONTENT[:-1])


def damage_content(path: Path) -> None:
    path.write_bytes(b"x" + CONTENT[1:])


@pytest.mark.parametrize("damage", [damage_length, damage_content])
def test_another_file_than_was_proven_is_refused_and_leaves_nothing(
    asked: list[str], build: Path, damage: Callable[[Path], None]
) -> None:
    damage(build / "wheels" / FILE)
    with pytest.raises(wheels.TransferError, match=r"another (wheel|digest)"):
        fetched(build)
    assert [*(wheels.folder() / manifest().fingerprint).iterdir()] == []


def test_a_wheel_that_was_damaged_in_the_cache_is_not_believed(
    asked: list[str], build: Path
) -> None:
    damage_content(fetched(build).path)
    assert wheels.cached(manifest().fingerprint) is None


def sent(there: Path, made: wheels.Cached) -> None:
    """Bring a wheel of the cache to a build's folder of this machine."""
    folder, sha256 = str(there / "wheels"), made.manifest.sha256
    wheels.send(HOST, HOST, NOBODY, folder, made.path, sha256, lambda line: None)


def test_a_wheel_goes_to_another_host_and_goes_on_where_it_was_cut_off(
    asked: list[str], build: Path, tmp_path: Path
) -> None:
    made, there = fetched(build), tmp_path / "there"
    (there / "wheels").mkdir(parents=True)
    (there / "wheels" / f"{FILE}.part").write_bytes(CONTENT[:9000])
    (there / "wheels/torch-2.13.0-old.whl").write_bytes(b"")
    asked.clear()
    sent(there, made)
    assert (there / "wheels" / FILE).read_bytes() == CONTENT
    assert [each.name for each in (there / "wheels").iterdir()] == [FILE]
    assert len([each for each in asked if "receive.sh" in each]) == 1


def test_a_part_that_is_not_the_beginning_is_dropped_with_a_sentence(
    asked: list[str], build: Path, tmp_path: Path
) -> None:
    made, there = fetched(build), tmp_path / "there"
    (there / "wheels").mkdir(parents=True)
    (there / "wheels" / f"{FILE}.part").write_bytes(b"x" * 9000)
    with pytest.raises(wheels.TransferError, match="another digest than it was sent with"):
        sent(there, made)
    sent(there, made)
    assert (there / "wheels" / FILE).read_bytes() == CONTENT


def test_the_cache_keeps_the_newest_builds_alone(asked: list[str], build: Path) -> None:
    for number in range(6):
        place = wheels.folder() / f"{number:064d}"
        place.mkdir(parents=True)
        os.utime(place, (number, number))
    fetched(build)
    left = sorted(each.name for each in wheels.folder().iterdir())
    assert left == [*(f"{number:064d}" for number in (3, 4, 5)), manifest().fingerprint]
