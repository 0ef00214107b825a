"""What the machine's own apt says about the distribution's archives.

The base image is made from the same archives as the machine itself, so that no mirror's name
is ever written into this project and a private mirror or a proxy keeps working.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pyinfra_gpu.packages.model import Source
from pyinfra_gpu.packages.sources import read
from pyinfra_gpu_rehearsal.commands import run
from pyinfra_gpu_rehearsal.errors import LabError

DISTRIBUTIONS = ("debian", "ubuntu")
# What hosts can be, as NVIDIA calls it -> the distribution and its code name. The archives of all
# releases of a distribution are in one place: the machine's own sources lead to each of them.
RELEASES = {"debian12": ("debian", "bookworm"), "debian13": ("debian", "trixie")}
# Suites of the distribution's own archive; "-proposed" and "-backports" are a choice, not a base.
SUITE_ENDINGS = ("", "-updates", "-security", "/updates")
# Options that say how to reach an archive; everything else in the dump is apt's own default.
ACQUIRE = re.compile(
    r"^Acquire::(http|https|ftp|Retries|ForceIPv4|ForceIPv6|Check-Valid-Until|Check-Date)\b"
)


def lines(source: Source) -> list[str]:
    """Return a source in apt's one-line form, one line a suite."""
    option = f" [signed-by={source.signed_by}]" if source.signed_by else ""
    rest = " ".join(source.components)
    return [f"deb{option} {source.uri} {suite} {rest}".rstrip() for suite in source.suites]


def os_release(text: str) -> dict[str, str]:
    """Parse the text of /etc/os-release into its keys and values."""
    pairs: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and not key.startswith("#"):
            pairs[key] = " ".join(shlex.split(value))
    return pairs


def of_distribution(sources: Iterable[Source], release: Mapping[str, str]) -> list[Source]:
    """Keep what comes from the distribution's own archive, by suite, component and key.

    Third-party archives often use the same suite names, but have their own key.
    """
    codename = release.get("VERSION_CODENAME", "")
    allowed = {codename + ending for ending in SUITE_ENDINGS}
    kept: list[Source] = []
    for source in sources:
        suites = tuple(suite for suite in source.suites if suite.rstrip("/") in allowed)
        key = source.signed_by or ""
        own_key = not key.startswith("/") or any(
            f"{name}-archive" in Path(key).name for name in DISTRIBUTIONS
        )
        if suites and own_key and "main" in source.components:
            # A key that stands in the file itself: the machine's archive keyring has it, too.
            path = source.signed_by if key.startswith("/") else None
            kept.append(replace(source, suites=suites, signed_by=path))
    return kept


def acquire_options(dump: str) -> list[str]:
    """Keep, of the text of `apt-config dump`, the lines that say how archives are reached."""
    return [line for line in dump.splitlines() if ACQUIRE.match(line) and not line.endswith('"";')]


@dataclass(frozen=True, kw_only=True, slots=True)
class AptConfiguration:
    """The distribution of this machine and how its archives are reached."""

    distribution: str
    codename: str
    sources: tuple[Source, ...]
    options: tuple[str, ...]

    def sources_text(self) -> str:
        """Return the archives as the text of a sources.list file."""
        return "\n".join(line for source in self.sources for line in lines(source)) + "\n"


def read_machine(root: Path = Path("/")) -> AptConfiguration:
    """Read the apt configuration of the machine below ROOT.

    Raises LabError where the machine is not Debian or Ubuntu or names no archive of its own.
    """
    try:
        release = os_release((root / "etc/os-release").read_text())
    except OSError as error:
        raise LabError("this machine has no readable /etc/os-release") from error
    distribution, codename = release.get("ID", ""), release.get("VERSION_CODENAME", "")
    if distribution not in DISTRIBUTIONS or not codename:
        name = release.get("PRETTY_NAME", "unknown")
        raise LabError(f"throwaway hosts are made from Debian or Ubuntu packages, this is {name}")
    apt = root / "etc/apt"
    sources: list[Source] = []
    for path in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]:
        if path.suffix in (".list", ".sources") and path.is_file():
            sources += read(str(path), path.read_text(errors="replace").splitlines())
    own = of_distribution(sources, release)
    if not own:
        raise LabError(
            f"no archive of {distribution} {codename} with component main is configured"
            " in /etc/apt/sources.list or /etc/apt/sources.list.d"
        )
    dump = run(["apt-config", "dump"], purpose="reading the apt configuration").stdout
    return AptConfiguration(
        distribution=distribution,
        codename=codename,
        sources=tuple(own),
        options=tuple(acquire_options(dump)),
    )


def of_release(machine: AptConfiguration, name: str) -> AptConfiguration:
    """Return how the archives of another release are reached from a machine; "" = its own.

    + name: a key of RELEASES

    Raises LabError where there is no such release, or where it is of another distribution.
    """
    if not name:
        return machine
    if name not in RELEASES:
        raise LabError(f"hosts of {name!r} cannot be made: there are {', '.join(RELEASES)}")
    distribution, codename = RELEASES[name]
    if distribution != machine.distribution:
        raise LabError(
            f"hosts of {name} need a machine with {distribution}, whose archives it is configured"
            f" with, and this one has {machine.distribution}"
        )
    return replace(
        machine,
        codename=codename,
        sources=tuple(_for(codename, machine.codename, source) for source in machine.sources),
    )


def _for(codename: str, own: str, source: Source) -> Source:
    """Return a source with the suites of the release CODENAME in place of the machine's OWN."""
    suites = tuple(codename + suite.removeprefix(own) for suite in source.suites)
    return replace(source, suites=suites)
