"""How torch comes into the environment: a release, a nightly, what was built, or its fallback.

The index forgets nightlies after two or three months, and has none of some days. So the controller
has pip download the files of a date once; they are kept with their digests, and installed from
there on every host, later too. No other date ever takes their place.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from gevent.lock import RLock  # type: ignore[import-untyped]  # pyinfra's own event loop
from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from pyinfra_gpu.drift import pytorch as drift
from pyinfra_gpu.drift import pytorch_build
from pyinfra_gpu.drift.pytorch_lock import platform_of
from pyinfra_gpu.engine import deadlines, journal, uv
from pyinfra_gpu.engine.converge import Commands, refuse
from pyinfra_gpu.engine.pip_download import NEWEST_GLIBC, DownloadError, download
from pyinfra_gpu.engine.privilege import as_owner
from pyinfra_gpu.engine.steps import failed, quoted, step
from pyinfra_gpu.engine.together import executing
from pyinfra_gpu.engine.wheels import TransferError, digest, send
from pyinfra_gpu.engine.write import File, write
from pyinfra_gpu.facts.pytorch_build import Manifest
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host import program
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.spec.lock import Lock, Platform
from pyinfra_gpu.text import one_line, shortened

STAGE = drift.STAGE
_FETCHING = RLock()
_KEPT = "kept.json"
_TRITON = re.compile(r"^Requires-Dist: *((?:pytorch-)?triton) *\(?== *([^;)\s]+)", re.MULTILINE)
_THERE = re.compile(r"\(from versions: ([^)]*)\)")


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
    if torch.nightly:
        names: list[str] = []
        yield FunctionCommand(bring_nightly, (spec, record, names), {})
        if executing() and not names:
            yield from _install_fallback(spec, record)
            return
        files = [nightly_path(spec, name) for name in names]
    if lock is None:
        command, by = _without_lock(spec, record, *(files or [torch.requirement])), ""
    else:
        command = yield from _by_lock(spec, record, lock, [*map(os.path.dirname, files)])
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
    unlocked = quoted("rm", "-f", spec.paths.torch_lock)
    return uv.marked(
        spec, uv.install_command(spec, *wanted, *again), after=f"{noted} && {unlocked}"
    )


def _by_lock(
    spec: HostSpec, record: Record, lock: Lock, folders: Sequence[str]
) -> Generator[PyinfraCommand, None, str]:
    """Fetch what the lock names, compare digests, and return the command that installs it.

    + folders: on the host, in which some of it lies
    """
    content = lock.requirements.encode()
    yield write(STAGE, File(path=uv.new_lock(spec), content=content), as_owner(spec, record))
    there = record.torch.distributions != {}  # without torch too, from a run that was cut off
    fetch, install = uv.lock_commands(spec, there=there, folders=folders)
    yield long_step(spec, record, f"fetch what {lock.path} names", fetch)
    return install


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


# --- nightlies


class NightlyError(Exception):
    """A nightly cannot be had: one sentence."""


def nightlies() -> Path:
    """Return where the controller keeps nightlies; nothing of ours ever removes one.

    Not among its caches, which people empty: what the index forgot cannot be made again.
    """
    default = Path.home() / ".local/state"
    return Path(os.environ.get("XDG_STATE_HOME") or default) / "pyinfra-gpu" / "nightlies"


def nightly_path(spec: HostSpec, name: str) -> str:
    """Return where a host's own copy of a file is, in a folder of its own."""
    return f"{spec.paths.build}/nightly/{name.partition('-')[0]}/{name}"


def bring_nightly(
    state: State, host: Host, spec: HostSpec, record: Record, came: list[str]
) -> bool:
    """Have the declared nightly kept, and its files on the host; fail the host otherwise.

    + came: is given the names of the files; empty where a declared fallback takes their place
    """
    wanted, version = platform_of(spec, record), spec.pytorch.full_version
    name = f"{host.name}: the nightly torch {version}"
    try:
        if wanted is None:
            raise NightlyError("is for a Python whose version is not known")
        with _FETCHING:
            place, files = _kept(version, wanted, uv.index_options(spec), host.log)
        for file, sha256 in files.items():
            at = os.path.dirname(nightly_path(spec, file))  # noqa: PTH120 - a path on the host
            send(state, host, as_owner(spec, record), at, place / file, sha256)
    except NightlyError as error:
        return given_up(host, STAGE, spec, f"{name} {error}")
    except (TransferError, OSError) as error:
        return failed(host, STAGE, f"{name} could not be transferred: {error}: run again")
    came.extend(files)
    return True


def _kept(
    version: str, wanted: Platform, options: Sequence[str], told: Callable[[str], object]
) -> tuple[Path, dict[str, str]]:
    """Return the folder of a nightly's files and their digests; they are fetched the first time.

    + version: with its build, "2.16.0.dev20261120+cu130"
    + options: pip's, for where packages come from; told: is given a line before files come

    Raises NightlyError, and OSError.
    """
    place = nightlies() / f"{version}-cp{wanted.python}-{wanted.machine}"
    if place.exists():
        return place, _compared(place)
    told(f"keep torch {version}: the index forgets nightlies ...")
    nightlies().mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=".part.", dir=nightlies()))
    try:
        torch = _downloaded(f"torch=={version}", wanted, options, part)
        with zipfile.ZipFile(torch) as archive:
            (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
            asked = _TRITON.search(archive.read(name).decode())
        if asked:
            _downloaded(f"{asked[1]}=={asked[2]}", wanted, options, part)
        files = {each.name: digest(each) for each in sorted(part.iterdir())}
        (part / _KEPT).write_text(json.dumps(files, indent=1) + "\n")
        os.sync()
        part.rename(place)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return place, files


def _compared(place: Path) -> dict[str, str]:
    """Return which files are kept, where each still has the digest that it came with."""
    restore = "restore it from a backup, or remove that folder and the index is asked again"
    try:
        files = {str(n): str(d) for n, d in json.loads((place / _KEPT).read_text()).items()}
    except (OSError, ValueError, AttributeError) as error:
        raise NightlyError(f"was kept, and {place}/{_KEPT} cannot be read: {restore}") from error
    for name, sha256 in files.items():
        if not (place / name).exists() or digest(place / name) != sha256:
            changed = f"{name} there was changed or removed since"
            raise NightlyError(f"was kept in {place}, and {changed}: {restore}")
    return files


def _downloaded(requirement: str, wanted: Platform, options: Sequence[str], place: Path) -> Path:
    """Have pip download one wheel for a host's platform; it compares the index's digest."""
    before = {*place.iterdir()}
    try:
        download([requirement], wanted, options, place, NEWEST_GLIBC)
    except DownloadError as error:
        why = shortened(one_line(str(error)), 400)
        if there := _THERE.search(str(error)):
            newest = ", ".join(there[1].split(", ")[-3:])
            why = (
                f"no {requirement} for Python {wanted.python} on {wanted.machine} is there"
                " (nightlies leave an index after 60 to 90 days, and some days have none); the"
                f" newest are {newest}: set pytorch_version to one of those"
            )
        raise NightlyError(f"cannot be had from {' '.join(options)}: {why}") from error
    (found,) = {*place.iterdir()} - before
    return found
