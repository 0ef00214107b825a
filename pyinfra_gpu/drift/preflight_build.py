"""Why a host cannot build torch: room and memory, judged before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyinfra_gpu.drift import pytorch_build
from pyinfra_gpu.drift.finding import Finding, Id, stop
from pyinfra_gpu.drift.rules import known
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.pytorch_build import BuildState
from pyinfra_gpu.on_host.build.plan import MIB_PER_FLASH_JOB, MIB_PER_JOB
from pyinfra_gpu.stacks import catalogue

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

_LOWER = "let another host build, by `pytorch_builder`"


def obstacles(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge what keeps a host from building, where it is the one that would build now."""
    building = spec.pytorch.building
    if building is None or spec.rehearsal:
        return
    builder = building.builder or next(iter(building.members), spec.host)
    missing = [each.id for each in pytorch_build.judge(spec, record)] == [Id.PYTORCH_BUILD_MISSING]
    if builder == spec.host and missing:
        yield from filter(None, (_disk(spec, record), _memory(spec, record)))


def _disk(spec: HostSpec, record: Record) -> Finding | None:
    """Judge the room where there is a torch: without one, all that a host needs is asked for."""
    state, build = record.build.state, spec.paths.build
    wanted = pytorch_build.fingerprint(spec, record)
    begun = isinstance(state, BuildState) and state.fingerprint == wanted
    if record.torch.version is None or begun:  # what this build takes, it has taken in part
        return None
    need = min(spec.preflight.min_disk_gib, catalogue().build_disk_gib)
    free = known(record.storage.free_mib, f"the free disk space at {build}")
    if free >= need * 1024:
        return None
    found = f"{free / 1024:.1f} GiB free at {build}, where torch is to be built"
    expected = f"{need:g} GiB for its tree, its objects and its wheel"
    action = f"free some space, choose another `prefix`, {_LOWER}, or lower"
    action += " `preflight_min_disk_gib` if you know better"
    return stop(Id.PREFLIGHT_DISK_TOO_SMALL, found, expected, action)


def _memory(spec: HostSpec, record: Record) -> Finding | None:
    ram, building = record.system.ram_mib, spec.pytorch.building
    if isinstance(ram, Unknown) or building is None:
        return None
    usable = pytorch_build.memory_mib(spec, record)
    need = MIB_PER_FLASH_JOB if building.cuda else MIB_PER_JOB
    if building.memory_gib is not None and usable > ram:
        found = f"has {ram / 1024:.1f} GiB of memory, and `pytorch_build_memory_gib` ="
        found += f" {building.memory_gib:g}"
        expected = "a build that may use no more than there is"
        action = f"set `pytorch_build_memory_gib` = {max(1, ram * 4 // 5 // 1024)}, or None for"
        action += " four fifths of the host's"
    elif usable < need:
        found = f"a build of torch may use {usable / 1024:.1f} GiB of memory here"
        expected = f"{need / 1024:g} GiB, which one compiler alone may take"
        action = (
            f"raise `pytorch_build_memory_gib`, {_LOWER}, or declare `pytorch_source` = 'wheel'"
        )
    else:
        return None
    return stop(Id.PREFLIGHT_MEMORY_TOO_SMALL, found, expected, action)
