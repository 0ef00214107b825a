"""What the probe tells of paths and texts, and of the locks of apt and dpkg."""

from __future__ import annotations

import fcntl
import getpass
import hashlib
import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from probing import Tree, tree_fixture, write  # noqa: F401

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import Entry


def look_at(tree: Tree, *paths: Path) -> list[Entry | Unknown]:
    """What stands at these paths."""
    names = tuple(str(path) for path in paths)
    layout = tree.look(entries=names).layout
    assert list(layout.entries) == list(names)  # type: ignore[arg-type]
    return [layout.entry(name) for name in names]


def test_each_kind_of_entry_is_told_as_what_it_is(tree: Tree) -> None:
    me = getpass.getuser()
    file = write(tree.prefix / "file", "content", 0o640)
    folder = tree.prefix / "folder"
    folder.mkdir()
    folder.chmod(0o2750)
    link = tree.prefix / "link"
    link.symlink_to("gone -> away")
    pipe = tree.prefix / "pipe"
    os.mkfifo(pipe, 0o600)
    digest = hashlib.sha256(b"content").hexdigest()
    assert look_at(tree, file, folder, link, pipe, file / "x", tree.prefix / "none") == [
        Entry(kind="file", mode="0640", owner=me, size=7, sha256=digest),
        Entry(kind="dir", mode="2750", owner=me),
        Entry(kind="link", mode="0777", owner=me, target="gone -> away"),
        Entry(kind="other", mode="0600", owner=me),
        Entry(kind="absent"),
        Entry(kind="absent"),
    ]


def test_large_files_have_no_digest_and_a_size(tree: Tree) -> None:
    at_limit, above = tree.prefix / "limit", tree.prefix / "above"
    for path, size in ((at_limit, 4 << 20), (above, (4 << 20) + 1)):
        with path.open("wb") as file:
            file.truncate(size)
    first, second = look_at(tree, at_limit, above)
    assert isinstance(first, Entry)
    assert first.sha256 == hashlib.sha256(bytes(4 << 20)).hexdigest()
    assert isinstance(second, Entry)
    assert (second.sha256, second.size) == (None, (4 << 20) + 1)


def test_what_is_no_file_has_no_text_and_is_never_opened(tree: Tree) -> None:
    Path(tree.paths.env_file).mkdir(parents=True)
    Path(tree.paths.smoke).mkdir()
    Path(tree.paths.state).mkdir()
    os.mkfifo(tree.paths.stamp)  # to open it would be to wait for a writer
    Path(tree.paths.verdict).symlink_to("/nowhere")
    record = tree.look()
    assert record.layout.entry(tree.paths.env_file).kind == "dir"  # type: ignore[union-attr]
    assert record.smoke.stamp is None
    assert record.smoke.verdict == Unknown(
        f"{tree.paths.verdict} is a link to something that cannot be read"
    )


LOCK = "var/lib/dpkg/lock-frontend"


def test_the_holder_of_a_lock_is_named_and_it_is_not_contended(tree: Tree) -> None:
    pid = os.getpid()
    write(tree.root / f"proc/{pid}/comm", "apt-get\n")
    (tree.root / "proc/locks").unlink()
    (tree.root / "proc/locks").symlink_to("/proc/locks")
    with (tree.root / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # another kind of lock, which does not keep apt out
        assert tree.look().packages.lock_holder is None
        fcntl.lockf(file, fcntl.LOCK_EX)
        assert tree.look().packages.lock_holder == f"pid {pid} (apt-get)"


ROOTS: dict[str, object] = {"owner": ""}
"""What is asked where root works: then the system's own folders are written, too."""
DISK = "/dev/sda1 / ext4 rw 0 0\n"
# (mounts, what is asked, where it is (read-only, without programs))
MOUNTS: list[tuple[str, dict[str, object], tuple[str | None, str | None]]] = [
    (DISK, ROOTS, (None, None)),
    (DISK + "/dev/sda2 /var ext4 noatime,ro 0 0\n", ROOTS, ("/var", None)),
    ("/dev/sda1 / ext4 ro,errors=x 0 0\n/dev/sda2 {base} ext4 rw 0 0\n", ROOTS, ("/", None)),
    ("/dev/sda1 / ext4 ro,errors=x 0 0\n/dev/sda2 {base} ext4 rw 0 0\n", {}, (None, None)),
    # Of what is mounted twice in one place the later counts.
    ("rootfs / rootfs ro 0 0\n" + DISK, ROOTS, (None, None)),
    (DISK + "x {base}/build ext4 noexec 0 0\n", {"build": "{base}/build"}, (None, "{base}/build")),
    (DISK + "x {base}/builds ext4 noexec 0 0\n", {"build": "{base}/build"}, (None, None)),
    (DISK + "x {base}/build ext4 noexec 0 0\n", {}, (None, None)),
    (DISK + "x {base} ext4 rw 0 0\ntmp /tmp tmpfs noexec 0 0\n", {}, (None, "/tmp")),
]


@pytest.mark.parametrize(("mounts", "asked", "reported"), MOUNTS)
def test_how_what_is_written_to_is_mounted(
    tree: Tree, mounts: str, asked: dict[str, object], reported: tuple[str | None, ...]
) -> None:
    base = str(tree.base)
    write(tree.root / "proc/self/mounts", mounts.replace("{base}", base))
    given = {k: v.replace("{base}", base) if isinstance(v, str) else v for k, v in asked.items()}
    found = tree.look(**given).storage
    expected = tuple(each and each.replace("{base}", base) for each in reported)
    assert (found.readonly, found.noexec) == expected
