"""What is declared for a host of the run: its data resolved, its group and its locks known."""

from __future__ import annotations

from pathlib import Path
from weakref import WeakKeyDictionary

from pyinfra.api.host import Host

from pyinfra_gpu import compatibility
from pyinfra_gpu.drift.pytorch_build import changed
from pyinfra_gpu.drift.pytorch_build import declared as kind
from pyinfra_gpu.drift.smoke import ACROSS_RANKS as RANKS
from pyinfra_gpu.errors import SpecError, sentence
from pyinfra_gpu.host_names import brief
from pyinfra_gpu.on_host.smoke.options import MAX_RANKS
from pyinfra_gpu.spec import AcrossSpec, HostSpec, lock
from pyinfra_gpu.spec.types import LONGEST_LIST

_KEPT: WeakKeyDictionary[Host, HostSpec] = WeakKeyDictionary()


def declared(host: Host) -> HostSpec:
    """Return what a host should be; it is found out once in a run.

    + host: pyinfra's, with its inventory

    Raises SpecError with one sentence where its data is wrong or cannot work.
    """
    if host not in _KEPT:
        wanted = compatibility.resolve(data_of(host), host.name)
        torch, across = wanted.pytorch, wanted.smoke.across
        if torch.building is not None:
            wanted = _with_builders(wanted, host)
        elif torch.lock != "ignore":
            locks = lock.read(Path.cwd(), torch.full_version)
            wanted = wanted.but(pytorch=torch.but(locks=locks))
        if across is not None:
            wanted = wanted.but(smoke=wanted.smoke.but(across=_with_members(across, host)))
        _KEPT[host] = wanted
    return _KEPT[host]


def data_of(host: Host) -> dict[str, object]:
    """Return a host's data as pyinfra merges it: command line over host over group over all."""
    return dict(host.data.dict())  # type: ignore[no-untyped-call]


def _with_builders(spec: HostSpec, host: Host) -> HostSpec:
    """Say which hosts build torch from source too, of which one may build for this one.

    A builder is refused whose wheel would be another build's, as far as data says so.
    """
    building = spec.pytorch.building
    assert building is not None  # noqa: S101 - for mypy
    hosts = {each.name: each for each in host.inventory}
    members = tuple(x for x in hosts if hosts[x].data.get("pytorch_source") == "source")
    builder, wrong = building.builder, None
    if builder is not None and builder not in members:
        wrong = (
            "is no host of this inventory that declares pytorch_source = 'source'",
            ", ".join(members[:LONGEST_LIST]),
            f"set pytorch_builder = {spec.host!r}, or None for the first of its kind",
        )
    elif builder not in (None, spec.host):
        other = compatibility.resolve(data_of(hosts[str(builder)]), str(builder))
        if names := ", ".join(changed(kind(spec), kind(other))):
            wrong = (
                f"builds another torch than is declared here ({names} differ)",
                "a host that declares the same build",
                "remove pytorch_builder, and each kind builds its own, or declare the same",
            )
    if wrong:
        problem, allowed, remedy = wrong
        where = f"host {spec.host}"
        raise SpecError(
            sentence(where, "pytorch_builder", builder, problem, allowed=allowed, remedy=remedy)
        )
    return spec.but(pytorch=spec.pytorch.but(building=building.but(members=members)))


def _with_members(across: AcrossSpec, host: Host) -> AcrossSpec:
    """Say who takes part in the multi-node step. Raises SpecError where it cannot be."""
    inventory = host.inventory
    declares = {each.name: each.data.get("smoke_across_hosts") for each in inventory}
    if across.hosts is True:
        members = [name for name, said in declares.items() if said is True]
    elif across.hosts in inventory.groups:
        members = [each.name for each in inventory.get_group(across.hosts)]
    else:
        members = []
    unlike = [name for name in members if declares[name] != across.hosts]
    impossible, most = None, MAX_RANKS // RANKS
    if host.name not in members:
        impossible = "this host is in no such group of this inventory"
    elif len(members) < 2:
        impossible = "there is no other host to train with"
    elif unlike:
        impossible = f"{brief(unlike)} does not declare the same"
    elif len(members) > most:
        impossible = f"that is {len(members)} hosts, and at most {most} can take part in one step"
    if impossible:
        raise SpecError(
            sentence(
                f"host {host.name}",
                "smoke_across_hosts",
                across.hosts,
                f"cannot be: {impossible}",
                allowed="a group of at least two hosts that all declare it, or True",
                remedy="correct smoke_across_hosts, or remove it",
            )
        )
    return across.but(members=tuple(members))
