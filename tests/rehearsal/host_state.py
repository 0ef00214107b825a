"""What a host holds at one moment, on its disk and in its memory: enough to tell two moments apart.

Two hosts in the same state take the same way from there, whatever happened to them before: all
that a run of the product knows of a host, it looks up on it.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from gate import PLACE
from running import PATIENCE_S

from pyinfra_gpu_rehearsal import LabHost
from pyinfra_gpu_rehearsal.snapshots import LOWER

# What any login and any command leaves, and the gate itself; what apt makes anew from its lists
# whenever it is not there or older than they are; and what is not on a disk.
_OF_APT = ("var/cache/apt/pkgcache.bin", "var/cache/apt/srcpkgcache.bin")
_OF_ANY = ("var/log/", "var/tmp/", "var/lib/systemd/", "tmp/", "run/", "etc/.pwd.lock")
PASSING = (*_OF_ANY, *_OF_APT, PLACE[1:])
_NO_DISK = ("dev/", "proc/", "sys/")
# Each is unpacked below a random name, which others link to; those links are compared.
_ARCHIVES = "archive-v0"
_ARCHIVE = re.compile(rf"/{_ARCHIVES}/[\w-]+")
# What was being made when it was cut off, and nobody reads again: uv's next work gets another name,
# so does the next transaction of apt's, which removes what is a day old, and who fetches torch
# beside other commands begins by removing it.
_CUT_OFF = re.compile(
    r"/cache/(.*/)?\.tmp\w{6}(/|$)|^var/lib/pyinfra-gpu-apt\.\w{6}(/|$)"
    r"|/cache/pyinfra-gpu-meanwhile([./]|$)"
)
# Made where it is missing, for the note of what the product's own reboot was for, which is removed
# behind that. What is in it counts.
_FOLDER = "var/lib/pyinfra-gpu"
ABSENT = "absent"
_MEMORY = """
systemctl list-units --plain --no-legend --state=active --type=service,mount,timer |
  while read -r name _; do echo "unit $name"; done
for module in /sys/module/*; do
  echo "module ${module##*/} $(cat "$module/version" 2>/dev/null)"
done
cat /proc/[0-9]*/comm 2>/dev/null | while read -r name; do echo "process $name"; done
"""
# What is fetched beside other commands (pyinfra_gpu/on_host/pytorch/meanwhile.sh).
_BESIDE = "pgrep -f '^[^ ]*(timeout -k|uv ).*pyinfra-gpu[-]meanwhile'"
# They belong to who is logged in, which is who looks; to processes between fork and exec; and to
# the gate, at which a command waits.
_OF_LOGINS = ("unit user", "process (", "process sd-", "process gate.sh", "process sleep")


@dataclass(frozen=True)
class HostState:
    """A moment of a host.

    + files: of each path below / that was ever written, what is there: mode, owner and content
    + memory: units that are active, modules that are loaded, names of processes
    """

    files: Mapping[str, str]
    memory: frozenset[str]

    @classmethod
    def of(cls, host: LabHost) -> Self:
        """Look at a host that is on; only this machine's root may."""
        root = root_of(host)
        files = {path: _entry(root, path) for path in sorted(set(_written(host)))}
        return cls(files, memory_of(host))

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Self:
        """Return what `told` wrote."""
        files = {path: entry for path, entry in told["files"].items() if not _passes(path)}
        return cls(files, _lasting(told["memory"]))

    def told(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"files": dict(self.files), "memory": sorted(self.memory)}

    def modules(self) -> set[str]:
        """Return the modules that are loaded, with their versions."""
        return {line for line in self.memory if line.startswith("module ")}


def settle(host: LabHost) -> float:
    """Wait until nothing works on the host beside the run's commands; return the seconds it took.

    When that ends differs from run to run, and so does what it has left until then.

    Raises TimeoutError where it goes on for longer than anything of a run takes.
    """
    began = time.monotonic()
    while host.run(_BESIDE, check=False).returncode == 0:
        if time.monotonic() - began > PATIENCE_S:
            raise TimeoutError(f"what works beside the run did not end within {PATIENCE_S} s")
        time.sleep(0.1)
    return time.monotonic() - began


def root_of(host: LabHost) -> Path:
    """Return where this machine's root sees the files of a host that is on."""
    return Path(f"/proc/{host.pid()}/root")


def memory_of(host: LabHost) -> frozenset[str]:
    """Return what a host has in memory, a line for each."""
    return _lasting(host.run(_MEMORY, check=False).stdout.splitlines())


def _lasting(lines: Iterable[str]) -> frozenset[str]:
    return frozenset(line.strip() for line in lines if not line.startswith(_OF_LOGINS))


def differences(
    one: HostState, other: HostState, bare: LabHost, varying: frozenset[str] = frozenset()
) -> Iterator[str]:
    """Yield in what two states differ: lines of memory, and paths; most often few are asked for.

    + bare: a host of this kind, whose layers tell what a path is that nobody wrote
    + varying: what differs from run to run anyway; of those files content is not compared, but
      whether they are there, whose they are and how many lines they have
    """
    yield from sorted((one.memory ^ other.memory) - varying)
    for path in {**one.files, **other.files}:
        entries = [state.files.get(path) or _bare(bare, path) for state in (one, other)]
        if path in varying:
            entries = [entry.rpartition(" ")[0] for entry in entries]
        if entries[0] != entries[1]:
            yield path


def _written(host: LabHost) -> Iterator[str]:
    """Yield what any layer above a bare machine names, deleted or not."""
    lower = host.folder / LOWER
    layers = lower.read_text().split(":") if lower.exists() else []
    for layer in (host.upper, *(host.folder / each for each in layers if each)):
        for folder, folders, files in os.walk(layer):
            # Of tens of thousands: no pathlib.
            beginning = f"{folder}/"[len(f"{layer}/") :]
            if _ARCHIVES in folders:
                folders.remove(_ARCHIVES)
            for name in (*folders, *files):
                path = f"{beginning}{name}"
                if not _passes(path):
                    yield path


def _passes(path: str) -> bool:
    """Tell whether what is there makes no difference to anything that comes after it."""
    if path == _FOLDER or f"{path}/".startswith((*PASSING, *_NO_DISK)):
        return True
    return _CUT_OFF.search(path) is not None


def _bare(host: LabHost, path: str) -> str:
    """Return what a bare machine has there."""
    entries = (_entry(host.folder / layer, path) for layer in ("own", "base"))
    return next((entry for entry in entries if entry != ABSENT), ABSENT)


def _entry(root: Path, name: str) -> str:
    """Return mode, owner and content of what is there; its last word alone is the content's own."""
    path = f"{root}/{name}"
    try:
        found = os.lstat(path)
        owned = f"{found.st_mode:o} {found.st_uid}:{found.st_gid}"
        if stat.S_ISLNK(found.st_mode):
            leads = str(Path(path).readlink())
            return f"{owned} -> {_ARCHIVE.sub(f'/{_ARCHIVES}/*', leads)}"
        if stat.S_ISREG(found.st_mode):
            return f"{owned} {_content(path, name, found)}"
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    return owned


_READ: dict[tuple[str | int, ...], str] = {}  # a file that was not touched is not read again


def _content(path: str, name: str, found: os.stat_result) -> str:
    """Return how many lines a file has, if it is text, and a digest of all of it."""
    key = (name, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    if key not in _READ:
        data = Path(path).read_bytes()
        lines = 0 if b"\0" in data else data.count(b"\n")
        _READ[key] = f"{lines} {hashlib.sha256(data).hexdigest()}"
    return _READ[key]
