"""Which distribution packages our stages and data need, and which of them a host lacks."""

from __future__ import annotations

from collections.abc import Mapping

from pyinfra_gpu.spec import HostSpec

VENV = "python3-venv"  # Debian splits the venv module's ensurepip off python3
GIT = "git"
COMPILER = "g++"  # Inductor compiles C++; Triton a small module for each kernel
CCACHE = "ccache"  # torch is compiled through it: what a power cut spoilt is not compiled again
HEADERS = "python3-dev"  # that module includes Python.h


def needed(spec: HostSpec, system_python: object = None) -> tuple[str, ...]:
    """Return the Debian package names this specification needs on the host, sorted.

    + system_python: the version of the distribution's own Python, e.g. "3.12.3", where it is known

    Without a compiler and Python's headers `torch.compile` fails at its first use. The headers
    are those of the distribution's own Python: another one has to bring its own.
    """
    names = {VENV, *spec.packages.extra}
    if spec.training:
        names.add(GIT)
    if spec.pytorch.building and spec.pytorch.building.builder in (None, spec.host):
        names |= {GIT, COMPILER, HEADERS, CCACHE}
    if spec.environment.dynamo:
        named = spec.pytorch.python.removeprefix("/usr/bin/").removeprefix("python")
        own = named == "3" or f"{system_python}.".startswith(f"{named}.")
        names |= {COMPILER, HEADERS} if own else {COMPILER}
    return tuple(sorted(names))


def missing(
    spec: HostSpec, installed: Mapping[str, str], system_python: object = None
) -> list[str]:
    """Return the needed packages that are not completely installed, in order.

    + installed: name -> version

    Without root nothing could be installed, and a Python or git from elsewhere serves as well, so
    nothing counts as missing; a step that lacks its tool says so.
    """
    if spec.privilege == "none":
        return []
    return [name for name in needed(spec, system_python) if name not in installed]
