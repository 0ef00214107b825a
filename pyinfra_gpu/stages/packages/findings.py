"""Are the packages that the stages and `packages_extra` need installed? Judged, never touched."""

from __future__ import annotations

from collections.abc import Iterator

from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stages.finding import Finding, Id, Stage, repair, report
from pyinfra_gpu.stages.rules import Rules, if_known, known
from pyinfra_gpu.text import some

STAGE = Stage.PACKAGES

IDS = Id.of(STAGE)
"""What `packages.present` repairs."""

_NAMED = 3  # so many are named


def summary(spec: HostSpec, record: Record) -> str:
    """Say what was found where nothing is missing."""
    del spec, record
    return "complete"


def needed(spec: HostSpec, system_python: object = None) -> tuple[str, ...]:
    """Return the Debian package names this specification needs on the host, sorted.

    + system_python: the version of the distribution's own Python, e.g. "3.12.3", where it is known

    Without a compiler and Python's headers `torch.compile` fails at its first use. The headers
    are those of the distribution's own Python: another one has to bring its own.
    """
    names = {"python3-venv", *spec.packages.extra}
    if spec.training:
        names.add("git")
    if spec.pytorch.building and spec.pytorch.building.builder in (None, spec.host):
        names |= {"git", "g++", "python3-dev", "ccache"}
    if spec.accelerator == "nvidia":
        nvccs = spec.cuda.host_compiler or "g++"
        names |= {"g++", nvccs, nvccs.replace("gcc", "g++")}
    if spec.environment.dynamo:
        named = spec.pytorch.python.removeprefix("/usr/bin/").removeprefix("python")
        own = named == "3" or f"{system_python}.".startswith(f"{named}.")
        names |= {"g++", "python3-dev"} if own else {"g++"}
    return tuple(sorted(names))


def missing(spec: HostSpec, record: Record) -> tuple[str, ...]:
    """Return what is not completely installed of what is needed.

    Without root nothing could be installed, and a Python or git from elsewhere serves as well, so
    nothing counts as missing; a step that lacks its tool says so.
    """
    installed, wanted = known(record.packages.installed), needed(spec, record.system.python3)
    return tuple(x for x in wanted if x not in installed and spec.privilege != "none")


def _missing(spec: HostSpec, record: Record) -> Iterator[Finding]:
    if absent := missing(spec, record):
        found, action = f"missing packages: {', '.join(absent)}", f"install {', '.join(absent)}"
        expected = "the packages that the stages and `packages_extra` need"
        yield repair(Id.PACKAGES_MISSING, found, expected, action, absent)


def _unfinished(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Find packages of somebody's that stand half installed: each later installation stumbles.

    The driver's and those we need are finished by whoever repairs them; while somebody installs
    packages, others may be on their way.
    """
    half = known(record.packages.half_configured)
    if record.packages.lock_holder is not None:
        return
    ours = {*needed(spec), *(each.name for each in if_known(record.nvidia.packages, ()))}
    if foreign := tuple(name for name in half if name not in ours):
        found = f"{some(foreign, _NAMED)} not completely installed"
        expected = "no half-installed package, since it breaks the next installation"
        action, command = "left alone: not installed by this project", "sudo dpkg --configure -a"
        yield report(Id.PACKAGES_UNFINISHED, found, expected, action, command, foreign)


judge = Rules(_missing, _unfinished)
