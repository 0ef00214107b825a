"""A prefix on this very machine, whose owner is hostile: for tests that run as root."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyinfra_gpu import on_host, spec
from pyinfra_gpu.facts.parse import parse
from pyinfra_gpu.facts.probe import asked_by
from pyinfra_gpu.facts.record import Record

NOBODY = 65534
OWNER = pwd.getpwuid(NOBODY).pw_name
SECRET = "root:$6$canary-that-nobody-may-read"
ROOTS = ("", "tools", "tools/bin", "bin", "env", "smoke", "proofs")
OWNERS = ("venv", "venv/bin", "cache", "training", "training/training", "state")
PROGRAMS = ("tools/bin/uv", "venv/bin/python", "bin/torchrun")
FILES = ("env/training.env", "smoke/smoke_test.pyz", "smoke/stamp.json", "proofs/cuda.json")
THEIRS = ("state/verdict.json", "venv/.pyinfra-gpu-training.json", "training/training/train.py")


@dataclass
class Place:
    """A folder in which root alone can put anything, with a prefix and what must not change."""

    base: Path

    @property
    def prefix(self) -> Path:
        """Where the prefix is."""
        return self.base / "prefix"

    @property
    def outside(self) -> Path:
        """A folder of root's that nothing may change, with a file that nobody else may read."""
        return self.base / "outside"

    @property
    def trace(self) -> Path:
        """Where planted programs write as whom they run."""
        return self.base / "trace"

    def spec(self) -> spec.HostSpec:
        """What is declared of this host."""
        return spec.resolve(
            {"stack": "cpu-torch2.13", "prefix": str(self.prefix), "owner": OWNER}, "here"
        )

    def furnish(self, *, given_away: bool) -> None:
        """Make the prefix as a deploy leaves it.

        + given_away: and as somebody left it who gave all of it to the owner
        """
        for name in (*ROOTS, *OWNERS):
            (self.prefix / name).mkdir(exist_ok=True)
        for name in (*FILES, *THEIRS):
            (self.prefix / name).write_text("{}\n")
        for name in PROGRAMS:
            self.plant(self.prefix / name)
        (self.prefix / ".lock").touch(0o640)
        os.chown(self.prefix / ".lock", 0, NOBODY)
        given = [*OWNERS, *THEIRS, "venv/bin/python"]
        if given_away:
            given = [str(path.relative_to(self.prefix)) for path in self.prefix.rglob("*")] + [""]
        for name in given:
            os.chown(self.prefix / name, NOBODY, NOBODY, follow_symlinks=False)

    def plant(self, path: Path) -> None:
        """Put a program there that tells as whom it runs."""
        path.write_text(f'#!/bin/sh\nid -u >"$(mktemp {self.trace}/XXXXXX)"\necho uv 0.13.8\n')
        path.chmod(0o755)

    def ran_as(self) -> set[str]:
        """As whom planted programs ran."""
        return {path.read_text().strip() for path in self.trace.iterdir()}

    def look(self, timeout: float = 60) -> Record:
        """Look at this host as root, as a run does."""
        text = self.looked(asked_by(self.spec()), timeout)
        assert SECRET not in text
        assert text.endswith("pyinfra-gpu-probe end\n")
        return parse(text.splitlines())

    @staticmethod
    def looked(asked: Mapping[str, object], timeout: float = 60) -> str:
        """Return what a look at this host prints."""
        done = subprocess.run(
            ["/usr/bin/python3", "-I", "-S", "-"],
            input=on_host.probe_program("look", asked),
            capture_output=True,
            check=True,
            timeout=timeout,
            cwd="/",
            text=True,
            encoding="ascii",
        )
        return done.stdout

    def run(self, command: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command of an operation's as root, with the folder of a user's own below it."""
        return subprocess.run(
            ["sh", "-c", command], input=text, capture_output=True, text=True, cwd="/", timeout=60
        )

    def state_outside(self) -> list[tuple[object, ...]]:
        """Everything that root would notice of what is outside the prefix."""
        found: list[tuple[object, ...]] = []
        for path in (self.outside, *sorted(self.outside.rglob("*"))):
            there = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(there.st_mode) else b""
            found.append(
                (path.name, there.st_mode, there.st_uid, there.st_gid, there.st_mtime_ns, content)
            )
        return found


@contextmanager
def place() -> Iterator[Place]:
    """Give such a folder; below /tmp, which everybody can write to, root would refuse to work."""
    base = Path(tempfile.mkdtemp(prefix="pyinfra-gpu-hostile-", dir="/var/lib"))
    base.chmod(0o755)
    try:
        made = Place(base)
        for folder in (made.prefix, made.outside, made.trace):
            folder.mkdir()
        made.trace.chmod(0o1777)
        shadow = made.outside / "shadow"
        shadow.write_text(SECRET)
        shadow.chmod(0o600)
        yield made
    finally:
        shutil.rmtree(base)


def _link_to_file(made: Place, path: Path) -> None:
    path.symlink_to(made.outside / "shadow")


def _link_to_directory(made: Place, path: Path) -> None:
    path.symlink_to(made.outside)


def _link_to_shared(made: Place, path: Path) -> None:
    folder = made.base / "shared"
    if not folder.exists():  # as /tmp is: root's, and everybody can put something there
        (folder / "bin").mkdir(parents=True)
        for each in (folder, folder / "bin"):
            each.chmod(0o1777)
        for name in ("bin/python", "bin/uv", "python", "uv", "torchrun"):
            made.plant(folder / name)
            os.chown(folder / name, NOBODY, NOBODY)
    path.symlink_to(folder)


def _fifo(_: Place, path: Path) -> None:
    os.mkfifo(path, 0o666)


def _sparse(_: Place, path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(200 << 30)


def _hard_link(made: Place, path: Path) -> None:
    os.link(made.outside / "shadow", path)


def _crowd(_: Place, path: Path) -> None:
    path.mkdir()
    crowd(path, "")


CROWD = 100_000
LINKS = 50_000  # of one file; ext4 takes 65,000
KINDS: dict[str, Callable[[Place, Path], None]] = {
    "a link to a file of root's": _link_to_file,
    "a link to a directory of root's": _link_to_directory,
    "a link to a directory of everybody's": _link_to_shared,
    "a FIFO": _fifo,
    "a sparse file of 200 GB": _sparse,
    "a hard link to a file of root's": _hard_link,
    "a directory of 100,000 names": _crowd,
}


def crowd(folder: Path, ending: str) -> None:
    """Fill a folder with a crowd of names, all of them with that ending.

    Names of few files: to make a file takes several times as long as to give one another name.
    """
    for number in range(CROWD):
        name = f"{folder}/{number}{ending}"
        if number % LINKS == 0:
            first = name
            os.mknod(first)
        else:
            os.link(first, name)


def replace(made: Place, path: Path, kind: str) -> None:
    """Put something else in the place of what is there, as the owner would."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    KINDS[kind](made, path)
    if kind != "a hard link to a file of root's":
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


SWAPPER = """
import os, sys
path, aside, link = sys.argv[1], sys.argv[1] + ".aside", sys.argv[1] + ".link"
os.symlink(sys.argv[2], link)
while True:
    try:
        os.rename(path, aside)
        os.rename(link, path)
        os.rename(path, link)
        os.rename(aside, path)
    except OSError:
        pass
"""


@contextmanager
def swapping(path: Path, target: Path) -> Iterator[None]:
    """Let the owner exchange a path for a link, and back, as fast as a process can."""
    process = subprocess.Popen(
        ["/usr/bin/python3", "-I", "-c", SWAPPER, str(path), str(target)],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()
