"""What apt-get says it would do, and whether a transaction may do that."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyinfra_gpu.packages import names
from pyinfra_gpu.packages.names import LABEL, driver_version, is_driver, plain

_INSTALL = re.compile(
    r"Inst (?P<name>\S+)(?: \[(?P<old>[^\]]+)\])? "
    r"\((?P<new>\S+)(?: (?P<labels>.*?))?(?: ?\[(?P<arch>[^\]]+)\])?\)(?: \[.*)?"
)
_REMOVE = re.compile(r"(?:Remv|Purg) (?P<name>\S+) \[(?P<old>[^\]]+)\].*")
_FETCH = re.compile(
    r"'(?P<uri>[^']+)' (?P<name>[^_\s]+)_[^_\s]+_(?P<arch>[^_\s]+)\.deb \d+(?: .*)?"
)
_GONE = re.compile(
    r" +(?:\S+ : )?(?:Pre)?Depends: (?P<name>\S+) (?:\(= (?P<version>\S+)\) )?"
    r"but it is not (?:going to be )?installed"
)
_DOWNGRADED = re.compile(r"The following packages will be DOWNGRADED:|DOWNGRADING:")  # apt 3
_UNMET = re.compile(r" \S.*: (Depends|PreDepends|Conflicts|Breaks): ")


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One package that would change.

    + name: with its architecture where that is not the machine's own
    + old: the version that is there, None if it is not
    + new: the version that would be, None if it is removed
    + labels: what the sources that offer the new version call themselves; () where it is removed
    + arch: of the new version, where apt says it
    + lower: whether the new version is lower than the old one
    """

    name: str
    old: str | None
    new: str | None
    labels: tuple[str, ...] = ()
    arch: str | None = None
    lower: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulation:
    """A whole transaction, as apt says it would run.

    + problems: its own errors, one text each; with any of them the changes mean nothing
    + odd: lines that could not be understood, so that nothing may be done
    + fetches: URI of each file that is not there yet, by package name and architecture
    + held: every package that it was told to leave alone
    + unmet: what installed packages depend on and is not there, as a transaction asks for it
    """

    changes: tuple[Change, ...] = ()
    problems: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()
    fetches: Mapping[tuple[str, str], str] = field(default_factory=dict)
    held: frozenset[str] = frozenset()
    unmet: tuple[str, ...] = ()


def read(lines: Sequence[str], mark: str) -> Simulation | None:
    """Read what `on_host/packages/apt/simulate.sh` printed; None where it is cut off.

    + mark: the line that ends each of its parts
    """
    parts: list[list[str]] = [[]]
    for line in lines:
        if line == mark:
            parts.append([])
        else:
            parts[-1].append(line)
    if len(parts) != 4:
        return None
    changes, held, uris, _ = parts
    # A file is named NAME_VERSION_ARCHITECTURE.deb.
    files = [match for line in uris if (match := _FETCH.fullmatch(line.strip()))]
    return replace(
        parse(changes),
        fetches={(each["name"], each["arch"]): each["uri"] for each in files},
        held=frozenset(line.strip() for line in held if line.strip()),
    )


def parse(lines: Sequence[str]) -> Simulation:
    """Read the output of `LC_ALL=C apt-get --simulate ...`, both its channels."""
    lines = [line.rstrip() for line in lines]
    rows = [line for line in lines if line.startswith(("Inst ", "Remv ", "Purg "))]
    found = {line: _INSTALL.fullmatch(line) or _REMOVE.fullmatch(line) for line in rows}
    errors = [line[2:].strip() for line in lines if line.startswith("E:")]
    # What apt says on broken dependencies comes before its errors, indented.
    unmet = [" ".join(line.split()) for line in lines if _UNMET.match(line)]
    gone = [match for line in lines if (match := _GONE.fullmatch(line))]
    lower, downgraded = set[str](), False
    for line in lines:  # a heading, and names on the indented lines below it
        downgraded = downgraded if line.startswith(" ") else bool(_DOWNGRADED.fullmatch(line))
        lower |= {*line.split()} if downgraded else set()
    changes = (_change(match.groupdict()) for match in found.values() if match)
    return Simulation(
        changes=tuple(replace(each, lower=each.name in lower) for each in changes),
        problems=tuple([*unmet, *errors] if errors else []),
        odd=tuple(line for line, match in found.items() if not match),
        unmet=tuple(
            dict.fromkeys(
                f"{each['name']}={each['version']}" if each["version"] else each["name"]
                for each in gone
            )
        ),
    )


def _change(found: dict[str, str | None]) -> Change:
    # "LABEL:VERSION/ARCHIVE, LABEL:..."; a source without a label shows as its archive
    labels = [each.partition(":")[0].strip() for each in (found.get("labels") or "").split(",")]
    return Change(
        name=found["name"] or "",
        old=found["old"],
        new=found.get("new"),
        labels=tuple(dict.fromkeys(filter(None, labels))),
        arch=found.get("arch"),
    )


