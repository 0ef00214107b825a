"""Which locks the hosts of an inventory need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyinfra.context import ctx_host

from pyinfra_gpu.drift.pytorch_lock import platform_of
from pyinfra_gpu.engine.declared import declared
from pyinfra_gpu.engine.look import Unanswered, answer
from pyinfra_gpu.engine.uv import index_options
from pyinfra_gpu.report.check.running import Request, visit
from pyinfra_gpu.spec.lock import Platform
from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu.text import one_line

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.spec import HostSpec

_SAY_IT = "say it: --platform 3.12-x86_64"


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Source:
    """Where torch is from, if it is no published wheel.

    + nightly: its files are those that this machine keeps
    + git, archive: URL of the tree that it is built from; identity: the commit, or the digest
    """

    nightly: bool = False
    git: str = ""
    archive: str = ""
    identity: str = ""


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Wanted:
    """What one lock is to hold.

    + torch, requirement: "2.13.0+cpu", and what the index is asked for: "torch==2.13.0+cpu"
    + uv: version of the installer
    + glibc: the oldest that torch's wheels load on, e.g. "2.28"; "" where it is not known
    + indexes: options that name the declared ones, for pip and uv
    """

    torch: str
    platform: Platform
    requirement: str
    uv: str
    glibc: str
    indexes: tuple[str, ...]
    source: Source = Source()


@dataclass(frozen=True, kw_only=True, slots=True)
class HostNeeds:
    """What one host needs; `problem`: why that cannot be told, a sentence."""

    name: str
    wanted: tuple[Wanted, ...] = ()
    problem: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Needs:
    """What the hosts of an inventory need: each thing once, with the names of the hosts."""

    hosts: dict[Wanted, list[str]]
    problems: tuple[str, ...]


def needs(request: Request, platforms: Sequence[Platform]) -> Needs:
    """Return which locks the hosts need; where `platforms` say it, no host is contacted.

    + platforms: those that every host is taken for; [] = look at each host for its own
    """
    found: dict[str, HostNeeds] = {}

    def kept(each: HostNeeds, names: Sequence[str]) -> None:
        del names
        found[each.name] = each

    names, problems = visit(request, partial(_of_host, platforms), kept)
    hosts: dict[Wanted, list[str]] = {}
    for name in names:
        for wanted in found[name].wanted:
            hosts.setdefault(wanted, []).append(name)
    told = (found[name].problem for name in names)
    return Needs(hosts=dict(sorted(hosts.items())), problems=(*problems, *filter(None, told)))


def _of_host(platforms: Sequence[Platform], state: State, host: Host) -> HostNeeds:
    try:
        with ctx_host.use(host):
            spec = declared(host)
            if spec.pytorch.lock == "ignore":
                return HostNeeds(name=host.name)
            seen = platforms or _platform(state, host, spec)
    except Exception as error:  # one host's failure is one host's failure
        return _cannot_tell(host.name, f"{type(error).__name__}: {error}")
    if isinstance(seen, str):
        return _cannot_tell(host.name, seen)
    return HostNeeds(name=host.name, wanted=tuple(_wanted(spec, each) for each in seen))


def _cannot_tell(name: str, why: str) -> HostNeeds:
    sentence = f"{name}: its Python and machine cannot be told: {why}; {_SAY_IT}"
    return HostNeeds(name=name, problem=one_line(sentence))


def _platform(state: State, host: Host, spec: HostSpec) -> tuple[Platform, ...] | str:
    """Return the host's platform, or why it cannot be told, a clause."""
    seen = answer(state, host, spec)
    if isinstance(seen, Unanswered):
        return seen.reason
    platform = platform_of(spec, seen)
    if platform is None:
        return f"pytorch_python = {spec.pytorch.python!r} names no version there"
    return (platform,)


def _wanted(spec: HostSpec, platform: Platform) -> Wanted:
    torch, release = spec.pytorch, catalogue().torch.get(spec.pytorch.version)
    return Wanted(
        torch=torch.full_version,
        platform=platform,
        requirement=torch.requirement,
        uv=torch.uv_version,
        glibc=(release.glibc if release else None) or "",
        indexes=tuple(index_options(spec)),
        source=_source(spec),
    )


def _source(spec: HostSpec) -> Source:
    building = spec.pytorch.building
    if building is None:
        return Source(nightly=spec.pytorch.nightly)
    git, archive = building.git_url or "", building.source_url or ""
    return Source(git=git, archive=archive, identity=building.identity)
