"""What is declared for a host of the run: its data resolved, its group and its locks known."""

from __future__ import annotations

from pathlib import Path
from weakref import WeakKeyDictionary

from pyinfra.api.host import Host

from pyinfra_gpu import compatibility
from pyinfra_gpu.errors import SpecError, sentence
from pyinfra_gpu.host_names import brief
from pyinfra_gpu.on_host.smoke.options import MAX_RANKS
from pyinfra_gpu.spec import AcrossSpec, HostSpec, lock
from pyinfra_gpu.spec.types import LONGEST_LIST
from pyinfra_gpu.stages.smoke.findings import ACROSS_RANKS as RANKS

_KEPT: WeakKeyDictionary[Host, HostSpec] = WeakKeyDictionary()


def declared(host: Host) -> HostSpec:
    """Return what a host should be; it is found out once in a run.

    + host: pyinfra's, with its inventory

    Raises SpecError with one sentence where its data is wrong or cannot work.
    """
    if host not in _KEPT:
        data = host.data.dict()  # type: ignore[no-untyped-call]
        wanted = compatibility.resolve(data, host.name)
        torch, smoke = wanted.pytorch, wanted.smoke
        if torch.building is not None:
            _refuse_unknown_builder(wanted, host)
        elif torch.lock != "ignore":
            locks = lock.read(Path.cwd(), torch.full_version)
            wanted = wanted.but(pytorch=torch.but(locks=locks))
        if smoke.across is not None:
            across = smoke.across.but(members=_members(smoke.across, host))
            wanted = wanted.but(smoke=smoke.but(across=across))
        _KEPT[host] = wanted
    return _KEPT[host]


def _refuse_unknown_builder(spec: HostSpec, host: Host) -> None:
    """Raise SpecError where the host that is to build torch builds none."""
    builder = spec.pytorch.building and spec.pytorch.building.builder
    builds = [x.name for x in host.inventory if x.data.get("pytorch_source") == "source"]
    if builder is not None and builder not in builds:
        raise SpecError(
            sentence(
                f"host {spec.host}",
                "pytorch_builder",
                builder,
                "is no host of this inventory that declares pytorch_source = 'source'",
                allowed=", ".join(builds[:LONGEST_LIST]),
                remedy=f"set pytorch_builder = {spec.host!r}, or None for the first of its kind",
            )
        )


def _members(across: AcrossSpec, host: Host) -> tuple[str, ...]:
    """Return who takes part in the multi-node step. Raises SpecError where it cannot be."""
    inventory = host.inventory
    declares = {each.name: each.data.get("smoke_across_hosts") for each in inventory}
    members: list[str] = []
    if across.hosts is True:
        members = [name for name, said in declares.items() if said is True]
    elif across.hosts in inventory.groups:
        members = [each.name for each in inventory.get_group(across.hosts)]
    unlike = brief(name for name in members if declares[name] != across.hosts)
    problem, most = "", MAX_RANKS // RANKS
    if host.name not in members or len(members) < 2:
        problem = "this host is in no such group of this inventory with another host"
    elif unlike:
        problem = f"{unlike} does not declare the same"
    elif len(members) > most:
        problem = f"that is {len(members)} hosts, and at most {most} can take part in one step"
    if problem:
        found = (f"host {host.name}", "smoke_across_hosts", across.hosts, f"cannot be: {problem}")
        allowed = "a group of at least two hosts that all declare it, or True"
        remedy = "correct smoke_across_hosts, or remove it"
        raise SpecError(sentence(*found, allowed=allowed, remedy=remedy))
    return tuple(members)
