"""What is written down about a lab, and where what all labs use is kept.

A record is written before what it names is made, so that an `up` that was killed in the middle
leaves nothing that the next `up` cannot find.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pyinfra_gpu_rehearsal.errors import LabError

RECORD = "lab.json"


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Write TEXT to PATH so that a reader sees the old or the new text, never a part."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text)
    part.chmod(mode)
    part.replace(path)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file PATH, waiting for whoever holds it."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:
            continue  # whoever held it removed the folder just now
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_at(path, descriptor):
                yield
                return
        finally:
            os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    """Tell whether an open file is still the one at PATH."""
    try:
        return path.stat().st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False


@dataclass(kw_only=True)
class HostRecord:
    """One host as written down."""

    name: str
    last: int  # the last byte of its address
    made: bool = False  # it was ready once: its files are worth keeping
    machine: str = ""  # the simulated machine it is, "" = without GPU


@dataclass(kw_only=True)
class LabRecord:
    """One lab as written down."""

    lab_id: str
    subnet: int
    group: str  # the path of its control group
    base: str = ""  # digest of the base image the hosts' files lie on
    release: str = ""  # what runs on the hosts ("debian13"), "" = this machine's own
    git_name: str = ""  # of the training repository, "" where none is served
    git_commit: str = ""
    hosts: dict[str, HostRecord] = field(default_factory=dict)

    @classmethod
    def load(cls, directory: Path) -> LabRecord | None:
        """Read the record in DIRECTORY, None where there is none.

        Raises LabError where the file cannot be understood.
        """
        path = directory / RECORD
        try:
            known = json.loads(path.read_text())
            hosts = {name: HostRecord(**host) for name, host in known.pop("hosts").items()}
            record = cls(**known, hosts=hosts)
            fits = re.fullmatch(r"[0-9a-f]{8}", record.lab_id)
            if not fits or not record.group.endswith(f"-{record.lab_id}"):
                raise ValueError(f"lab_id {record.lab_id!r}")
            return record
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
            raise LabError(
                f"{path} is not a record of throwaway hosts ({error}): remove {directory} and"
                " make new hosts with `pyinfra-gpu rehearsal up 2`"
            ) from error

    def release_of(self, asked: str) -> str:
        """Return what runs on the hosts where ASKED is to, "" = what does. Raises LabError.

        One lab has one base image; hosts of another release have a lab beside it.
        """
        if self.hosts and asked not in ("", self.release):
            raise LabError(
                f"the hosts that are there run {self.release or 'what runs on this machine'}, not"
                f" {asked}: `down` first, or make those in a folder of their own (--directory)"
            )
        return asked or self.release

    def save(self, directory: Path) -> None:
        """Write the record into DIRECTORY."""
        write_atomically(directory / RECORD, json.dumps(asdict(self), indent=1) + "\n")


def new_lab_id() -> str:
    """Return a name for a lab that no other lab has (8 hexadecimal digits)."""
    return secrets.token_hex(4)


def cache_folder() -> Path:
    """Return the folder for what is made once and used by every lab of this user."""
    default = Path.home() / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or default).absolute() / "pyinfra-gpu"


def bytecode_folder() -> Path:
    """Return the folder in which hosts keep Python modules that they compiled, made if needed.

    Everybody on a host may write there: it is made by whoever owns the environment.
    """
    folder = cache_folder() / "bytecode"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o1777)
    return folder
