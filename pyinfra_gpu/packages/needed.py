"""Which distribution packages our stages and data need, and which of them a host lacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyinfra_gpu.spec import HostSpec

VENV = "python3-venv"  # Debian splits the venv module's ensurepip off python3
GIT = "git"
COMPILER = "g++"  # Inductor compiles C++; Triton a small module for each kernel
CCACHE = "ccache"  # torch is compiled through it: what a power cut spoilt is not compiled again
HEADERS = "python3-dev"  # that module includes Python.h


def needed(spec: HostSpec) -> tuple[str, ...]:
    """Return the Debian package names this specification needs on the host, sorted.

    Without a compiler and Python's headers `torch.compile` fails at its first use. The headers
    are those of the distribution's own Python: another one has to bring its own.
    """
    names = {VENV, *spec.packages.extra}
    if spec.training:
        names.add(GIT)
    if spec.pytorch.building and spec.pytorch.building.builder in (None, spec.host):
        names |= {GIT, COMPILER, HEADERS, CCACHE}
    if spec.environment.dynamo:
        names |= {COMPILER, HEADERS} if spec.pytorch.python == "python3" else {COMPILER}
    return tuple(sorted(names))


class NotTold(Protocol):
    """What facts hold in place of a value that the host would not tell."""

    @property
    def reason(self) -> str:
        """One clause that says why."""


def missing(spec: HostSpec, installed: Mapping[str, str] | NotTold) -> list[str]:
    """Return the needed packages that are not completely installed, in order.

    + installed: name -> version; where it is not told, nothing counts as missing

    Without root nothing could be installed, and a Python or git from elsewhere serves as well, so
    nothing counts as missing; a step that lacks its tool says so.
    """
    if spec.privilege == "none" or not isinstance(installed, Mapping):
        return []
    return [name for name in needed(spec) if name not in installed]
