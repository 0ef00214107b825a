"""What apt-get says it would do, and whether a transaction may do that."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pyinfra_gpu.packages.names import (
    LABEL,
    branch_of,
    driver_version,
    is_driver,
    is_kernel,
    is_nvidia,
    plain,
)

_INSTALL = re.compile(
    r"Inst (?P<name>\S+)(?: \[(?P<old>[^\]]+)\])? "
    r"\((?P<new>\S+)(?: (?P<labels>.*?))? ?\[(?P<arch>[^\]]+)\]\)(?: \[.*)?"
)
_REMOVE = re.compile(r"(?:Remv|Purg) (?P<name>\S+) \[(?P<old>[^\]]+)\].*")
_FETCH = re.compile(r"(?m)^'([^']+)' ([^_\s]+)_[^_\s]+_([^_\s]+)\.deb \d+")
# What installed packages depend on and is not there, and the version as it is asked for.
_UNMET = re.compile(
    r"(?m)^ +(?:\S+ : )?(?:Pre)?Depends: (\S+) (?:\((=) (\S+)\) )?but it is not .*\binstalled$"
)
_PROBLEM = re.compile(
    r"(?m)^(?:E: (.*)|Reinstallation of \S+ is not possible.*"
    r"| \S.*: (?:Pre)?(?:Depends|Conflicts|Breaks): .*)$"
)
_LOWER = re.compile(  # below a heading, that of apt 3 behind, names stand on indented lines
    r"(?m)^(?:The following packages will be DOWNGRADED|DOWNGRADING):((?:\n .*)+)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One package that would change.

    + name: with its architecture where that is not the machine's own
    + old, new: the versions that are there, and would be; None where it is not, or is removed
    + labels: what the sources that offer the new version call themselves
    + uri: of the new version's file; "" where it is fetched already
    + lower: whether the new version is lower than the old one
    + held: whether it is on hold
    """

    name: str
    old: str | None
    new: str | None
    labels: tuple[str, ...] = ()
    uri: str = ""
    lower: bool = False
    held: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulation:
    """A whole transaction, as apt says it would run.

    + problems: why there is none, one text each; with any of them the changes mean nothing
    + unmet: what installed packages depend on and is not there, as a transaction asks for it
    """

    changes: tuple[Change, ...] = ()
    problems: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()


def parse(lines: Sequence[str]) -> Simulation:
    """Read what `on_host/packages/apt/simulate.sh` prints, or `apt-get --simulate` alone."""
    said = "\n".join(line.rstrip() for line in lines)
    problems = [" ".join((each[1] or each[0]).split()) for each in _PROBLEM.finditer(said)]
    held = {*re.findall(r"(?m)^Hold (\S+)$", said)}
    lower = {*" ".join(_LOWER.findall(said)).split()}
    uris = {(name, arch): uri for uri, name, arch in _FETCH.findall(said)}
    changes = []
    for line in re.findall(r"(?m)^(?:Inst|Remv|Purg) .*", said):
        if not (found := _INSTALL.fullmatch(line) or _REMOVE.fullmatch(line)):
            problems.append(f"this is not understood: {line}")
            continue
        fields = found.groupdict()
        # "LABEL:VERSION/ARCHIVE, LABEL:..."; a source without a label shows as its archive
        offers = (fields.get("labels") or "").split(",")
        labels = (each.partition(":")[0].strip() for each in offers)
        name = fields["name"]
        changes.append(
            Change(
                name=name,
                old=fields["old"],
                new=fields.get("new"),
                labels=tuple(dict.fromkeys(filter(None, labels))),
                uri=uris.get((plain(name), fields.get("arch")), ""),
                lower=name in lower,
                held=not held.isdisjoint((name, plain(name))),
            )
        )
    return Simulation(
        changes=tuple(changes),
        problems=tuple(dict.fromkeys(problems)),
        unmet=tuple(dict.fromkeys(map("".join, _UNMET.findall(said)))),
    )


# --- what may be done


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a transaction may do to the driver.

    + branch: the driver branch that must not be left; None where none is declared
    + version: the driver version that all its packages must get; None = any of the branch
    + url: NVIDIA's declared repository, without the slash at its end; "" where there is none
    + labels: what the archives call themselves that the driver comes from, where that is not the
      declared repository
    + apart: packages of such an archive whose versions are their own
    """

    branch: int | None
    version: str | None
    url: str
    labels: tuple[str, ...] = ()
    apart: frozenset[str] = frozenset()


def judge(simulation: Simulation, limits: Limits) -> list[str]:
    """Return why a transaction must not run, one clause for each reason; [] = it may."""
    guarded = ((guard(each, limits) for guard in _GUARDS) for each in simulation.changes)
    first = (next(filter(None, found), None) for found in guarded)
    return [each for each in first if each]


def _removal(change: Change, limits: Limits) -> str | None:
    if change.new is not None or is_driver(change.name, change.old or ""):
        return None
    return f"it would remove {change.name}, which is no part of the driver"


def _version(change: Change, limits: Limits) -> str | None:
    name, old, new = change.name, change.old, change.new
    if new is None or new == old:
        return None  # the same again, as where an interrupted installation is finished
    if is_kernel(name):
        return f"it would install {name} {new}, a kernel"
    downgrade = f"it would downgrade {name} from {old} to {new}" if change.lower else None
    if not is_driver(name, new) or plain(name) in limits.apart:
        return downgrade
    if limits.branch is not None and branch_of(new) != limits.branch:
        return f"{name} {new} would leave the declared branch {limits.branch} of the driver"
    if limits.version not in (None, driver_version(new)):
        return f"{name} would get version {new}, not {limits.version} as the rest"
    # Going back to the declared branch, or version, is what data says.
    if downgrade and limits.version is None and branch_of(old or "") == limits.branch:
        return f"{downgrade}: declare `driver_version` if that is wanted"
    return None


def _origin(change: Change, limits: Limits) -> str | None:
    """NVIDIA's packages come from the declared repository, by its label and by the file's URI.

    A driver of the distribution's own comes from its archive, by label: mirrors are many.
    """
    name, labels = plain(change.name), change.labels
    if change.new is None or change.new == change.old:
        return None
    toolkit = is_nvidia(name) and name.startswith(("cuda-", "libcuda"))
    if not (is_driver(name, change.new) or toolkit):
        return None  # helpers of the distribution need not come from NVIDIA
    origin = " or ".join(labels) or "unnamed"
    if limits.labels and not name.startswith("cuda-"):
        right = not set(labels).isdisjoint(limits.labels)
    else:
        # Data may say file:///path where apt writes file:/path.
        within = limits.url.replace("file:///", "file:/") + "/"
        elsewhere = change.uri and not change.uri.startswith(within)
        right, origin = LABEL in labels and not elsewhere, change.uri if elsewhere else origin
    return (
        None if right else f"{change.name} {change.new} would come from another origin ({origin})"
    )


def _hold(change: Change, limits: Limits) -> str | None:
    """What somebody else put on hold stays; the holds on the driver are ours."""
    name, versions = plain(change.name), (change.new or "", change.old or "")
    if not change.held or any(is_driver(name, version) for version in versions):
        return None
    return f"it would change {name}, which is on hold (`apt-mark unhold {name}` frees it)"


_GUARDS = (_removal, _version, _origin, _hold)
