"""A new virtual environment takes the place of another, with the shell programs and a real uv."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

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


def switch(venv: Path, kept: str) -> subprocess.CompletedProcess[str]:
    return run(program("pytorch/switch.sh", str(venv), kept, "", uses=USES))


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """An environment with a user's file in it, and a newer one beside it."""
    path = tmp_path / "venv"
    for folder, text in ((path, "old"), (tmp_path / "venv.new", "new")):
        folder.mkdir()
        (folder / "file").write_text(text)
    return path


KEPT = "old-20261122-120000"


def test_the_new_one_takes_the_place_and_the_old_one_is_kept_whole(venv: Path) -> None:
    done = switch(venv, f"{venv}.{KEPT}")
    assert (done.returncode, done.stderr) == (0, "")
    assert (venv / "file").read_text() == "new"
    assert Path(f"{venv}.{KEPT}/file").read_text() == "old"
    assert sorted(each.name for each in venv.parent.iterdir()) == ["venv", f"venv.{KEPT}"]


def test_what_has_the_old_ones_name_already_is_never_overwritten(venv: Path) -> None:
    Path(f"{venv}.{KEPT}").mkdir()
    done = switch(venv, f"{venv}.{KEPT}")
    assert (done.returncode, done.stderr) == (1, f"{venv}.{KEPT} is there already\n")
    assert (venv / "file").read_text() == "old"


def test_a_place_is_left_taken_by_a_switch_that_was_cut_off_or_made(venv: Path) -> None:
    assert place(venv).returncode == 0
    assert (venv / "file").read_text() == "old"
    venv.rename(f"{venv}.{KEPT}")
    assert place(venv).returncode == 0
    assert (venv / "file").read_text() == "new"
    venv.rename(f"{venv}.again")
    assert place(venv).returncode == 0
    assert list(venv.iterdir()) == []


@pytest.mark.parametrize(("keep", "left"), [(0, []), (1, ["3"]), (2, ["2", "3"]), (9, None)])
def test_the_newest_old_ones_are_kept_and_the_others_emptied(
    venv: Path, keep: int, left: list[str] | None
) -> None:
    for day in ("1", "2", "3"):
        folder = Path(f"{venv}.old-2026112{day}-120000/bin")
        folder.mkdir(parents=True)
        (folder / "python").write_text("x")
    mine = Path(f"{venv}.old-mine")  # not one of ours by its name
    mine.mkdir()
    (mine / "file").write_text("x")
    Path(f"{venv}.old-20261120-120000").symlink_to(mine)
    assert run(program("pytorch/kept.sh", str(venv), str(keep))).returncode == 0
    full = [day for day in "123" if any(Path(f"{venv}.old-2026112{day}-120000").iterdir())]
    assert full == (["1", "2", "3"] if left is None else left)
    assert (mine / "file").exists()
    assert (venv / "file").exists()
    # The next switch takes away what is empty, in root's directory.
    assert switch(venv, f"{venv}.old-20261124-120000").returncode == 0
    there = {each.name for each in venv.parent.iterdir()}
    assert {f"venv.old-2026112{day}-120000" for day in full} <= there
    assert not {f"venv.old-2026112{day}-120000" for day in set("123") - set(full)} & there


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_what_another_user_left_in_an_old_one_stays_and_is_said() -> None:
    """Somebody ran pip with sudo, or took their own rights away, before it was replaced."""
    nobody = pwd.getpwnam("nobody").pw_uid
    with TemporaryDirectory() as prefix:
        old = Path(prefix, "venv.old-20261121-120000")
        shut = old / "shut"
        (shut / "in").mkdir(parents=True)
        (shut / "in/file").write_text("x")
        for folder in (Path(prefix), old, shut, shut / "in"):
            os.chown(folder, nobody, nobody)
        shut.chmod(0)
        bound = program("pytorch/kept.sh", f"{prefix}/venv", "0")
        done = run(bound, nobody)
        assert (done.returncode, done.stdout, list(old.iterdir())) == (0, "", [])
        theirs = old / "numpy"
        theirs.mkdir(mode=0o700)
        (theirs / "file").write_text("x")
        done = run(bound, nobody)
        assert done.returncode == 0
        assert done.stdout == (
            f"{old} holds files of another user's, which stay; as root: rm -r -- '{old}'\n"
        )
        assert (theirs / "file").exists()
