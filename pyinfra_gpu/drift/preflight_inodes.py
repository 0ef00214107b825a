"""A file system may have no inodes left while there is space: then no file can be made there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra_gpu.drift.finding import Finding, Id, stop
from pyinfra_gpu.facts.fields import Unknown

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

_OF_TORCH = 10_000  # files; its wheel alone has more
_OF_PACKAGES = 1_000
"""What the smallest of the driver's packages bring, and what is unpacked beside them."""


def obstacles(spec: HostSpec, record: Record, *, acting: bool) -> list[Finding]:
    """Return where too few are left; what has no number, or does not tell it, is not judged.

    + acting: whether packages are to be installed
    """
    free = record.storage.inodes
    if isinstance(free, Unknown):
        return []
    needs = dict.fromkeys(("/usr", "/var"), _OF_PACKAGES) if acting else {}
    if record.torch.version is None:
        needs[str(spec.paths.prefix)] = _OF_TORCH
    return [
        stop(
            Id.PREFLIGHT_TOO_FEW_INODES,
            found=f"{max(0, free[place])} inodes free at {place}, so no more files than that",
            expected=f"{need} for what is to be installed",
            action=f"see with `df -i {place}` which file system it is, and remove files there:"
            " `du --inodes -x` finds the folder that has millions",
        )
        for place, need in needs.items()
        if place in free and free[place] < need
    ]
