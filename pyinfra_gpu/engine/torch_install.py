"""How torch comes into the environment: a release, a nightly, what was built, or its fallback."""

from __future__ import annotations

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
from pyinfra_gpu.engine.uv import (
    install_command,
    installing_mark,
    lock_commands,
    marked,
    new_lock,
)
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
    if spec.pytorch.building is not None:
        yield from _install_built(spec, record, complaint)
        return
    if spec.pytorch.nightly:
        yield from _install_nightly(spec, record, lock, complaint)
        return
    if lock is None:
        command = install_command(spec, spec.pytorch.requirement)
        command += _anew(record)
        by = ""
        install = marked(spec, command, after=quoted("rm", "-f", spec.paths.torch_lock))
    else:
        install = yield from _by_lock(spec, record, lock)
        by = f" by {lock.path}"
    install = _unless_finished(spec, install) if record.torch.installing is True else install
    yield long_step(
        spec,
        record,
        f"install torch {spec.pytorch.full_version}{by} ({complaint})",
        install,
    )


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
    command = install_command(spec, path)
    command += _anew(record)
    stamp = f"{paths.venv}/.pyinfra-gpu-build.json"
    noted = f"cp -T -- {quoted(manifest)} {quoted(stamp)}"
    proven = program("build/proven.sh", path, wheel.sha256, manifest)
    unlocked = quoted("rm", "-f", paths.torch_lock)
    install = marked(spec, command, after=f"{noted} && {unlocked}")
    yield long_step(spec, record, what, f"{proven} && {{ {install}; }}")


def _anew(record: Record) -> list[str]:
    """Return the option by which uv replaces a torch that is there, whatever its version."""
    return ["--reinstall-package", "torch"] if drift.is_there(record) else []


def _install_fallback(spec: HostSpec, record: Record) -> Commands:
    """Install the release that data declares where the build or the nightly cannot be had."""
    if drift.has_fallback(spec, record):
        return
    command = install_command(spec, *spec.pytorch.fallback_from)
    command += _anew(record)
    install = marked(spec, command, after=quoted("rm", "-f", spec.paths.torch_lock))
    what = f"install the fallback torch {spec.pytorch.full_fallback}"
    yield long_step(spec, record, what, install)


def _install_nightly(spec: HostSpec, record: Record, lock: Lock | None, complaint: str) -> Commands:
    """Install the files that the controller keeps of a nightly; the first host has them kept."""
    came: list[str] = []
    yield FunctionCommand(nightlies.brought, (spec, record, came), {})
    if executing() and not came:
        yield from _install_fallback(spec, record)
        return
    what = f"install the nightly torch {spec.pytorch.full_version} ({complaint})"
    if lock is not None:
        folders = [f"{nightlies.folder_of(spec)}/{name.partition('-')[0]}" for name in came]
        by_lock = yield from _by_lock(spec, record, lock, folders=folders)
        yield long_step(spec, record, what, by_lock)
        return
    files = [f"{nightlies.folder_of(spec)}/{name.partition('-')[0]}/{name}" for name in came]
    install = quoted(*install_command(spec, *files), *_anew(record))
    mark, unlocked = quoted(installing_mark(spec)), quoted("rm", "-f", spec.paths.torch_lock)
    command = f"touch {mark} && {install} && {unlocked} && sync -f {mark} && rm {mark}"
    yield long_step(spec, record, what, command)


def _by_lock(
    spec: HostSpec,
    record: Record,
    lock: Lock,
    *,
    folders: Sequence[str] = (),
) -> Generator[PyinfraCommand, None, str]:
    """Fetch what the lock names, compare digests, and return the command that installs it.

    + folders: see `lock_commands`
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


def _unless_finished(spec: HostSpec, command: str) -> str:
    """Return the command, to be run only if the mark is still there once we hold the lock.

    Otherwise another run was at work when we looked, and has finished meanwhile.
    """
    return f"[ ! -e {quoted(installing_mark(spec))} ] || {{ {command}; }}"
