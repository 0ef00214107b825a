"""Is what is installed what the lock for this host names? And is there a lock at all?"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_version

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.spec.lock import COMMAND, FOLDER, Lock, Platform
from pyinfra_gpu.stages.finding import Finding, Id, note, repair, stop
from pyinfra_gpu.stages.rules import known
from pyinfra_gpu.text import some

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

_HOSTS_OWN = ("python3", "/usr/bin/python3")
_NAMED = 3  # so many packages that differ are told


def platform_of(spec: HostSpec, record: Record) -> Platform | None:
    """Return what wheels for a host are made for; None where that cannot be told (yet).

    The declared Python, else that of the environment that is there, else the host's own.
    """
    machine, own = record.system.architecture, spec.pytorch.python in _HOSTS_OWN
    there = record.torch.python if record.torch.python_problem is None else None
    if there is None and own:
        there = record.system.python3
    python = re.search(r"(3\.\d+)(?:\.\d+)?$", spec.pytorch.python)
    python = python or (re.match(r"(3\.\d+)", there) if isinstance(there, str) else None)
    if python is None or isinstance(machine, Unknown):
        return None
    return Platform(python=python[1], machine=machine)


def lock_of(spec: HostSpec, record: Record) -> Lock | None:
    """Return the lock that a host's environment is installed from; None where there is none."""
    wanted, uv = platform_of(spec, record), f"uv=={spec.pytorch.uv_version} "
    its = (x for x in spec.pytorch.locks if x.platform == wanted and x.installer.startswith(uv))
    return next(its, None)


def missing(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge whether a host has a lock, where its platform is known: it may have no Python yet."""
    wanted, platform = spec.pytorch, platform_of(spec, record)
    if wanted.lock != "ignore" and not wanted.building and platform and not lock_of(spec, record):
        yield no_lock(spec, platform)


def no_lock(spec: HostSpec, platform: Platform | None) -> Finding:
    """Return the finding that there is no lock for a platform."""
    wanted, command = spec.pytorch, f"{COMMAND} INVENTORY"
    found = f"no lock for {platform or 'an unknown Python'}"
    expected = f"one of torch {wanted.full_version} and uv {wanted.uv_version} in {FOLDER}/"
    if wanted.lock == "required":
        action = f"run `{command}`, and keep what it writes in version control"
        expected += ", since pytorch_lock = 'required'"
        return stop(Id.PYTORCH_LOCK_MISSING, found, expected, action)
    action = "what the index serves is installed, whatever its digest"
    return note(Id.PYTORCH_LOCK_MISSING, found, expected, action, command)


def environment_differs(spec: HostSpec, record: Record) -> Finding | None:
    """Return the finding that the environment does not hold what the lock names.

    Raises CannotTell where the note of the lock cannot be read.
    """
    if (lock := lock_of(spec, record)) is None:
        return None
    there = known(record.torch.distributions)
    other = [
        f"{name} {there.get(name, 'is missing')}, locked is {version}"
        for name, version in lock.versions.items()
        if canonicalize_version(there.get(name, "")) != canonicalize_version(version)
    ]
    entry, noted = known(record.layout.entry(spec.paths.torch_lock)), lock.requirements.encode()
    if entry.kind != "file":
        found = "installed without a lock"
    elif known(entry.sha256) != hashlib.sha256(noted).hexdigest():
        found = "installed by another lock"
    else:
        found = some(other, _NAMED)
    expected, action = f"what {lock.path} names", "install what the lock names"
    return repair(Id.PYTORCH_LOCK_DIFFERS, found, expected, action) if found else None
