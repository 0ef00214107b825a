"""What must be so before a run starts; all of it is looked at, and each has its remedy."""

from __future__ import annotations

import getpass
import netrc
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..terminal import some
from . import checkpoints, claims, code, environment, gpus, presets, room, stamp, units
from .errors import TrainError
from .presets import Preset
from .running import child
from .site import AGAIN, Site

_GIB = 1 << 30
SHM_MIB = 128  # shared memory of a rank and its loaders; a container that was not asked has 64
_SPARE_GIB = 1  # of disk, beside two checkpoints


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A start as it was asked for.

    + devices: that may be taken, by UUID, or "cpu"; ranks: how many of them are needed
    + words: behind `--`; unproven: whether a smoke test that does not hold is overlooked
    + queue: whether it waits for devices that are taken
    + retries: how often it may begin again by itself
    + hosts: that train it together, each with so many ranks
    + going_on: whether it is one that went before, which stays as it was begun
    """

    preset: Preset
    devices: tuple[str, ...]
    ranks: int
    words: tuple[str, ...] = ()
    unproven: bool = False
    queue: bool = False
    retries: int = 0
    hosts: int = 1
    going_on: bool = False

    @property
    def processes(self) -> int:
        """How many processes train on this host."""
        return self.preset.processes(self.ranks)


@dataclass(frozen=True, slots=True)
class Problem:
    """What is in the way, and what to do about it, two clauses."""

    what: str
    remedy: str


def problems(site: Site, asked: Asked, known: list[gpus.Gpu]) -> list[Problem]:
    """Return all that is in the way of a start.

    + known: the GPUs of this host
    """
    found = [
        *([] if asked.unproven else proven(site)),
        *_manager(),
        *_code(site, asked),
        *_numbers(asked),
    ]
    found += [*_environment(site, asked), *_room(site, asked)]
    found += [*_claims(site, asked), *_gpus(site, asked, known)]
    return found


def warnings(site: Site, preset: Preset) -> list[str]:
    """Return what a person should know of a run that starts nevertheless."""
    found = [*_little_room(site, preset)]
    if preset.checkpoints is None:
        found.append(
            f"preset {preset.name} names no checkpoints, so this run cannot be resumed: what it"
            " has learnt is lost with it"
        )
    if site.notify and not (os.access(site.notify[0], os.X_OK) and Path(site.notify[0]).is_file()):
        found.append(
            f"nobody is told how this run goes: {site.notify[0]} of training_notify is no program"
            " that can be run here; put it there, or correct training_notify and deploy"
        )
    return found


def _little_room(site: Site, preset: Preset) -> Iterator[str]:
    """Tell of a disk for checkpoints that has little room, where nobody said how much they take."""
    folder = _saves_in(site, preset, preset.ranks or site.ranks)
    if folder is None or preset.checkpoint_gib:
        return
    free = shutil.disk_usage(there := room.above(folder)).free
    if free < _SPARE_GIB * _GIB:
        yield (
            f"{free >> 20} MiB are free below {there}, where its checkpoints go, and preset"
            f" {preset.name} does not say how much one takes ('checkpoint_gib')"
        )


def proven(site: Site) -> Iterator[Problem]:
    """Yield why the last smoke test does not hold for what runs now."""
    remedy = "run `pyinfra INVENTORY tasks/smoke.py` for this host, or give --unproven"
    noted = stamp.read(site)
    if noted is None:
        yield Problem("no smoke test has passed here", remedy)
        return
    changed = stamp.changed(noted, stamp.present(site))
    if changed:
        yield Problem(f"since the smoke test passed, changed: {', '.join(changed)}", remedy)


def _manager() -> Iterator[Problem]:
    if found := units.problem():
        yield Problem(*found)


def _code(site: Site, asked: Asked) -> Iterator[Problem]:
    if not os.access(site.python, os.X_OK):
        yield Problem(f"{site.python} is not there", AGAIN)
    checkout = Path(site.checkout)
    if code.commit(checkout) is None:
        yield Problem(
            f"{checkout} is no checkout with a commit", "set training_repo and training_commit"
        )
        return
    preset = asked.preset
    if preset.file and not code.holds(checkout, preset.file):
        yield Problem(f"{checkout} has no {preset.file}", f"correct 'file' of {preset.name}")
    if preset.module:
        path = preset.module.replace(".", "/")
        inside = any(code.holds(checkout, f"{path}{end}") for end in (".py", "/__main__.py"))
        if not inside and (checkout / path.partition("/")[0]).exists():
            yield Problem(
                f"{checkout} has no module {preset.module}", f"correct 'module' of {preset.name}"
            )


def _numbers(asked: Asked) -> Iterator[Problem]:
    for what, remedy in presets.arithmetic(asked.preset, asked.processes * asked.hosts):
        yield Problem(what, remedy.replace("set ", "give --set ", 1).replace(" to ", "=", 1))
    if word := presets.secret_in(asked.words):
        yield Problem(f"{word} looks like a secret, and every user sees it", presets.ELSEWHERE)


def _environment(site: Site, asked: Asked) -> Iterator[Problem]:
    try:
        found = environment.read(site)
    except TrainError as error:
        yield Problem(*str(error).rsplit(": ", 1))
        return
    missing = [name for name in site.env_names if name not in found]
    further = [name for name in found if name not in site.env_names]
    if missing or further:
        told = [f"no {', '.join(missing)}"] if missing else []
        told += [f"{', '.join(further)} besides"] if further else []
        yield Problem(f"{site.env_file} is not as declared ({'; '.join(told)})", AGAIN)
    if asked.preset.wandb and not _wandb({**found, **asked.preset.variables}):
        yield Problem(
            f"preset {asked.preset.name} logs to Weights & Biases, and there is no key for it",
            "put WANDB_API_KEY or WANDB_MODE=offline into environment_variables",
        )


def _wandb(variables: Mapping[str, str]) -> bool:
    if variables.get("WANDB_API_KEY"):
        return True
    if variables.get("WANDB_MODE") in ("offline", "disabled", "dryrun"):
        return True
    try:
        return netrc.netrc().authenticators("api.wandb.ai") is not None
    except (OSError, netrc.NetrcParseError):
        return False


def _room(site: Site, asked: Asked) -> Iterator[Problem]:
    preset = asked.preset
    yield from _folders(site, asked)
    yield from _disks(site, asked)
    memory = _available_gib()
    if memory is not None and memory < preset.ram_gib:
        yield Problem(
            f"{memory:.1f} GiB of memory are free, and {preset.name} needs {preset.ram_gib:g}",
            "end what uses it",
        )
    shared = Path("/dev/shm")  # noqa: S108 - the kernel's shared memory, where nothing is written
    if shared.is_dir():
        mib = shutil.disk_usage(shared).free >> 20
        count = asked.processes
        if mib < SHM_MIB * count:
            yield Problem(
                f"{shared} has {mib} MiB free, and {count} ranks want {SHM_MIB * count}",
                f"run `sudo mount -o remount,size={count}G /dev/shm`",
            )


def _saves_in(site: Site, preset: Preset, ranks: int) -> Path | None:
    """Return the folder that the checkpoints of the next run will be in; None where it has none."""
    pattern = checkpoints.place(preset, child.values(site.runs / "RUN", preset, ranks))
    return checkpoints.folder_of(pattern) if pattern else None


def _folders(site: Site, asked: Asked) -> Iterator[Problem]:
    """Yield the places that a run writes to, and cannot."""
    preset = asked.preset
    if why := room.unwritable(site.runs):
        yield Problem(f"runs cannot be written down in {site.runs}: {why}", AGAIN)
    folder, own = _saves_in(site, preset, asked.ranks), site.runs / "RUN"
    if folder is not None and folder.is_relative_to(own / code.WORKTREE / "~"):
        yield Problem("only a shell replaces the ~ of the checkpoints' folder", "write {home}")
    if folder is None or folder.is_relative_to(own):
        return
    name = checkpoints.argument(preset)
    another = f"give another folder with --set {name}=FOLDER" if name else "name another folder"
    if asked.going_on:
        another = "bring that back"
    if why := room.unwritable(folder):
        make = f"make it yours, `sudo install -d -o {getpass.getuser()} {shlex.quote(str(folder))}`"
        yield Problem(
            f"checkpoints cannot be saved in {folder}: {why}",
            f"{another}, or {make}" if "read-only" not in why else another,
        )


def _disks(site: Site, asked: Asked) -> Iterator[Problem]:
    """Yield the file systems that are too full: of the runs, and where the checkpoints go."""
    preset = asked.preset
    wanted = {room.above(site.runs): ("a run's logs", float(_SPARE_GIB))}
    if preset.checkpoint_gib:
        folder = room.above(_saves_in(site, preset, asked.ranks) or site.runs)
        if folder.stat().st_dev == room.above(site.runs).stat().st_dev:
            folder = room.above(site.runs)
        before = wanted.get(folder, ("", 0.0))[1]
        wanted[folder] = ("two checkpoints", before + 2 * preset.checkpoint_gib)
    for folder, (what, gib) in wanted.items():
        free = shutil.disk_usage(folder).free / _GIB
        if free < gib:
            yield Problem(
                f"{free:.1f} GiB are free below {folder}, and {what} need {gib:g}",
                "delete what nobody needs there",
            )


def _available_gib() -> float | None:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / (1 << 20)
    return None


def _claims(site: Site, asked: Asked) -> Iterator[Problem]:
    if asked.queue:
        return
    held = claims.holders(site, asked.devices)
    count = len(asked.devices)
    if count - len(held) < (1 if asked.devices == (claims.CPU,) else asked.ranks):
        remedy = claims.remedy(held.values(), alone=asked.hosts == 1)
        yield Problem(_taken(held, count), remedy)


def _taken(held: Mapping[str, str], count: int) -> str:
    runs = ", ".join(dict.fromkeys(held.values()))
    what = "the CPU is" if claims.CPU in held else f"{len(held)} of {count} GPUs are"
    return f"{what} taken by {runs}"


def _gpus(site: Site, asked: Asked, known: list[gpus.Gpu]) -> Iterator[Problem]:
    if site.accelerator == "cpu":
        return
    held = claims.holders(site, asked.devices)
    try:
        users = gpus.users()
    except TrainError as error:
        yield Problem(str(error), "look at `nvidia-smi`, and reboot where a driver was updated")
        return
    for gpu in known:
        if gpu.uuid not in asked.devices or gpu.uuid in held:
            continue
        if users.get(gpu.uuid):
            who = some(users[gpu.uuid], 3)
            yield Problem(f"GPU {gpu.index} is in use by {who}", "end it, or give other --gpus")
        free = (gpu.total_mib - gpu.used_mib) / 1024
        if free < asked.preset.gpu_gib:
            yield Problem(
                f"GPU {gpu.index} has {free:.1f} GiB free of {gpu.total_mib / 1024:.1f}, and preset"
                f" {asked.preset.name} needs {asked.preset.gpu_gib:g}",
                "end what has it, or give other --gpus"
                + ("" if asked.going_on else ", or choose a smaller preset"),
            )