# --- what may be done


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What is declared, and what is there.

    + branch: the driver branch that must not be left; None where none is declared
    + version: the driver version that all its packages must get; None = any of the branch
    + url: NVIDIA's declared repository, without the slash at its end; "" where there is none
    + installed: the driver's packages, name -> version
    + labels: what the archives call themselves that the driver comes from, where that is not the
      declared repository
    + apart: packages of such an archive whose versions are their own
    """

    branch: int | None
    version: str | None
    url: str
    installed: Mapping[str, str]
    labels: tuple[str, ...] = ()
    apart: frozenset[str] = frozenset()

    def is_driver(self, name: str, version: str) -> bool:
        """Tell whether a package is of the driver, and so of its version."""
        return is_driver(name, version) and plain(name) not in self.apart


def judge(simulation: Simulation, limits: Limits) -> list[str]:
    """Return why a transaction must not run, one clause for each reason; [] = it may."""
    reasons = [f"apt said something that is not understood ({line})" for line in simulation.odd]
    for change in simulation.changes:
        reason = (
            _removal(change)
            or _installation(change, limits)
            or _origin(change, simulation, limits)
            or _hold(change, simulation)
        )
        if reason:
            reasons.append(reason)
    if not reasons and (mixed := _mixture(simulation, limits)):
        reasons.append(mixed)
    return reasons


def _removal(change: Change) -> str | None:
    if change.new is not None or (change.old and is_driver(change.name, change.old)):
        return None
    return f"it would remove {change.name}, which is no part of the driver"


def _installation(change: Change, limits: Limits) -> str | None:
    name, old, new = change.name, change.old, change.new
    if new is None or new == old:
        return None  # the same again, as where an interrupted installation is finished
    if names.is_kernel(name):
        return f"it would install {name} {new}, a kernel"
    if not limits.is_driver(name, new):
        return f"it would downgrade {name} from {old} to {new}" if change.lower else None
    if limits.branch is not None and names.branch_of(new) != limits.branch:
        return f"{name} {new} would leave the declared branch {limits.branch} of the driver"
    if limits.version is not None:
        if driver_version(new) == limits.version:
            return None
        return f"{name} would get version {new}, not {limits.version} as the rest"
    # Going back to the declared branch is what data says.
    if change.lower and old and names.branch_of(old) == limits.branch:
        step = f"{name} from {old} to {new}"
        return f"it would downgrade {step}: declare `driver_version` if that is wanted"
    return None


def _origin(change: Change, simulation: Simulation, limits: Limits) -> str | None:
    """NVIDIA's packages come from the declared repository, by its label and by the file's URI.

    A driver of the distribution's own comes from its archive, by label: mirrors are many.
    """
    name = plain(change.name)
    if change.new is None or change.new == change.old:
        return None
    toolkit = names.is_nvidia(name) and name.startswith(("cuda-", "libcuda"))
    if not (is_driver(name, change.new) or toolkit):
        return None  # helpers of the distribution need not come from NVIDIA
    origin = " or ".join(change.labels)
    if limits.labels and not name.startswith("cuda-"):
        if set(change.labels) & set(limits.labels):
            return None
    else:
        # Data may say file:///path where apt writes file:/path.
        begin = limits.url.replace("file:///", "file:/") + "/"
        elsewhere = [
            uri
            for (of, arch), uri in simulation.fetches.items()
            if of == name and change.arch in (None, arch) and not uri.startswith(begin)
        ]
        if LABEL in change.labels and not elsewhere:
            return None
        origin = elsewhere[0] if elsewhere else origin
    return f"{change.name} {change.new} would come from another origin ({origin or 'unnamed'})"


def _hold(change: Change, simulation: Simulation) -> str | None:
    """What somebody else put on hold stays; the holds on the driver are ours."""
    name = plain(change.name)
    if not {name, change.name} & simulation.held:
        return None
    if any(is_driver(name, version) for version in (change.new, change.old) if version):
        return None
    return f"it would change {name}, which is on hold (`apt-mark unhold {name}` frees it)"


def _mixture(simulation: Simulation, limits: Limits) -> str | None:
    """Return how the driver's packages would differ from each other afterwards, or None.

    A transaction that leaves the driver alone may run while they differ: others repair that.
    """
    after, touched = dict(limits.installed), False
    for change in simulation.changes:
        touched |= limits.is_driver(change.name, change.new or change.old or "")
        after.pop(change.name, None)
        if change.new is not None and limits.is_driver(change.name, change.new):
            after[change.name] = change.new
    versions: dict[str, str] = {}
    for name, version in sorted(after.items()):
        if (driver := driver_version(version)) and plain(name) not in limits.apart:
            versions.setdefault(driver, name)
    if len(versions) < 2 or not touched:
        return None
    told = ", ".join(f"{name} {version}" for version, name in versions.items())
    return f"the driver's packages would be of more than one version ({told})"
