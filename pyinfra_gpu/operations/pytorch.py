"""A virtual environment whose torch is the declared one, complete, and from a declared place."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from pyinfra_gpu.drift import pytorch as drift
from pyinfra_gpu.drift import pytorch_files
from pyinfra_gpu.drift.finding import Findings, Id
from pyinfra_gpu.drift.layout import owner_name
from pyinfra_gpu.drift.pytorch_lock import lock_of, no_lock, platform_of
from pyinfra_gpu.engine import deadlines, journal
from pyinfra_gpu.engine.converge import Commands, converging, refuse
from pyinfra_gpu.engine.look import look
from pyinfra_gpu.engine.privilege import as_owner, as_root, guard
from pyinfra_gpu.engine.steps import quoted, step
from pyinfra_gpu.engine.uv import (
    constraint,
    folder,
    install_command,
    installing_mark,
    lock_commands,
    marked,
    new_lock,
    sources,
    trusted_hosts,
)
from pyinfra_gpu.engine.write import File, write
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.on_host import program

if TYPE_CHECKING:
    from pyinfra.api.command import PyinfraCommand

    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec
    from pyinfra_gpu.spec.lock import Lock

STAGE = drift.STAGE


@converging(drift, repairs=drift.INSTALLER)
def installer(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that the declared version of uv is in a small environment of its own.

    + spec: the host's resolved specification

    uv, not pip: its cache makes a repair a matter of seconds, and it can hold torch fixed while
    it installs a project that asks for another one. With a lock it is the file that the lock
    names, by its digest. A host that has to have a lock, and has none, stops here.

    **Example:**

    .. code:: python

        torch.installer(name="Install uv", spec=wanted)
    """
    del found
    paths, version, lock = spec.paths, spec.pytorch.uv_version, lock_of(spec, record)
    command = program(
        "pytorch/installer.sh",
        *(paths.tools, version, guard(as_root(spec))),
        *(lock.installer.line if lock else "", folder(spec)),
        *(*sources(spec), *trusted_hosts(spec)),
        uses=("files/root_only.sh",),
    )
    yield step(
        STAGE,
        f"install uv {version}",
        command,
        run_as=as_root(spec),
        seconds=deadlines.INSTALL,
        lock=paths.lock,
    )


