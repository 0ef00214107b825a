"""Is there a wheel of the declared build, where it is needed? Judged by fingerprints."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pyinfra_gpu.facts.pytorch_build import Built
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.spec.model import BuildSpec
from pyinfra_gpu.stages.finding import Effect, Finding, Id, Stage, repair, stop
from pyinfra_gpu.stages.pytorch.lock import platform_of
from pyinfra_gpu.stages.rules import Rules, if_known, known, where

STAGE = Stage.PYTORCH

UNIT = "pyinfra-gpu-build.service"
"""The systemd unit that builds on a host."""

_LEFT_MIB = 1024
"""Of a host's memory that a build leaves alone, however little there is."""


def building(spec: HostSpec) -> BuildSpec:
    """Return what is declared of the build, where one is."""
    assert spec.pytorch.building is not None  # noqa: S101 - whoever asks has looked
    return spec.pytorch.building


def _commit(spec: HostSpec) -> str:
    return str(building(spec).commit)[:12]


def summary(spec: HostSpec, record: Record) -> str:
    """Say what is installed of a build, where nothing differs."""
    built = spec.pytorch.building is not None and isinstance(record.build.stamp, Built)
    return f"built from {_commit(spec)}" if built else ""


def _wheel(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge whether the wheel of the declared build is missing where it has to be installed.

    Nothing is built where nobody knows what is there, or whether a build goes on. With a fallback
    the run that cannot build it goes on, and the next one tries again.
    """
    state, _, torch = known(record.build.state), known(record.torch.version), spec.pytorch
    if _is_installed(spec, record) or has_wheel(spec, record):
        return
    expected = f"torch {torch.full_version} built from {_commit(spec)}"
    found, action = "no wheel of this build", f"build torch {torch.full_version}"
    if state is not None and not _is_of(spec, record, state):
        if state.running:
            found = f"another torch is being built here: {state.phase}"
            action = f"let it end, or end it there: `systemctl stop {UNIT}`"
            yield stop(Id.PYTORCH_BUILD_MISSING, found, expected, action)
            return
    elif state is not None and state.running:
        found = f"torch is being built: {state.phase} ({log(spec)} there shows it)"
        action = "follow the build"
    elif state is not None:
        found = f"no wheel: its build ended in {state.phase} ({log(spec)} there says why)"
    falls_back = torch.fallback is not None
    effect: Effect = "report" if falls_back else "repair"
    finding = repair(Id.PYTORCH_BUILD_MISSING, found, expected, action, effect=effect)
    yield replace(finding, repeats=falls_back)


def log(spec: HostSpec) -> str:
    """Return the command that shows the journal of a build, for a person."""
    return f"`journalctl {'--user ' if spec.privilege == 'none' else ''}-u {UNIT}`"


def is_whole(record: Record, version: str | None) -> bool:
    """Tell whether a torch of just this version is installed, all of its files with it."""
    torch = record.torch
    whole = torch.installing is False and not torch.damaged
    return version is not None and torch.version == version and whole


def _is_of(spec: HostSpec, record: Record, note: object) -> bool:
    """Tell whether a note on the host is of the declared build."""
    return getattr(note, "fingerprint", None) == fingerprint(spec, record)


def has_wheel(spec: HostSpec, record: Record) -> bool:
    """Tell whether the wheel of this build was built on the host, and proven."""
    return _is_of(spec, record, record.build.wheel)


def _is_installed(spec: HostSpec, record: Record) -> bool:
    whole = is_whole(record, spec.pytorch.full_version)
    return whole and _is_of(spec, record, record.build.stamp)


def may_give(spec: HostSpec, record: Record, build: str) -> bool:
    """Tell whether a host has the wheel of a build, or comes to build it in this run."""
    mine = spec.pytorch.building is not None and fingerprint(spec, record) == build
    return mine and (has_wheel(spec, record) or not _is_installed(spec, record))


def has_begun(spec: HostSpec, record: Record) -> bool:
    """Tell whether the declared build was begun on the host."""
    return _is_of(spec, record, record.build.state)


def differs(spec: HostSpec, record: Record) -> Finding | None:
    """Return the finding that what is installed is not of the declared build; None where it is."""
    stamp, commit = record.build.stamp, record.torch.git_version
    if spec.pytorch.building is None:
        return None
    if not isinstance(stamp, Built):
        found = "torch that was not built here"
    elif stamp.fingerprint != fingerprint(spec, record):
        names = ", ".join(changed(stamp.ingredients, ingredients(spec, record)))
        found = f"torch of another build: {names or 'its note'} changed"
    elif commit not in (building(spec).commit, None):
        found = f"torch of commit {str(commit)[:12]}"
    else:
        return None
    torch = f"torch {spec.pytorch.full_version}"
    return repair(
        Id.PYTORCH_BUILD_DIFFERS, found, f"{torch} built from {_commit(spec)}", f"install {torch}"
    )


def ingredients(spec: HostSpec, record: Record) -> dict[str, Any]:
    """Return everything declared or given by which one build is another than the next, by name.

    What only the builder can say follows from these: submodules and NCCL's tag from the commit;
    glibc and the compiler's minor number from the platform. An update of these is no reason to
    build for hours.
    """
    system, platform, build = record.system, platform_of(spec, record), building(spec)
    return {
        "the source": build.commit,
        "the version": spec.pytorch.full_version,
        "flags": [list(pair) for pair in sorted(build.settings.items())],
        "architectures": list(build.archs),
        "CUDA": spec.cuda.release if build.cuda else None,
        "the compiler": spec.cuda.host_compiler or "the distribution's",
        "rehearsal": spec.rehearsal,  # then nothing is proven that only PyTorch has
        "Python": None if platform is None else platform.python,
        "the platform": f"{system.os_id} {system.os_version} {system.architecture}",
    }


def fingerprint(spec: HostSpec, record: Record) -> str:
    """Return the name of one build: hosts with the same one can share its wheel."""
    text = json.dumps(ingredients(spec, record), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def memory_mib(spec: HostSpec, record: Record) -> int:
    """Return how much memory a build may use: as declared, else four fifths of the host's."""
    if (declared_gib := building(spec).memory_gib) is not None:
        return int(declared_gib * 1024)
    ram = if_known(record.system.ram_mib, 4 * _LEFT_MIB)
    return max(_LEFT_MIB, min(ram * 4 // 5, ram - _LEFT_MIB))


def changed(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Name the ingredients that are not the same."""
    return [name for name in now if before.get(name) != now[name]]


judge = Rules(*where(lambda spec: spec.pytorch.building is not None, _wheel))
