"""Which lines of what apt and dpkg printed say why a command failed; what they mean is not here."""

from __future__ import annotations

import re
from collections.abc import Sequence

_GUARD = "E: pyinfra-gpu: "
_TELLS = re.compile(r"(?:E|W|Error|Warning): |dpkg(?:-deb)?: error")
_WARNS = re.compile(r"W(?:arning)?: ")
# What apt adds where the error itself stands in another line, or where there is none.
_SUMS_UP = re.compile(
    r"(?:E|W|Error|Warning): (?:Sub-process /usr/bin/dpkg |Some (?:index )?files failed to download"
    r"|Download Failed|Unable to fetch some archives|Failure while executing"
    r"|Download is performed unsandboxed)"
)
_PREFACE = re.compile(r"^.*(?:GPG error|OpenPGP signature verification failed): (?=\S)")
_OF_A_PACKAGE = "dpkg: error processing "
_CONSEQUENCE = "dependency problems - leaving unconfigured"
_SCRIPT_FAILED = re.compile(r" installed \S+ package post-installation script subprocess ")
_BEGINS_A_PACKAGE = re.compile(r"(?:Preparing to unpack|Unpacking|Setting up|Removing) ")


def read(lines: Sequence[str]) -> tuple[str, ...]:
    """See `PackageManager.errors_in`: errors come behind warnings.

    Of a package that dpkg could not install: all that was printed about that one.
    """
    lines = [line.rstrip() for line in lines if line.strip()]
    if guard := [line for line in lines if line.startswith(_GUARD)]:
        return tuple(guard)
    places = [at for at, line in enumerate(lines) if line.startswith(_OF_A_PACKAGE)]
    if places:
        # What only depends on the one that failed may stand before it.
        own = [at for at in places if _CONSEQUENCE not in "".join(lines[at : at + 2])]
        return _about_a_package(lines, [*own, *places][0])
    found = [line for line in lines if _TELLS.match(line) and not _SUMS_UP.match(line)]
    found.sort(key=lambda line: not _WARNS.match(line))
    return tuple(_PREFACE.sub("", line) for line in found or lines)


def says_script_failed(lines: Sequence[str]) -> bool:
    """See `PackageManager.says_script_failed`."""
    return any(_SCRIPT_FAILED.match(line) for line in lines)


def _about_a_package(lines: Sequence[str], error: int) -> tuple[str, ...]:
    """Return what stands from where dpkg began with a package to the end of its error."""
    first = last = error
    while first > 0 and not _BEGINS_A_PACKAGE.match(lines[first]):
        first -= 1
    while last + 1 < len(lines) and lines[last + 1].startswith(" "):
        last += 1
    return tuple(lines[first : last + 1])
