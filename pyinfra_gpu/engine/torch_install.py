"""How torch comes into the environment: a release, a nightly, what was built, or its fallback."""

from __future__ import annotations

import json

from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from pyinfra_gpu.drift import pytorch as drift
from pyinfra_gpu.drift import pytorch_build
from pyinfra_gpu.drift.pytorch_lock import platform_of
from pyinfra_gpu.engine import deadlines, journal, uv, wheels
from pyinfra_gpu.engine.converge import Commands
from pyinfra_gpu.engine.declared import declared
from pyinfra_gpu.engine.look import last_of
from pyinfra_gpu.engine.meeting import executing
from pyinfra_gpu.engine.privilege import as_owner
from pyinfra_gpu.engine.steps import failed, quoted, step
from pyinfra_gpu.engine.write import File, write
from pyinfra_gpu.facts.pytorch_build import Wheel
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
    torch, files = spec.pytorch, list[str]()
    if torch.source != "wheel":
        yield FunctionCommand(bring, (spec, record, files), {})
        if executing() and not files:
            if not drift.has_fallback(spec, record):
                what = f"install the fallback torch {torch.full_fallback}"
                command = _without_lock(spec, record, *torch.fallback_from)
                yield long_step(spec, record, what, command)
            return
    by = ""
    if torch.building is not None:
        command = _without_lock(spec, record, *files, noted=_noted(spec, record))
        command = f"{_as_proven(spec, record)} && {{ {command}; }}"
    elif lock is None:
        command = _without_lock(spec, record, *(files or [torch.requirement]))
    else:
        file = File(path=uv.new_lock(spec), content=lock.requirements.encode())
        yield write(STAGE, file, as_owner(spec, record))
        there = record.torch.distributions != {}  # without torch too, from a run that was cut off
        command = uv.locked_install(spec, there=there, folder=_folder(spec) if files else None)
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


def _noted(spec: HostSpec, record: Record) -> str:
    """Return the command that notes which build is installed."""
    ingredients = pytorch_build.ingredients(spec, record)
    note = {"fingerprint": pytorch_build.fingerprint(spec, record), "ingredients": ingredients}
    path = f"{spec.paths.venv}/.pyinfra-gpu-build.json"
    return f"printf %s {quoted(json.dumps(note))} >{quoted(path)}"


def _as_proven(spec: HostSpec, record: Record) -> str:
    """Return the command that fails where a wheel that was built here is not what was proven.

    Its note goes then, and the next run builds it again from the compiler's cache.
    """
    wheel, build = record.build.wheel, spec.paths.build
    if not isinstance(wheel, Wheel) or not pytorch_build.has_wheel(spec, record):
        return "true"
    path = f"{build}/wheels/{wheel.file}"
    check = f"echo {quoted(f'{wheel.sha256}  {path}')} | sha256sum --check --status"
    why = f"the built wheel {path} was damaged since it was proven: run again, and it is made again"
    gone = quoted("rm", "-f", "--", f"{build}/wheel.json")
    return f"{{ {check} || {{ {gone}; echo {quoted(why)} >&2; false; }}; }}"


def _folder(spec: HostSpec) -> str:
    return f"{spec.paths.build}/wheels"


def bring(state: State, host: Host, spec: HostSpec, record: Record, came: list[str]) -> bool:
    """Have the files of a nightly, or the wheel of a build, on the host; fail the host otherwise.

    + came: is given the files' paths there; empty where a declared fallback takes their place
    """
    torch, folder, run_as = spec.pytorch, _folder(spec), as_owner(spec, record)
    name = f"{host.name}: torch {torch.full_version}"
    try:
        if torch.building is None:
            files = _nightly(spec, record)
        elif pytorch_build.has_wheel(spec, record):
            assert isinstance(record.build.wheel, Wheel)  # noqa: S101 - for mypy
            came.append(f"{folder}/{record.build.wheel.file}")
            return True
        else:
            files = _built(state, spec, record)
        for path, sha256 in files.items():
            host.log(f"bring {path.name} ...")
            wheels.send(state, host, run_as, folder, path, sha256)
            came.append(f"{folder}/{path.name}")
    except wheels.WheelError as error:
        return given_up(host, STAGE, spec, f"{name} {error}")
    except OSError as error:
        return failed(host, STAGE, f"{name} could not be transferred: {error}: run again")
    return True


def _nightly(spec: HostSpec, record: Record) -> wheels.Kept:
    """Return the files of the declared nightly. Raises WheelError, and OSError."""
    if (platform := platform_of(spec, record)) is None:
        raise wheels.WheelError("is for a Python whose version is not known")
    return wheels.nightly(spec.pytorch.full_version, platform, uv.index_options(spec))


def _built(state: State, spec: HostSpec, record: Record) -> wheels.Kept:
    """Return the wheel of the declared build, from the cache or from a host of this run that has
    it. Raises WheelError, and OSError.
    """
    mine = pytorch_build.fingerprint(spec, record)
    if found := wheels.cached(mine):
        return found
    for other in state.inventory:
        there, its = last_of(other), declared(other)
        wheel = there and there.build.wheel
        if there and isinstance(wheel, Wheel) and wheel.fingerprint == mine:
            return wheels.fetch(state, other, as_owner(its, there), its.paths.build, wheel)
    raise wheels.WheelError("was built by no host of this run: run this for one that builds it too,"
                            " or remove pytorch_builder")  # fmt: skip


def given_up(host: Host, stage: str, spec: HostSpec, sentence: str) -> bool:
    """Fail the host; where data declares a fallback, say that instead, and go on with it."""
    fallback = spec.pytorch.full_fallback
    if fallback is None:
        return failed(host, stage, sentence)
    said = f"{sentence}; its fallback, torch {fallback}, takes its place"
    journal.warn(stage, said)
    host.log(said)
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
