"""What may be installed with one torch on one platform: each package, its version, its digest.

A lock is a file of the person's project, written by `pyinfra-gpu lock`, and data like the rest. It
names no place to fetch from: any mirror or folder that has files of these digests will do.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyinfra_gpu import whole_file
from pyinfra_gpu.errors import SpecError

FOLDER = Path("locks")
"""Where locks are: in the folder that pyinfra is run in, beside `group_data`."""

COMMAND = "pyinfra-gpu lock"
INSTALLER = "uv"

_HEADER = f"# Written by `{COMMAND}`, which replaces every change.\n#\n"
_TOOLS, _ENVIRONMENT = "# What builds torch.", "# The virtual environment."
_FACT = re.compile(r"# (torch|source|python|machine): (\S+)")
_FACTS = {"torch", "python", "machine"}
_LINE = re.compile(
    r"([a-z0-9]+(?:-[a-z0-9]+)*)==([A-Za-z0-9.!+_-]+)((?: --hash=sha256:[0-9a-f]{64})+)"
)
_PLATFORM = re.compile(r"(3\.\d{1,2})-([a-z0-9_]+)")


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Platform:
    """What wheels are made for: Python's two numbers, and the machine as `uname -m` calls it."""

    python: str
    machine: str

    @classmethod
    def parse(cls, text: str) -> Platform | None:
        """Return the platform of a text such as "3.12-x86_64"; None where it is none."""
        match = _PLATFORM.fullmatch(text)
        return cls(python=match[1], machine=match[2]) if match else None

    def __str__(self) -> str:
        return f"Python {self.python} on {self.machine}"


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Locked:
    """One package; `digests` are the SHA-256 of the files that will do, in hexadecimal."""

    name: str
    version: str
    digests: tuple[str, ...]

    @property
    def line(self) -> str:
        """It as one line of a requirements file, which pip and uv read alike."""
        hashes = " ".join(f"--hash=sha256:{each}" for each in sorted(self.digests))
        return f"{self.name}=={self.version} {hashes}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    """Everything that is installed for one torch on one platform.

    + torch: what `torch.__version__` says, such as "2.13.0+cpu"
    + installer: uv, which installs the rest
    + packages: what the virtual environment consists of before training adds to it
    + source: the commit or digest that torch is built from; "" for a published wheel. A built torch
      is not among the packages: no two builds have the same digest
    + tools: what builds it
    """

    torch: str
    platform: Platform
    installer: Locked
    packages: tuple[Locked, ...]
    source: str = ""
    tools: tuple[Locked, ...] = ()

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return path_of(self.torch, self.platform, self.source)

    @property
    def requirements(self) -> str:
        """The packages as a requirements file: what is sent to hosts, and compared there."""
        return _lines(self.packages)

    @property
    def build_requirements(self) -> str:
        """The tools as a requirements file."""
        return _lines(self.tools)

    @property
    def sha256(self) -> str:
        """Digest of `requirements`."""
        return sha256(self.requirements)

    @property
    def text(self) -> str:
        """The whole file: the same content gives the same bytes, a line per package."""
        source = f"# source: {self.source}\n" if self.source else ""
        tools = f"{_TOOLS}\n{self.build_requirements}\n" if self.source else ""
        return (
            f"{_HEADER}# torch: {self.torch}\n{source}# python: {self.platform.python}\n"
            f"# machine: {self.platform.machine}\n\n# The installer.\n{self.installer.line}\n\n"
            f"{tools}{_ENVIRONMENT}\n{self.requirements}"
        )


def _lines(packages: Iterable[Locked]) -> str:
    return "".join(f"{each.line}\n" for each in sorted(packages))


def path_of(torch: str, platform: Platform, source: str = "") -> Path:
    """Return where the lock for a torch such as "2.13.0+cpu" is kept.

    + source: the commit or digest that it is built from
    """
    return FOLDER / f"{_name(torch, source)}-py{platform.python}-{platform.machine}.txt"


def _name(torch: str, source: str) -> str:
    return f"torch-{torch}-from-{source[:12]}" if source else f"torch-{torch}"


def sha256(text: str) -> str:
    """Return the digest of a text, as hosts tell that of a file."""
    return hashlib.sha256(text.encode()).hexdigest()


def parse(text: str, path: Path) -> Lock:
    """Return the lock that `text` is.

    + path: where it stands, for errors; its name must be that of the lock

    Raises SpecError with one sentence.
    """
    facts: dict[str, str] = {}
    packages: list[Locked] = []
    tools: list[Locked] = []
    into = packages
    for number, line in enumerate(text.splitlines(), start=1):
        fact, package = _FACT.fullmatch(line), _LINE.fullmatch(line)
        if fact:
            facts[fact[1]] = fact[2]
        elif line in (_TOOLS, _ENVIRONMENT):
            into = tools if line == _TOOLS else packages
        elif package:
            into.append(_locked(package[1], package[2], package[3]))
        elif line.strip() and not line.startswith("#"):
            raise _wrong(path, f"line {number} is no package with its version and digest")
    if _FACTS - facts.keys():
        raise _wrong(path, "it does not say for which torch, python and machine it is")
    return _checked(facts, packages, tools, path)


def read(folder: Path, torch: str, source: str = "") -> tuple[Lock, ...]:
    """Return the locks below `folder` for a torch such as "2.13.0+cpu", one for each platform.

    + source: the commit or digest that it is built from

    Raises SpecError with one sentence where one cannot be read.
    """
    found = sorted((folder / FOLDER).glob(f"{_name(torch, source)}-py*.txt"))
    return tuple(each for each in map(load, found) if each.source == source)


def load(path: Path) -> Lock:
    """Return the lock in a file. Raises SpecError with one sentence where it cannot be read."""
    try:
        text = whole_file.read(path).decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(path, f"it cannot be read ({error})") from None
    return parse(text, path)


def changes(old: Lock | None, new: Lock) -> list[str]:
    """Return what differs between two locks of one path, a few words for each package.

    + old: None where there was none, which is no change of a package
    """
    if old is None:
        return []
    installed = _changes((old.installer, *old.packages), (new.installer, *new.packages))
    return [*installed, *(f"{each} (builds torch)" for each in _changes(old.tools, new.tools))]


def _changes(old: Iterable[Locked], new: Iterable[Locked]) -> list[str]:
    before = {each.name: each for each in old}
    after = {each.name: each for each in new}
    return [
        text
        for name in sorted({*before, *after})
        if (text := _change(before.get(name), after.get(name)))
    ]


def _change(before: Locked | None, after: Locked | None) -> str:
    if before is None and after is not None:
        return f"+ {after.name} {after.version}"
    if after is None and before is not None:
        return f"- {before.name} {before.version}"
    assert before is not None and after is not None  # noqa: S101 - the name is of one of them
    if before.version != after.version:
        return f"{after.name} {before.version} -> {after.version}"
    same = sorted(before.digests) == sorted(after.digests)
    return "" if same else f"{after.name} {after.version}: ANOTHER DIGEST, same version"


def _locked(name: str, version: str, hashes: str) -> Locked:
    digests: Sequence[str] = [each.rpartition(":")[2] for each in hashes.split()]
    return Locked(name=name, version=version, digests=tuple(sorted(digests)))


def _checked(
    facts: dict[str, str], packages: Iterable[Locked], tools: Iterable[Locked], path: Path
) -> Lock:
    platform, source = Platform.parse(f"{facts['python']}-{facts['machine']}"), facts.get("source")
    known = {each.name: each for each in packages}
    installer, torch = known.pop(INSTALLER, None), known.get("torch")
    if platform is None:
        raise _wrong(path, "its python and machine are none")
    if installer is None:
        raise _wrong(path, f"it has no {INSTALLER}")
    if source is not None and torch is not None:
        raise _wrong(path, "it names a torch, and the one it is for is built")
    named = (facts["torch"], facts["torch"].partition("+")[0])
    if source is None and (torch is None or torch.version not in named):
        raise _wrong(path, f"it has no torch {facts['torch']}")
    made = Lock(
        torch=facts["torch"],
        platform=platform,
        installer=installer,
        packages=tuple(sorted(known.values())),
        source=source or "",
        tools=tuple(sorted(tools)),
    )
    if made.path.name != path.name:
        raise _wrong(path, f"what it says is for {made.path.name}")
    return made


def _wrong(path: Path, problem: str) -> SpecError:
    return SpecError(
        f"the lock {path}: {problem}; take it back from version control, or delete it and run"
        f" `{COMMAND}`"
    )
