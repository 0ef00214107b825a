"""A file that is written on a host: whole or not at all, and never through a link."""

from __future__ import annotations

import base64
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import hostile
import pytest
from hostile import NOBODY, OWNER, Place

from pyinfra_gpu.engine.write import File, command, sent
from pyinfra_gpu.on_host import program

ROOT = os.geteuid() == 0
AS_ROOT = {"_sudo": True, "_sudo_user": None}
AS_USER = {"_sudo": False}


@pytest.fixture(name="place")
def place_fixture() -> Iterator[Place]:
    """A folder in which root alone can put anything."""
    if not ROOT:
        pytest.skip("only root has such a folder")
    with hostile.place() as made:
        yield made


def written(file: File, run_as: dict[str, object], text: str | None = None) -> str:
    """Write a file on this machine; return what was said against it."""
    done = subprocess.run(
        ["sh", "-c", command(file, run_as)],
        input=sent(file) if text is None else text,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert bool(done.returncode) == bool(done.stderr), done
    return done.stderr


def test_content_mode_and_owner_are_those_that_are_asked_for(place: Place) -> None:
    content = bytes(range(256)) * 400 + b"no last newline"
    path = place.base / "file"
    assert written(File(path=str(path), content=content, mode="0640", owner=OWNER), AS_ROOT) == ""
    there = path.stat()
    assert path.read_bytes() == content
    assert (stat.S_IMODE(there.st_mode), there.st_uid) == (0o640, NOBODY)
    assert sorted(each.name for each in place.base.iterdir() if each.name != "file") == [
        *("outside", "prefix", "trace"),
    ]


def test_a_link_is_replaced_and_a_folder_neither_replaced_nor_made(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("mine")
    (tmp_path / "file").symlink_to(tmp_path / "target")
    (tmp_path / "folder").mkdir()
    assert written(File(path=f"{tmp_path}/file", content=b""), AS_USER) == ""
    assert (tmp_path / "target").read_text() == "mine"
    assert (tmp_path / "file").lstat().st_size == 0
    large = b"x" * 500_000
    said = written(File(path=f"{tmp_path}/folder", content=large), AS_USER)
    assert "a directory stands there: move it away" in said
    assert list((tmp_path / "folder").iterdir()) == []
    assert "none" in written(File(path=f"{tmp_path}/none/file", content=b""), AS_USER)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("text", ["", "YWI=\n", "not base64!"])
def test_input_that_was_cut_off_is_not_written(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    assert "did not arrive" in written(File(path=str(path), content=b"abc"), AS_USER, text)
    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("where", ["prefix", "prefix/below", "link"])
def test_root_does_not_write_where_somebody_else_can_change_the_way(
    place: Place, where: str
) -> None:
    (place.prefix / "below").mkdir()
    (place.base / "link").symlink_to(place.prefix / "below")
    file = File(path=str(place.base / where / "file"), content=b"x")
    assert written(file, AS_ROOT) == ""
    os.chown(place.prefix, NOBODY, NOBODY)
    assert f"somebody else than root can change {place.prefix}" in written(file, AS_ROOT)
    os.chown(place.prefix, 0, 0)
    place.prefix.chmod(0o1777)
    assert f"somebody else than root can change {place.prefix}" in written(file, AS_ROOT)


def test_root_follows_a_link_of_roots_own_and_no_other(place: Place) -> None:
    (place.base / "link").symlink_to("outside/../outside")
    file = File(path=str(place.base / "link/file"), content=b"x")
    assert written(file, AS_ROOT) == ""
    assert (place.outside / "file").exists()
    os.chown(place.base / "link", NOBODY, NOBODY, follow_symlinks=False)
    assert f"can change {place.base}/link" in written(file, AS_ROOT)
    (place.base / "one").symlink_to("two")
    (place.base / "two").symlink_to("one")
    circle = File(path=str(place.base / "one/file"), content=b"x")
    assert "somebody else than root can change" in written(circle, AS_ROOT)


def test_the_content_is_on_no_command_line_and_in_no_repr() -> None:
    file = File(path="/x/y.env", content=b"canary", mode="0600")
    reported = f"{file!r} {command(file, AS_ROOT)}"
    assert "canary" not in reported
    assert base64.b64encode(b"canary").decode() not in reported


@pytest.mark.parametrize(
    ("text", "kept"), [("# ours\nA=1\n", False), ("A=1\n", True), (None, True)]
)
def test_what_is_not_ours_is_kept_and_what_is_ours_is_not(
    tmp_path: Path, text: str | None, kept: bool
) -> None:
    """None: a link, which is kept as it is, whatever it leads to."""
    path = tmp_path / "file"
    if text is None:
        (tmp_path / "target").write_text("# ours\n")
        path.symlink_to("target")
    else:
        path.write_text(text)
    uses = ("files/root_only.sh", "files/set_aside.sh")
    done = subprocess.run(
        ["sh", "-c", program("files/keep.sh", str(path), "", "# ours", uses=uses)],
        capture_output=True,
        text=True,
    )
    aside = f"{path}.before-pyinfra-gpu"
    said = f"pyinfra-gpu-note: what stood at {path} is kept as {aside}\n"
    assert (done.returncode, done.stdout) == (0, said if kept else "")
    assert path.exists() == (not kept)
