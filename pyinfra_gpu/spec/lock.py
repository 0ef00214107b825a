"""Locks: uv's requirements with hashes, one file for each torch, Python and machine.

`pyinfra-gpu lock` has uv write them. They name no place to fetch from: any mirror or folder that
has files with these hashes will do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pyinfra_gpu.errors import SpecError

FOLDER = Path("locks")
"""Where locks are: in the folder that pyinfra is run in, beside `group_data`."""

COMMAND = "pyinfra-gpu lock"
INSTALLER = "uv"

_LINE = re.compile(r"([a-z0-9][a-z0-9-]*)==([A-Za-z0-9.!+_-]+)(?: +--hash=sha256:[0-9a-f]{64})+")


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Platform:
    """What wheels are made for: Python's two numbers, and the machine as `uname -m` prints it."""

    python: str
    machine: str

    @classmethod
    def parse(cls, text: str) -> Platform | None:
        """Return the platform of a text such as "3.12-x86_64"; None for any other text."""
        match = re.fullmatch(r"(3\.\d{1,2})-([a-z0-9_]+)", text)
        return cls(python=match[1], machine=match[2]) if match else None

    def __str__(self) -> str:
        return f"Python {self.python} on {self.machine}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    """Everything that is installed for one torch on one platform.

    + lines: package -> its line, "numpy==2.4.6 --hash=sha256:..."; uv is not among them
    + installer: the line of uv, which installs the rest
    """

    path: Path
    platform: Platform
    lines: dict[str, str]
    installer: str

    @property
    def versions(self) -> dict[str, str]:
        """Package -> locked version."""
        return {name: _version(line) for name, line in self.lines.items()}

    @property
    def requirements(self) -> str:
        """The requirements file that is sent to hosts, and compared there."""
        return "".join(f"{line}\n" for line in self.lines.values())


def _version(line: str) -> str:
    return line.partition(" ")[0].partition("==")[2]


def path_of(torch: str, platform: Platform) -> Path:
    """Return where the lock for a torch such as "2.13.0+cpu" is kept."""
    return FOLDER / f"torch-{torch}-py{platform.python}-{platform.machine}.txt"


def read(folder: Path, torch: str) -> tuple[Lock, ...]:
    """Return the locks below `folder` for a torch such as "2.13.0+cpu", one for each platform.

    Raises SpecError with one sentence where one cannot be read.
    """
    return tuple(map(load, sorted((folder / FOLDER).glob(f"torch-{torch}-py*.txt"))))


def load(path: Path) -> Lock:
    """Return the lock in a file. Raises SpecError with one sentence where it cannot be read."""
    torch, _, rest = path.stem.removeprefix("torch-").rpartition("-py")
    lines, platform = dict[str, str](), Platform.parse(rest)
    try:
        text = path.read_bytes().decode("ascii")
        for line in re.sub(r" *\\\n *", " ", text).splitlines():
            if package := _LINE.fullmatch(line):
                lines[package[1]] = line
            elif line and not line.lstrip().startswith("#"):
                name = line.partition(" ")[0][:80]
                raise ValueError(f"{name!r} is not a package with its version and SHA-256 hashes")
        installer = lines.pop(INSTALLER, None)
        # The package index calls torch 2.14.1+cu130 just 2.14.1.
        named = _version(lines.get("torch", "")) in (torch, torch.partition("+")[0])
        if platform is None or installer is None or not named:
            raise ValueError(f"its name or content is not that of a lock of torch and {INSTALLER}")
    except (OSError, ValueError) as error:
        remedy = f"restore it from version control, or delete it and run `{COMMAND}`"
        raise SpecError(f"the lock {path}: {error}; {remedy}") from None
    return Lock(path=FOLDER / path.name, platform=platform, lines=lines, installer=installer)
