"""Is torch the declared one, whole, in an environment whose Python runs? Judged, never touched."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.facts.stamps import TrainingStamp
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stages.finding import Finding, Id, Stage, note, repair, report
from pyinfra_gpu.stages.pytorch import lock as pytorch_lock
from pyinfra_gpu.stages.pytorch.lock import lock_of
from pyinfra_gpu.stages.pytorch_build import findings as pytorch_build
from pyinfra_gpu.stages.rules import Rules, if_known, known
from pyinfra_gpu.text import some

STAGE = Stage.PYTORCH

_NAMED = 3  # so many damaged distributions are named


def summary(spec: HostSpec, record: Record) -> str:
    """Name the installed torch, where nothing differs."""
    del spec
    return f"torch {record.torch.version}"


def _installer(spec: HostSpec, record: Record) -> Iterator[Finding]:
    wanted, there = spec.pytorch.uv_version, known(record.torch.uv)
    if there != wanted:
        found = f"uv {there}" if there else "no uv"
        expected = f"uv {wanted} at {spec.paths.uv}"
        yield repair(Id.PYTORCH_INSTALLER_DIFFERS, found, expected, f"install uv {wanted}")


def _environment(spec: HostSpec, record: Record) -> Iterator[Finding]:
    known(record.layout.entry(spec.paths.venv))
    if found := environment_problem(spec, record):
        expected = f"a Python of {spec.pytorch.python} that runs in {spec.paths.venv}"
        packages, action = _interpreter(spec, record), "create the virtual environment"
        yield repair(Id.PYTORCH_ENVIRONMENT_DIFFERS, found, expected, action, packages)


def environment_problem(spec: HostSpec, record: Record) -> str | None:
    """Say why the environment has to be replaced; None where it is as declared.

    Where data names an interpreter by its path, both are found by running them: a path may be a
    link, a version manager's shim, or within an environment, and the interpreter behind it is what
    a new one would be made from.
    """
    torch, wanted = record.torch, spec.pytorch.python
    if problem := known(torch.python_problem):
        return f"its Python does not run ({problem})"
    if torch.python is None:
        return "no virtual environment"
    python, base = if_known(torch.python, None), if_known(torch.base, None)
    asked = re.fullmatch(r"(?:python)?(\d+\.\d+(?:\.\d+)?)", wanted)
    if asked and python and not f"{python}.".startswith(f"{asked[1]}."):
        return f"Python {python}, declared is {asked[1]}"
    if not wanted.startswith("/") or base is None:
        return None
    declared = if_known(torch.declared, base)
    if declared is None:
        return f"made from {base}, and the declared {wanted} is not there"
    return f"made from {base}, declared is {wanted}" if declared != base else None


def _interpreter(spec: HostSpec, record: Record) -> tuple[str, ...]:
    """Name the distribution's packages without which the environment's Python cannot run."""
    versions = (spec.pytorch.python, record.system.python3, record.torch.python)
    found = [re.search(r"\b3\.\d+", str(each)) for each in versions]
    named = dict.fromkeys(f"python{each[0]}" for each in found if each)
    parts = [f"{name}-minimal" for name in named] + [f"lib{name}-stdlib" for name in named]
    return (*named, *parts, "python3", "python3-minimal")


def has_fallback(spec: HostSpec, record: Record) -> bool:
    """Tell whether the declared fallback is what is installed, and whole."""
    return pytorch_build.is_whole(record, spec.pytorch.full_fallback)


def held(spec: HostSpec, record: Record) -> str:
    """Return what asks for the torch that stays, whatever else is installed: a fallback does."""
    torch = spec.pytorch
    return f"torch=={torch.full_fallback}" if has_fallback(spec, record) else torch.requirement


def is_there(record: Record) -> bool:
    """Tell whether a torch is installed, be it one whose version line is lost."""
    return record.torch.version is not None or "torch" in _versions(record)


def _versions(record: Record) -> Mapping[str, str]:
    return if_known(record.torch.distributions, {})


def of_torch(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge torch itself; in an environment that has to be replaced it goes with the old one.

    Its fallback is reported until the declared torch is there: the host is not as declared.
    """
    torch, declared, wanted = record.torch, spec.pytorch, spec.pytorch.full_version
    expected, action = f"torch {wanted} with intact files", f"install torch {wanted}"
    there = None if environment_problem(spec, record) else known(torch.version)
    if there is None:
        lost = torch.version is None and is_there(record)
        found = "a torch without a version" if lost else "no torch"
        yield repair(Id.PYTORCH_VERSION_DIFFERS, found, expected, action)
        return
    damaged, installing = known(torch.damaged), known(torch.installing)
    if has_fallback(spec, record):
        found, expected = f"torch {there}, the fallback", f"torch {wanted}, {declared.source}"
        action = f"try torch {wanted} again, and keep the fallback where it fails"
        finding = report(Id.PYTORCH_FALLBACK, found, expected, action)
        yield replace(finding, repeats=True)
    elif installing:
        found = f"torch {there}, its installation was interrupted or goes on"
        yield repair(Id.PYTORCH_FILES_DAMAGED, found, expected, action)
    elif there != wanted:
        yield repair(Id.PYTORCH_VERSION_DIFFERS, f"torch {there}", expected, action)
    elif damaged:
        found = f"torch {there}, damaged: {damaged[0]}"
        yield repair(Id.PYTORCH_FILES_DAMAGED, found, expected, action)
    elif differs := (
        pytorch_build.differs(spec, record) or pytorch_lock.environment_differs(spec, record)
    ):
        yield differs


