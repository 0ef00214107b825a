"""What root opens and runs on a throwaway host, as this machine's kernel tells it (fanotify).

Run as a program it is the one that listens, a process of its own: the kernel lets every open on the
host wait for its answer, so the process that opens is there to be asked as whom it does.

    python -I tracing.py PREFIX FILE_SYSTEM...
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

_CLASS_CONTENT, _CLOEXEC, _UNLIMITED_QUEUE = 0x4, 0x1, 0x10
_ADD, _FILE_SYSTEM = 0x1, 0x100
_OPEN_PERM, _OPEN_EXEC_PERM, _ON_DIRECTORY = 0x10000, 0x40000, 0x40000000
_LOST, _ALLOW, _WORKING_DIRECTORY = 0x4000, 0x1, -100
_EVENT, _ANSWER = struct.Struct("IBBHQii"), struct.Struct("iI")

OWNERS = ("cache", "state", "training", "venv")  # with venv.new, and what is kept of them
SECRET = "/etc/shadow"
SYSTEMS_OWN = ("sshd", "sshd-session", "sudo", "su", "unix_chkpwd", "(systemd)", "systemd")


class Opened(NamedTuple):
    """One way in which root opened a file that is not root's alone, or the secret."""

    how: str  # "opens" or "runs"
    path: str
    owner: int
    by: str  # the name of the process


class Trace:
    """What was seen, complete once the traced block has ended."""

    def __init__(self) -> None:
        self.events = 0
        self.by_root: list[Opened] = []
        self.ran_as: dict[str, list[int]] = {}  # the owner's programs by their path

    def take(self, said: str) -> None:
        """Read what the listener says at its end."""
        answer: dict[str, Any] = json.loads(said)
        self.events = answer["events"]
        self.by_root = [Opened(*each) for each in answer["by_root"]]
        self.ran_as = answer["ran_as"]


@contextmanager
def traced(process: int, prefix: str) -> Iterator[Trace]:
    """Trace the host whose first process is PROCESS, on all file systems where a user can write.

    Raises RuntimeError where the kernel does not tell, and where an event was lost.
    """
    root = f"/proc/{process}/root"
    places = [root, *(f"{root}{where}" for where in ("/tmp", "/run", "/dev/shm"))]
    command = [sys.executable, "-I", __file__, prefix, *filter(os.path.exists, places)]
    listener = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert listener.stdin and listener.stdout and listener.stderr
    trace = Trace()
    try:
        if listener.stdout.readline() != "ready\n":
            raise RuntimeError(f"the kernel does not tell: {listener.stderr.read().strip()}")
        yield trace
        said, errors = listener.communicate(timeout=60)
        if listener.returncode:
            raise RuntimeError(f"the listener failed: {errors.strip()}")
        trace.take(said)
    finally:
        listener.kill()
        listener.wait()


# -- the listener


def _listen(places: list[str]) -> int:
    """Return the descriptor from which events of these file systems are read."""
    libc = ctypes.CDLL(None, use_errno=True)
    flags = _CLASS_CONTENT | _CLOEXEC | _UNLIMITED_QUEUE
    group = int(libc.fanotify_init(flags, os.O_RDONLY | os.O_CLOEXEC | os.O_LARGEFILE))
    if group < 0:
        sys.exit(f"fanotify_init: {os.strerror(ctypes.get_errno())}")
    wanted = ctypes.c_uint64(_OPEN_PERM | _OPEN_EXEC_PERM | _ON_DIRECTORY)
    for place in places:
        path = place.encode()
        if libc.fanotify_mark(group, _ADD | _FILE_SYSTEM, wanted, _WORKING_DIRECTORY, path):
            sys.exit(f"fanotify_mark: {os.strerror(ctypes.get_errno())}")
    return group


def _asked_by(pid: int) -> tuple[int, str]:
    """Return as whom a process, which waits for us, opens files, and its name."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:  # killed while it waited: it opens nothing any more
        return -1, ""
    uids = next(line for line in status if line.startswith("Uid:"))
    return int(uids.split()[4]), status[0].partition("\t")[2]


class Listener:
    """Counts and keeps what matters of the events."""

    def __init__(self, group: int, prefix: str) -> None:
        self.group = group
        self.prefix = prefix  # itself in a folder of root's, whoever it belongs to
        self.theirs = tuple(f"{prefix}/{name}" for name in OWNERS)
        self.events = 0
        self.by_root: set[Opened] = set()
        self.ran_as: dict[str, set[int]] = {}

    def read(self) -> None:
        """Take the events that wait, and let all of them go on."""
        events = os.read(self.group, 1 << 16)
        at = 0
        while at < len(events):
            length, _, _, _, mask, descriptor, pid = _EVENT.unpack_from(events, at)
            at += length
            if mask & _LOST or descriptor < 0:
                sys.exit("an event was lost")
            try:
                self._note(mask, descriptor, pid)
            finally:
                os.write(self.group, _ANSWER.pack(descriptor, _ALLOW))
                os.close(descriptor)

    def _note(self, mask: int, descriptor: int, pid: int) -> None:
        self.events += 1
        owner = os.fstat(descriptor).st_uid
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        theirs = (owner != 0 and path != self.prefix) or path.startswith(self.theirs)
        if not theirs and path != SECRET:
            return
        uid, name = _asked_by(pid)
        runs = bool(mask & _OPEN_EXEC_PERM)
        if runs and theirs:
            self.ran_as.setdefault(path, set()).add(uid)
        if uid == 0 and (theirs or name not in SYSTEMS_OWN):
            self.by_root.add(Opened("runs" if runs else "opens", path, owner, name))


def main() -> None:
    """Listen until standard input ends."""
    prefix, *places = sys.argv[1:]
    listener = Listener(_listen(places), prefix)
    print("ready", flush=True)
    waiting = [listener.group, sys.stdin.fileno()]
    while (ready := select.select(waiting, [], [])[0]) != [sys.stdin.fileno()]:
        if listener.group in ready:
            listener.read()
    ran_as = {path: sorted(uids) for path, uids in listener.ran_as.items()}
    by_root = sorted(listener.by_root)
    print(json.dumps({"events": listener.events, "by_root": by_root, "ran_as": ran_as}))


if __name__ == "__main__":
    main()
