"""Why a host cannot build torch: room and memory, judged before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra_gpu.drift import pytorch_build
from pyinfra_gpu.drift.finding import CannotTell, Finding, Id, stop
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.pytorch_build import BuildState
from pyinfra_gpu.on_host.build.settings import least_mib
from pyinfra_gpu.stacks import catalogue

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import BuildSpec, HostSpec

_LOWER = "another host build, by `pytorch_builder`"


def obstacles(spec: HostSpec, record: Record) -> list[Finding | CannotTell]:
    """Return what keeps a host from building, where it is the one that would build now."""
    building = spec.pytorch.building
    if building is None or spec.rehearsal or not _builds(spec, record, building):
        return []
    found = [_disk(spec, record), _declared_memory(spec, record, building)]
    found += [_memory(spec, record, building), _cudnn(spec, record, building)]
    return [each for each in found if each]


def _builds(spec: HostSpec, record: Record, building: BuildSpec) -> bool:
    builder = building.builder or next(iter(building.members), spec.host)
    wanted = {Id.PYTORCH_BUILD_MISSING}
    return builder == spec.host and bool(
        wanted & {each.id for each in pytorch_build.judge(spec, record)}
    )


def _disk(spec: HostSpec, record: Record) -> Finding | CannotTell | None:
    """Judge the room where there is a torch: without one, all that a host needs is asked for."""
    free, state = record.storage.free_mib, record.build.state
    if record.torch.version is None:
        return None
    wanted = pytorch_build.fingerprint(spec, record)
    if isinstance(state, BuildState) and state.fingerprint == wanted:
        return None  # what this build takes, it has taken in part
    need = min(spec.preflight.min_disk_gib, catalogue().build_disk_gib)
    if isinstance(free, Unknown):
        return CannotTell(f"free disk space at {spec.paths.build} is unknown ({free.reason})")
    if free >= need * 1024:
        return None
    return stop(
        Id.PREFLIGHT_DISK_TOO_SMALL,
        found=f"{free / 1024:.1f} GiB free at {spec.paths.build}, where torch is to be built",
        expected=f"{need:g} GiB for its tree, its objects and its wheel",
        action=f"free some space, choose another `prefix`, let {_LOWER}, or lower"
        " `preflight_min_disk_gib` if you know better",
    )


def _declared_memory(spec: HostSpec, record: Record, building: BuildSpec) -> Finding | None:
    ram = record.system.ram_mib
    if building.memory_gib is None or isinstance(ram, Unknown) or building.memory_gib * 1024 <= ram:
        return None
    return stop(
        Id.PREFLIGHT_MEMORY_TOO_SMALL,
        found=f"has {ram / 1024:.1f} GiB of memory, and `pytorch_build_memory_gib` ="
        f" {building.memory_gib:g}",
        expected="a build that may use no more than there is",
        action=f"set `pytorch_build_memory_gib` = {max(1, ram * 4 // 5 // 1024)}, or None for four"
        " fifths of the host's",
    )


def _memory(spec: HostSpec, record: Record, building: BuildSpec) -> Finding | None:
    usable, need = pytorch_build.memory_mib(spec, record), least_mib(building.settings)
    if isinstance(record.system.ram_mib, Unknown) or usable >= need:
        return None
    return stop(
        Id.PREFLIGHT_MEMORY_TOO_SMALL,
        found=f"a build of torch may use {usable / 1024:.1f} GiB of memory here",
        expected=f"{need / 1024:g} GiB, which one compiler alone may take",
        action=f"raise `pytorch_build_memory_gib`, let {_LOWER}, or declare `pytorch_source` ="
        " 'wheel'",
    )


def _cudnn(spec: HostSpec, record: Record, building: BuildSpec) -> Finding | None:
    """Judge the declared one alone: CMake knows more places of the system's than are looked at."""
    if building.cudnn is None or not building.takes_cudnn or record.build.cudnn is not None:
        return None
    return stop(
        Id.PREFLIGHT_CUDNN_MISSING,
        found=f"no cudnn_version.h in {building.cudnn}/include",
        expected=f"the cuDNN that torch is to be built with, as `pytorch_cudnn` = {building.cudnn}",
        action="unpack NVIDIA's archive of cuDNN there, or declare the folder that has its include"
        " and lib",
    )