@converging(
    drift,
    repairs=drift.ENVIRONMENT,
)
def virtual_environment(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that the virtual environment exists and its Python runs.

    + spec: the host's resolved specification

    An environment whose Python vanished (a distribution upgrade does that) cannot be repaired.
    It is set aside under the name ``venv.broken``, replacing an earlier one, and made anew.

    **Example:**

    .. code:: python

        torch.virtual_environment(name="Make the virtual environment", spec=wanted)
    """
    run_as, venv = as_owner(spec, record), spec.paths.venv
    yield from _place(spec, record, found)
    # --no-managed-python: the host's own Python; what is downloaded is declared, never implied.
    make = [spec.paths.uv, "venv", "--quiet", "--no-managed-python", "--no-config"]
    make += ["--cache-dir", spec.paths.cache, "--python", spec.pytorch.python, venv]
    yield step(
        STAGE,
        "make the virtual environment",
        f"[ -x {quoted(spec.paths.python)} ] || {quoted(*make)}",
        run_as=run_as,
        seconds=deadlines.SERVICE,
        lock=spec.paths.lock,
    )


def _place(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Make an empty directory of the owner's, in one of root's; what is broken is set aside."""
    venv, aside = spec.paths.venv, f"{spec.paths.venv}.broken"
    what, broken = f"make {venv}", not found.of(Id.PYTORCH_ENVIRONMENT_MISSING)
    if broken:
        empty = f"[ ! -d {quoted(aside)} ] || {quoted('find', aside, '-mindepth', '1', '-delete')}"
        yield step(
            STAGE,
            f"empty {aside}",
            empty,
            run_as=as_owner(spec, record),
            seconds=deadlines.SERVICE,
        )
        journal.warn(STAGE, f"{spec.host}: the old environment is kept as {aside}; delete it")
        what = f"set aside {venv} ({found[0].found})"
    owner = owner_name(spec, record) if spec.privilege == "sudo" else ""
    arguments = (venv, "1" if broken else "", owner)
    command = program("pytorch/place.sh", *arguments, uses=("files/root_only.sh",))
    yield step(
        STAGE,
        what,
        command,
        run_as=as_root(spec),
        seconds=deadlines.SERVICE,
        lock=spec.paths.lock,
    )


@converging(
    drift,
    repairs=drift.TORCH,
)
def wheel(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that torch is the declared version and build, complete on disk.

    + spec: the host's resolved specification

    Which torch is there is read from its own files, each compared with the size its wheel
    recorded, so that an interrupted install and a hand-copied library are both seen. With a lock,
    everything in the environment is of a version and a digest that the lock names; a file that has
    another digest fails this host while the environment is still as it was. What torch and the
    training stand on is compared in the same way, and installed again by itself, in the version
    that is there.

    **Example:**

    .. code:: python

        torch.wheel(name="Install torch", spec=wanted)
    """
    lock = lock_of(spec, record)
    if lock is None and spec.pytorch.lock == "required":
        # Its Python was not known before there was an environment.
        platform = platform_of(spec, record) or "a Python that cannot be told"
        yield refuse(STAGE, no_lock(spec, str(platform)).sentence(spec.host))
        return
    wrong = [each for each in found if each.id != Id.PYTORCH_DISTRIBUTION_DAMAGED]
    if wrong and not record.torch.damaged:
        yield from _install(spec, record, lock, wrong[0].found)
        record = look(spec) or record
    if record.torch.damaged and not isinstance(record.torch.damaged, Unknown):
        yield _cleaned(spec, record, ["torch"])
        yield from _install(spec, record, lock, f"damaged: {record.torch.damaged[0]}")
        record = look(spec) or record
    yield from _whole(spec, record)


def _cleaned(spec: HostSpec, record: Record, names: list[str]) -> PyinfraCommand:
    """Return the step that has uv fetch wheels again.

    It links a wheel's files into the environment, so what overwrote one of them has overwritten
    uv's own copy as well.
    """
    return step(
        STAGE,
        f"drop the damaged {', '.join(names)}",
        quoted(spec.paths.uv, "cache", "clean", "--cache-dir", spec.paths.cache, *names),
        run_as=as_owner(spec, record),
        seconds=deadlines.SERVICE,
    )


def _whole(spec: HostSpec, record: Record) -> Commands:
    """Install what is damaged beside torch again: from uv's own copy, else from where it came."""
    for fetched in (False, True):
        names = pytorch_files.damaged(spec, record)
        if not names:
            return
        if fetched:
            yield _cleaned(spec, record, names)
        command = install_command(spec, "--no-deps", *constraint(spec, record))
        for name in names:
            command += ["--reinstall-package", name]
        command += pytorch_files.requirements(record, names)
        what = f"reinstall {', '.join(names)}"
        yield _long_step(spec, record, what, marked(spec, command))
        record = look(spec) or record


def _install(spec: HostSpec, record: Record, lock: Lock | None, complaint: str) -> Commands:
    """Install torch, by the lock where there is one.

    The mark stays when the command is cut off, whatever cut it off, and tells the next run that
    files may be missing although their names are there.
    """
    if lock is None:
        command = install_command(spec, spec.pytorch.requirement)
        command += [] if record.torch.version is None else ["--reinstall-package", "torch"]
        by = ""
        install = marked(spec, command, after=quoted("rm", "-f", spec.paths.torch_lock))
    else:
        there = record.torch.distributions != {}  # without torch too, from a run that was cut off
        install = yield from _by_lock(spec, record, lock, there=there)
        by = f" by {lock.path}"
    yield _long_step(
        spec,
        record,
        f"install torch {spec.pytorch.full_version}{by} ({complaint})",
        _unless_finished(spec, install) if record.torch.installing is True else install,
    )


def _by_lock(
    spec: HostSpec, record: Record, lock: Lock, *, there: bool
) -> Generator[PyinfraCommand, None, str]:
    """Fetch what the lock names, compare digests, and return the command that installs it."""
    content = lock.requirements.encode()
    yield write(STAGE, File(path=new_lock(spec), content=content), as_owner(spec, record))
    fetch, install = lock_commands(spec, there=there)
    yield _long_step(spec, record, f"fetch what {lock.path} names", fetch)
    return install


def _long_step(spec: HostSpec, record: Record, what: str, command: str) -> PyinfraCommand:
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