def _beside(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge what lies beside torch: libraries, what leads Python elsewhere, other distributions.

    torch loads a library that somebody copied beside its own; a .pth or a sitecustomize has Python
    import another torch. Other distributions of ours are repaired, a user's own only noted.
    """
    torch, id_ = record.torch, Id.PYTORCH_FILES_DAMAGED
    if environment_problem(spec, record):
        return
    if there := if_known(torch.foreign, ()):
        libraries = some(there, _NAMED)
        found = f"{libraries} beside torch's own libraries, and of no wheel"
        expected = "no library there but those that its wheel recorded"
        yield repair(id_, found, expected, f"set aside {libraries} as NAME.before-pyinfra-gpu")
    if said := if_known(torch.elsewhere, None):
        name, _, origin = said.partition(" ")
        found = f"`import torch` takes {origin} because of {name}, which belongs to no package"
        expected, action = "the environment's own torch", f"left alone: it is yours. Remove {name}"
        yield report(Id.PYTORCH_IMPORT_ELSEWHERE, found, expected, action)
    rows = (
        if_known(torch.damaged_others, {}) if torch.version is None else known(torch.damaged_others)
    )
    ours = damaged(spec, record)
    users = [name for name in rows if name not in ours]
    expected = "each of its files there, of the size its wheel recorded"
    for judged, names, action in (
        (repair, ours, f"reinstall {some(ours, _NAMED)}"),
        (note, users, "left alone: neither torch nor the training needs it"),
    ):
        if names:
            found = some([f"{name} damaged: {rows[name]}" for name in names], _NAMED)
            yield judged(id_, found, expected, action)


def damaged(spec: HostSpec, record: Record) -> list[str]:
    """Return the names of the damaged distributions that were installed by us, torch excepted.

    That is what the lock names, torch needs, or the training asked for.
    """
    lock = lock_of(spec, record)
    noted = TrainingStamp.read(if_known(record.training.stamp_text, None))
    asked = noted.distributions if isinstance(noted, TrainingStamp) else {}
    ours = {*(lock.lines if lock else ()), *if_known(record.torch.needs, ()), *asked}
    return [name for name in if_known(record.torch.damaged_others, {}) if name in ours]


def requirements(record: Record, names: Sequence[str]) -> list[str]:
    """Return what asks for distributions in the versions that are there; of two in the last."""
    versions = _versions(record)
    return [f"{n}=={versions[n].rpartition(' and ')[2]}" for n in names if n in versions]


def unlisted(spec: HostSpec, record: Record) -> list[str]:
    """Return folders of metadata without their list of files, which an interrupted removal leaves.

    No installer can remove what nobody lists, and uv gives up where it reads one.
    """
    damages = if_known(record.torch.damaged_others, {})
    rows = [damages[name].partition("/") for name in damaged(spec, record)]
    return [folder for folder, _, file in rows if file == "RECORD"]


judge = Rules(_installer, _environment, of_torch, _beside, pytorch_lock.missing)
