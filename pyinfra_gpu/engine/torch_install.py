"""How torch comes into the environment: a release, a nightly, what was built, or its fallback."""

from __future__ import annotations

from posixpath import dirname

from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from pyinfra_gpu.drift import pytorch as drift
from pyinfra_gpu.drift import pytorch_build
from pyinfra_gpu.drift.pytorch_lock import platform_of
from pyinfra_gpu.engine import deadlines, journal, uv
from pyinfra_gpu.engine.converge import Commands, refuse
from pyinfra_gpu.engine.meeting import executing
from pyinfra_gpu.engine.privilege import as_owner
from pyinfra_gpu.engine.steps import failed, quoted, step
from pyinfra_gpu.engine.wheels import TransferError, WheelError, nightlies, nightly, send
from pyinfra_gpu.engine.write import File, write
from pyinfra_gpu.facts.pytorch_build import Manifest
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host import program
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
    torch, files = spec.pytorch, list[str]()
    if torch.building is not None:
        yield from _install_built(spec, record, complaint)
        return
    if torch.nightly:
        yield FunctionCommand(bring_nightly, (spec, record, files), {})
        if executing() and not files:
            yield from _install_fallback(spec, record)
            return
    if lock is None:
        command, by = _without_lock(spec, record, *(files or [torch.requirement])), ""
    else:
        file = File(path=uv.new_lock(spec), content=lock.requirements.encode())
        yield write(STAGE, file, as_owner(spec, record))
        there = record.torch.distributions != {}  # without torch too, from a run that was cut off
        command = uv.locked_install(spec, there=there, folders=[dirname(each) for each in files])
        by = f" by {lock.path}"
    if record.torch.installing is True:
        # Another run may have been at work when we looked, and have finished meanwhile.
        command = f"[ ! -e {quoted(uv.installing_mark(spec))} ] || {{ {command}; }}"
    what = f"install torch {torch.full_version}{by} ({complaint})"
    yield long_step(spec, record, what, command)


def _without_lock(spec: HostSpec, record: Record, *wanted: str, noted: str = "true") -> str:
    """Return the command that installs a torch, whatever its version, in the place of another.

    + noted: a command that notes what was installed
    """
    again = ["--reinstall-package", "torch"] if drift.is_there(record) else []
    after = f"{noted} && {quoted('rm', '-f', spec.paths.torch_lock)}"
    return uv.marked(spec, uv.install_command(spec, *wanted, *again), after=after)


def _install_built(spec: HostSpec, record: Record, complaint: str) -> Commands:
    """Install the wheel that was built, if it is still the one that was proven."""
    wheel, paths = record.build.wheel, spec.paths
    what = f"install the built torch {spec.pytorch.full_version} ({complaint})"
    if isinstance(wheel, Manifest) and pytorch_build.has_wheel(spec, record):
        path, manifest = f"{paths.build}/wheels/{wheel.file}", f"{paths.build}/wheel.json"
        noted = f"cp -T -- {quoted(manifest)} {quoted(f'{paths.venv}/.pyinfra-gpu-build.json')}"
        proven = program("build/proven.sh", path, wheel.sha256, manifest)
        command = _without_lock(spec, record, path, noted=noted)
        yield long_step(spec, record, what, f"{proven} && {{ {command}; }}")
    elif not executing():  # it will have been built by then
        yield long_step(spec, record, what, "true")
    elif spec.pytorch.fallback is not None:
        yield from _install_fallback(spec, record)
    else:
        yield refuse(STAGE, f"{spec.host}: there is no wheel of the declared build: run again")


def _install_fallback(spec: HostSpec, record: Record) -> Commands:
    """Install the release that data declares where the build or the nightly cannot be had."""
    if not drift.has_fallback(spec, record):
        what = f"install the fallback torch {spec.pytorch.full_fallback}"
        command = _without_lock(spec, record, *spec.pytorch.fallback_from)
        yield long_step(spec, record, what, command)


def given_up(host: Host, stage: str, spec: HostSpec, sentence: str) -> bool:
    """Fail the host; where data declares a fallback, say that instead, and go on with it."""
    fallback = spec.pytorch.full_fallback
    if fallback is None:
        return failed(host, stage, sentence)
    said = f"{sentence}; its fallback, torch {fallback}, takes its place"
    journal.warn(stage, said)
    host.log(said)
    return True


def bring_nightly(
    state: State, host: Host, spec: HostSpec, record: Record, came: list[str]
) -> bool:
    """Have the declared nightly kept, and its files on the host; fail the host otherwise.

    + came: is given the files' paths there, each in a folder of its own; empty where a declared
      fallback takes their place
    """
    wanted, version = platform_of(spec, record), spec.pytorch.full_version
    name = f"{host.name}: the nightly torch {version}"
    try:
        if wanted is None:
            raise WheelError("is for a Python whose version is not known")
        host.log(f"bring torch {version}, from the index if it was not kept ...")
        for path, sha256 in nightly(version, wanted, uv.index_options(spec)).items():
            folder = f"{spec.paths.build}/nightly/{path.name.partition('-')[0]}"
            send(state, host, as_owner(spec, record), folder, path, sha256)
            came.append(f"{folder}/{path.name}")
    except WheelError as error:
        return given_up(host, STAGE, spec, f"{name} {error}")
    except (TransferError, OSError) as error:
        what_helps = f"run again; if that is no help, restore {nightlies()}"
        return failed(host, STAGE, f"{name} could not be transferred: {error}: {what_helps}")
    return True


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
