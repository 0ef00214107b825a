"""Is torch the declared one, whole, in an environment whose Python runs? Judged, never touched."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyinfra_gpu.drift import pytorch_build, pytorch_files, pytorch_lock
from pyinfra_gpu.drift.finding import Finding, Id, Stage
from pyinfra_gpu.facts.fields import Unknown

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = Stage.PYTORCH

TORCH = (
    Id.PYTORCH_NOT_INSTALLED,
    Id.PYTORCH_INSTALLATION_INTERRUPTED,
    Id.PYTORCH_VERSION_DIFFERS,
    Id.PYTORCH_FILES_DAMAGED,
    Id.PYTORCH_LIBRARY_FOREIGN,
    Id.PYTORCH_DISTRIBUTION_DAMAGED,
    Id.PYTORCH_LOCK_DIFFERS,
    Id.PYTORCH_BUILD_DIFFERS,
    Id.PYTORCH_FALLBACK,
    Id.PYTORCH_IMPORT_ELSEWHERE,
)
"""What `pytorch.wheel` repairs."""

ENVIRONMENT = (
    Id.PYTORCH_ENVIRONMENT_MISSING,
    Id.PYTORCH_ENVIRONMENT_BROKEN,
    Id.PYTORCH_PYTHON_DIFFERS,
)
"""What `pytorch.virtual_environment` repairs."""

INSTALLER = (
    Id.PYTORCH_LOCK_MISSING,
    Id.PYTORCH_INSTALLER_MISSING,
    Id.PYTORCH_INSTALLER_DIFFERS,
)
"""What `pytorch.installer` repairs, or stops at: it comes first, and nothing is touched yet."""


def needed(spec: HostSpec, record: Record) -> tuple[object, ...]:
    """Return the facts that this stage cannot do without.

    Without a Python that runs, torch cannot be examined; then the environment is made anew first.
    """
    torch = record.torch
    environment = (
        *(torch.uv, record.layout.entry(spec.paths.venv), torch.python_problem),
        *pytorch_lock.facts(spec, record),
    )
    if any(isinstance(each, Unknown) for each in environment) or _environment(spec, record):
        return environment
    files = (torch.damaged, torch.damaged_others)
    return (*environment, torch.version, *files, torch.installing)


def summary(spec: HostSpec, record: Record) -> str:
    """Name the installed torch, where nothing differs."""
    del spec
    return f"torch {record.torch.version}"


def judge(spec: HostSpec, record: Record) -> list[Finding]:
    """Return in what the installer, the environment and torch are not as declared."""
    anew = _environment(spec, record)
    found = [*_installer(spec, record), *anew, *_torch(spec, record)]
    if not anew:
        found += pytorch_files.judge(spec, record)
    no_lock = pytorch_lock.missing(spec, record)
    return [*found, no_lock] if no_lock else found


def _installer(spec: HostSpec, record: Record) -> list[Finding]:
    wanted, there = spec.pytorch.uv_version, record.torch.uv
    differs = pytorch_lock.installer_differs(spec, record)
    if isinstance(there, Unknown) or (there == wanted and differs is None):
        return []
    return [
        Finding(
            id=Id.PYTORCH_INSTALLER_DIFFERS if there else Id.PYTORCH_INSTALLER_MISSING,
            found=_which_uv(there, differs if there == wanted else None),
            expected=f"uv {wanted} at {spec.paths.uv}",
            effect="repair",
            action=f"uv {wanted}",
        )
    ]


def _which_uv(version: str | None, differs: str | None) -> str:
    if version is None:
        return "no uv"
    return f"uv {version}, {differs}" if differs else f"uv {version}"


def _environment(spec: HostSpec, record: Record) -> list[Finding]:
    problem, python = record.torch.python_problem, record.torch.python
    asked = re.fullmatch(r"(?:python)?(\d+\.\d+(?:\.\d+)?)", spec.pytorch.python)
    if problem and not isinstance(problem, Unknown):
        id_, found = Id.PYTORCH_ENVIRONMENT_BROKEN, f"its Python does not run ({problem})"
    elif python is None:
        id_, found = Id.PYTORCH_ENVIRONMENT_MISSING, "no virtual environment"
    elif asked and isinstance(python, str) and not f"{python}.".startswith(f"{asked[1]}."):
        id_, found = Id.PYTORCH_PYTHON_DIFFERS, f"Python {python}, declared is {asked[1]}"
    elif other := _another_interpreter(spec, record):
        id_, found = Id.PYTORCH_PYTHON_DIFFERS, other
    else:
        return []
    return [
        Finding(
            id=id_,
            found=found,
            expected=f"a Python of {spec.pytorch.python} that runs in {spec.paths.venv}",
            effect="repair",
            action="virtual environment",
            packages=_interpreter(spec, record),
        )
    ]


def _another_interpreter(spec: HostSpec, record: Record) -> str | None:
    """Say what the environment was made from, where data names another interpreter by its path.

    Both are told by running them: a path may be a link, a version manager's shim, or within an
    environment, and the interpreter behind it is what a new one would be made from.
    """
    base, declared, path = record.torch.base, record.torch.declared, spec.pytorch.python
    if not path.startswith("/") or not isinstance(base, str) or isinstance(declared, Unknown):
        return None
    if declared is None:
        return f"made from {base}, and the declared {path} is not there"
    return f"made from {base}, declared is {path}" if declared != base else None


def _interpreter(spec: HostSpec, record: Record) -> tuple[str, ...]:
    """Name the distribution's packages without which the environment's Python cannot run."""
    versions = (spec.pytorch.python, record.system.python3, record.torch.python)
    found = [re.search(r"\b3\.\d+", str(each)) for each in versions]
    named = dict.fromkeys(f"python{each[0]}" for each in found if each)
    parts = [f"{name}-minimal" for name in named] + [f"lib{name}-stdlib" for name in named]
    return (*named, *parts, "python3", "python3-minimal")


def has_fallback(spec: HostSpec, record: Record) -> bool:
    """Tell whether the declared fallback is what is installed, and whole."""
    torch, fallback = record.torch, spec.pytorch.full_fallback
    whole = torch.installing is False and not torch.damaged
    return fallback is not None and torch.version == fallback and whole


def _fallback(spec: HostSpec) -> Finding:
    """Say so until it is cured: a host with another torch than declared is not as declared."""
    wanted = spec.pytorch
    return Finding(
        id=Id.PYTORCH_FALLBACK,
        found=f"torch {wanted.full_fallback}, the fallback",
        expected=f"torch {wanted.full_version}, {wanted.source}",
        effect="report",
        action=f"try torch {wanted.full_version} again, and keep the fallback where it fails",
        repeats=True,
    )


def is_there(record: Record) -> bool:
    """Tell whether a torch is installed, be it one whose version line is lost."""
    torch = record.torch
    if torch.version is not None:
        return True
    installed = torch.distributions
    return torch.python is not None and not isinstance(installed, Unknown) and "torch" in installed


def _torch(spec: HostSpec, record: Record) -> list[Finding]:
    """Judge torch itself; in an environment that is to be made anew it goes with the old one."""
    torch, wanted = record.torch, spec.pytorch.full_version
    if torch.version is None or _environment(spec, record):
        found = (
            "a torch without a version"
            if torch.version is None and is_there(record)
            else "no torch"
        )
        id_ = Id.PYTORCH_NOT_INSTALLED
    elif isinstance(torch.version, Unknown):
        return []
    elif has_fallback(spec, record):
        return [_fallback(spec)]
    elif torch.installing is True:
        id_ = Id.PYTORCH_INSTALLATION_INTERRUPTED
        found = f"torch {torch.version}, its installation was interrupted or goes on"
    elif torch.version != wanted:
        id_, found = Id.PYTORCH_VERSION_DIFFERS, f"torch {torch.version}"
    elif torch.damaged and not isinstance(torch.damaged, Unknown):
        id_, found = Id.PYTORCH_FILES_DAMAGED, f"torch {torch.version}, damaged: {torch.damaged[0]}"
    else:
        differs = pytorch_build.differs(spec, record)
        differs = differs or pytorch_lock.environment_differs(spec, record)
        return [differs] if differs else []
    return [
        Finding(
            id=id_,
            found=found,
            expected=f"torch {wanted}, whole",
            effect="repair",
            action=f"torch {wanted}",
        )
    ]
