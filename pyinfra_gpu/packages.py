"""Which distribution packages our stages need, and which of them a host lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra_gpu.facts.fields import Unknown

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

VENV = "python3-venv"  # Debian splits the venv module's ensurepip off python3
GIT = "git"


def needed(spec: HostSpec) -> tuple[str, ...]:
    """Return the Debian package names this specification needs on the host, sorted."""
    return tuple(sorted({VENV, *([GIT] if spec.training else [])}))


def missing(spec: HostSpec, record: Record) -> list[str]:
    """Return the needed packages that are not completely installed, in order.

    Without root nothing could be installed, and a Python or git from elsewhere serves as well, so
    nothing counts as missing; a step that lacks its tool says so.
    """
    installed = record.packages.installed
    if spec.privilege == "none" or isinstance(installed, Unknown):
        return []
    return [name for name in needed(spec) if name not in installed]
