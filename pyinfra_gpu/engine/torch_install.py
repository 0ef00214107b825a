"""How torch comes into the environment: a release, a nightly, what was built, or its fallback."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from pyinfra.api.command import FunctionCommand

from pyinfra_gpu.drift import pytorch as drift
from pyinfra_gpu.drift import pytorch_build
from pyinfra_gpu.engine import deadlines, nightlies
from pyinfra_gpu.engine.converge import Commands, refuse
from pyinfra_gpu.engine.privilege import as_owner
from pyinfra_gpu.engine.steps import quoted, step
from pyinfra_gpu.engine.together import executing
from pyinfra_gpu.engine.uv import install_command, installing_mark, lock_commands, marked, new_lock
from pyinfra_gpu.engine.write import File, write
from pyinfra_gpu.facts.pytorch_build import Manifest
from pyinfra_gpu.on_host import program

if TYPE_CHECKING:
    from pyinfra.api.command import PyinfraCommand

    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec
    from pyinfra_gpu.spec.lock import Lock

STAGE = drift.STAGE


def install(spec: HostSpec, record: Record, lock: Lock | None, complaint: str) -> Commands:
    """Install torch, from where it is declared to come, by the lock where there is one.

    + lock: what names the files and their digests; without one uv resolves
    + complaint: what is wrong with the torch that is there, in a few words for the screen

    The mark stays when the command is cut off, whatever cut it off, and tells the next run that
    files may be missing although their names are there.
    """
    torch = spec.pytorch
    if torch.building is not None:
        yield from _install_built(spec, record, complaint)
        return
    files: list[str] = []
    if torch.nightly:  # the controller keeps its files; the first host has them kept
        names: list[str] = []
        yield FunctionCommand(nightlies.brought, (spec, record, names), {})
        if executing() and not names:
            yield from _install_fallback(spec, record)
            return
        files = [nightlies.path_of(spec, name) for name in names]
    if lock is None:
        command, by = _without_lock(spec, record, *(files or [torch.requirement])), ""
    else:
        command = yield from _by_lock(spec, record, lock, [*map(os.path.dirname, files)])
        by = f" by {lock.path}"
    if record.torch.installing is True:
        # Another run may have been at work when we looked, and have finished meanwhile.
        command = f"[ ! -e {quoted(installing_mark(spec))} ] || {{ {command}; }}"
    what = f"install torch {torch.full_version}{by} ({complaint})"
    yield long_step(spec, record, what, command)


def _without_lock(spec: HostSpec, record: Record, *wanted: str, noted: str = "true") -> str:
    """Return the command that installs a torch, whatever its version, in the place of another.

    + noted: a command that notes what was installed
    """
    command = install_command(spec, *wanted)
    if drift.is_there(record):
        command += ["--reinstall-package", "torch"]
    return marked(spec, command, after=f"{noted} && {quoted('rm', '-f', spec.paths.torch_lock)}")


def _install_built(spec: HostSpec, record: Record, complaint: str) -> Commands:
    """Install the wheel that was built, if it is still the one that was proven."""
    wheel, paths = record.build.wheel, spec.paths
    what = f"install the built torch {spec.pytorch.full_version} ({complaint})"
    if not isinstance(wheel, Manifest) or not pytorch_build.has_wheel(spec, record):
        if executing() and spec.pytorch.fallback is not None:
            yield from _install_fallback(spec, record)
        elif executing():
            yield refuse(STAGE, f"{spec.host}: there is no wheel of the declared build: run again")
        else:  # it will have been built by then
            yield long_step(spec, record, what, "true")
        return
    path, manifest = f"{paths.build}/wheels/{wheel.file}", f"{paths.build}/wheel.json"
    noted = f"cp -T -- {quoted(manifest)} {quoted(f'{paths.venv}/.pyinfra-gpu-build.json')}"
    proven = program("build/proven.sh", path, wheel.sha256, manifest)
    command = _without_lock(spec, record, path, noted=noted)
    yield long_step(spec, record, what, f"{proven} && {{ {command}; }}")


def _install_fallback(spec: HostSpec, record: Record) -> Commands:
    """Install the release that data declares where the build or the nightly cannot be had."""
    if not drift.has_fallback(spec, record):
        what = f"install the fallback torch {spec.pytorch.full_fallback}"
        command = _without_lock(spec, record, *spec.pytorch.fallback_from)
        yield long_step(spec, record, what, command)


def _by_lock(
    spec: HostSpec, record: Record, lock: Lock, folders: Sequence[str]
) -> Generator[PyinfraCommand, None, str]:
    """Fetch what the lock names, compare digests, and return the command that installs it.

    + folders: on the host, in which some of it lies
    """
    content = lock.requirements.encode()
    yield write(STAGE, File(path=new_lock(spec), content=content), as_owner(spec, record))
    there = record.torch.distributions != {}  # without torch too, from a run that was cut off
    fetch, install = lock_commands(spec, there=there, folders=folders)
    yield long_step(spec, record, f"fetch what {lock.path} names", fetch)
    return install


def long_step(spec: HostSpec, record: Record, what: str, command: str) -> PyinfraCommand:
    """Return a step of the owner's that may fetch gigabytes.

    + what: what it does, in a few words for the screen
    """
    return step(
        STAGE,
        what,
        command,
        run_as=as_owner(spec, record),
        seconds=deadlines.INSTALL,
        lock=spec.paths.lock,
        stream=spec.accelerator == "nvidia",  # gigabytes: show that it is alive
    )
