"""A new virtual environment takes the place of another, with the shell programs and a real uv."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pyinfra_gpu.on_host import program

USES = ("files/root_only.sh",)


def run(command: str, user: int | None = None) -> subprocess.CompletedProcess[str]:
    known = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    return subprocess.run(
        ["sh", "-c", command],
        env=known,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        user=user,
    )


def place(venv: Path) -> subprocess.CompletedProcess[str]:
    return run(program("pytorch/place.sh", str(venv), "", uses=USES))


def switch(venv: Path) -> subprocess.CompletedProcess[str]:
    return run(program("pytorch/switch.sh", str(venv), "", uses=USES))


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """An environment with a user's file in it, and a newer one beside it."""
    path = tmp_path / "venv"
    for folder, text in ((path, "old"), (tmp_path / "venv.new", "new")):
        folder.mkdir()
        (folder / "file").write_text(text)
    return path


@pytest.mark.parametrize("left", ["nothing", "an empty one", "what its owner could not remove"])
def test_the_new_one_takes_the_place_and_the_old_one_is_kept_whole(venv: Path, left: str) -> None:
    old = venv.with_name("venv.old")
    if left != "nothing":
        old.mkdir()
    if left.startswith("what"):
        (old / "other").write_text("x")
    done = switch(venv)
    assert (done.returncode, done.stderr) == (0, "")
    assert (venv / "file").read_text() == "new"
    assert (old / "file").read_text() == "old"
    others = [each.name for each in venv.parent.iterdir() if each.name not in ("venv", "venv.old")]
    assert others == ["venv.old.~1~"] * left.startswith("what")


def test_a_place_is_left_taken_by_a_switch_that_was_cut_off_or_made(venv: Path) -> None:
    assert place(venv).returncode == 0
    assert (venv / "file").read_text() == "old"
    venv.rename(f"{venv}.old")
    assert place(venv).returncode == 0
    assert (venv / "file").read_text() == "new"
    venv.rename(f"{venv}.again")
    assert place(venv).returncode == 0
    assert list(venv.iterdir()) == []
