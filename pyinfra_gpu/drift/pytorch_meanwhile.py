"""Is torch to be fetched while the driver is installed? Judged, never touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra_gpu.drift import cuda, driver_packages, preflight, put_off
from pyinfra_gpu.drift.finding import Finding, Id
from pyinfra_gpu.drift.pytorch_lock import lock_of, platform_of
from pyinfra_gpu.facts.fields import Unknown

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec


def judge(spec: HostSpec, record: Record) -> Finding | None:
    """Return the note that torch's files are fetched meanwhile; None where they are not.

    To be asked where torch is not installed. It is a release's wheels from an index or a mirror,
    and the driver's packages are to be installed: else nothing would go on beside it. Nobody else
    uses the package manager, and there is room for both.
    """
    wanted, packages = spec.pytorch, record.packages
    if spec.accelerator != "nvidia" or spec.privilege != "sudo" or wanted.source != "wheel":
        return None
    if (wanted.wheels or "").startswith("/") or platform_of(spec, record) is None:
        return None
    if wanted.lock == "required" and lock_of(spec, record) is None:
        return None
    if packages.half_configured or packages.lock_holder is not None or put_off.waits_for(record):
        return None
    if record.torch.installing is True or not _driver_comes(spec, record):
        return None
    if not _has_room(spec, record):
        return None
    return Finding(
        id=Id.PYTORCH_FETCHED_MEANWHILE,
        found="neither a driver nor torch",
        expected="both",
        effect="note",
        action=f"torch {wanted.full_version} is fetched while the driver is installed",
    )


def _driver_comes(spec: HostSpec, record: Record) -> bool:
    if any(isinstance(each, Unknown) for each in driver_packages.needed(spec, record)):
        return False
    found = driver_packages.judge(spec, record)
    return any(each.id is Id.DRIVER_NOT_INSTALLED and each.acts for each in found)


def _has_room(spec: HostSpec, record: Record) -> bool:
    """Tell whether all of it fits, be it on one file system.

    Preflight asks for each place by itself: where that is too little, the driver comes first.
    """
    free = record.storage.free_mib
    system = preflight.takes_gib({each.id for each in cuda.judge(spec, record)})
    system += preflight.takes_gib({Id.DRIVER_NOT_INSTALLED})
    return isinstance(free, int) and free >= (spec.preflight.min_disk_gib + system) * 1024
