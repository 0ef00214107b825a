"""What is written down about a lab, and where what all labs use is kept.

A record is written before what it names is made, so that an `up` that was killed in the middle
leaves nothing that the next `up` cannot find.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pyinfra_gpu_rehearsal.errors import LabError

RECORD = "lab.json"


def write_atomically(path: Path, text: str) -> None:
    """Write TEXT to PATH so that a reader sees the old or the new text, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text)
    part.replace(path)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file PATH, waiting for whoever holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


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

    lab_id: str = field(default_factory=lambda: secrets.token_hex(4))
    subnet: int = 0
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
            if not re.fullmatch(r"[0-9a-f]{8}", record.lab_id):
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


def cache_folder() -> Path:
    """Return the folder for what is made once and used by every lab of this user."""
    default = Path.home() / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or default).absolute() / "pyinfra-gpu"
