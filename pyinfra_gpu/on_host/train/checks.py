"""What is in the way of a start, all of it at once, each with its remedy."""

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
from . import checkpoints, claims, code, host, presets, units
from .host import AGAIN, CPU, Gpu, Site, TrainError, above, unwritable
from .presets import Preset

SHM_MIB = 128
"""Of /dev/shm, for each rank and its data loaders."""
_GIB = 1 << 30
_LOGS_GIB = 1.0
PROVE = "run `pyinfra INVENTORY tasks/smoke.py` for this host"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A start that is asked for.

    + devices: those that it may have, of which it takes `ranks`
    + hosts: how many train together; + going_on: it is a run that there is already
    """

    preset: Preset
    devices: list[str]
    ranks: int
    words: list[str]
    unproven: bool = False
    queue: bool = False
    retries: int = 0
    hosts: int = 1
    going_on: bool = False

    @property
    def processes(self) -> int:
        return self.preset.processes(self.ranks)


def asked(
    site: Site, preset: Preset, words: list[str], gpus: str | None, **more: object
) -> tuple[Asked, list[Gpu]]:
    """Return the start and the host's GPUs; raise TrainError for GPUs that there are not."""
    if site.accelerator == "cpu":
        if gpus is not None:
            raise TrainError("this host has no GPUs, by its data: leave out --gpus")
        ranks = preset.ranks or (1 if preset.launch == "python" else site.ranks)
        start = Asked(preset=preset, devices=[CPU], ranks=ranks, words=words, **more)  # type: ignore[arg-type]
        return start, []
    known = host.gpus()
    if not known:
        raise TrainError("the driver shows no GPU: look at `nvidia-smi`")
    devices = [gpu.uuid for gpu in known] if gpus is None else _named(gpus, known)
    ranks = preset.ranks or len(devices)
    if ranks > len(devices):
        has = f"--gpus names {len(devices)}" if gpus else f"this host has {len(devices)}"
        raise TrainError(
            f"preset {preset.name} has {ranks} ranks, one for each GPU, and {has}:"
            f" give --set ranks={len(devices)}"
        )
    return Asked(preset=preset, devices=devices, ranks=ranks, words=words, **more), known  # type: ignore[arg-type]


def _named(given: str, known: list[Gpu]) -> list[str]:
    has = f"this host has {', '.join(str(gpu.index) for gpu in known)}"
    found: list[str] = []
    for word in map(str.strip, given.split(",")):
        match = [gpu.uuid for gpu in known if word in (str(gpu.index), gpu.uuid)]
        if not match or match[0] in found:
            why = "names a GPU twice" if match else f"names no GPU by {word!r:.60}"
            raise TrainError(f"--gpus {given:.80} {why}: {has}")
        found += match
    return found


def refuse(site: Site, start: Asked, known: list[Gpu]) -> None:
    """Raise TrainError with all that is in the way."""
    found = [*_several(start)] or [
        *_proven(site, start), *_manager(), *_code(site, start), *_numbers(start),
        *_environment(site, start), *_room(site, start), *_taken(site, start),
        *_in_use(site, start, known),
    ]  # fmt: skip
    if found:
        lines = [f"  {what}\n    {remedy}" for what, remedy in found]
        raise TrainError("\n".join(["this run cannot start:", *lines]))


def warnings(site: Site, preset: Preset) -> Iterator[str]:
    """Yield what is no obstacle, and may be regretted."""
    if preset.checkpoints is None:
        yield f"preset {preset.name} names no checkpoints, so this run cannot be resumed"
    elif not preset.checkpoint_gib:
        folder = above(saves_in(site, preset, preset.ranks or site.ranks) or site.runs)
        if (free := shutil.disk_usage(folder).free) < _LOGS_GIB * _GIB:
            yield (
                f"{free >> 20} MiB are free below {folder}, where its checkpoints go, and preset"
                f" {preset.name} does not say how much one takes ('checkpoint_gib')"
            )
    if site.notify and not os.access(site.notify[0], os.X_OK):
        yield f"nobody is told how this run goes: {site.notify[0]} of training_notify cannot be run"


Problems = Iterator[tuple[str, str]]


def _several(start: Asked) -> Problems:
    if start.hosts == 1:
        return
    preset = start.preset
    if preset.launch != "torchrun":
        yield f"preset {preset.name} is launched by python", "several hosts take launch: 'torchrun'"
    arguments = preset.arguments
    own = [name for name, value in arguments.items() if "{run}" in str(value)]
    folder = checkpoints.argument(preset)
    if folder and not str(arguments[folder]).startswith(("/", "{")):
        own.append(folder)
    for name in own:
        yield (
            f"preset {preset.name} has the run's own folder in {name}, and hosts do not share it",
            f"give --set {name}=FOLDER, one that all of them share, at the same path",
        )
    if start.retries:
        yield "no host knows when the others are ready to begin again", "leave out --retries"
    if start.queue:
        yield "GPUs that wait for other hosts are of no use", "leave out --queue"


def _proven(site: Site, start: Asked) -> Problems:
    if not start.unproven and (why := host.unproven(site)):
        yield why, f"{PROVE}, or give --unproven"


def _manager() -> Problems:
    if found := units.problem():
        yield found


def _code(site: Site, start: Asked) -> Problems:
    preset, checkout = start.preset, Path(site.checkout)
    if not os.access(site.python, os.X_OK):
        yield f"{site.python} is not there", AGAIN
    if code.head(checkout) is None:
        yield f"{checkout} is no checkout with a commit", "set training_repo and training_commit"
    elif preset.file and not (checkout / preset.file).is_file():
        yield f"{checkout} has no {preset.file}", f"correct 'file' of {preset.name}"
    elif preset.module:
        path = preset.module.replace(".", "/")
        inside = any((checkout / f"{path}{end}").is_file() for end in (".py", "/__main__.py"))
        if not inside and (checkout / path.partition("/")[0]).exists():
            yield f"{checkout} has no module {preset.module}", f"correct 'module' of {preset.name}"


def _numbers(start: Asked) -> Problems:
    for what, remedy in presets.arithmetic(start.preset, start.processes * start.hosts):
        yield what, remedy.replace("set ", "give --set ", 1).replace(" to ", "=", 1)
    given = presets.argument_words(start.preset.arguments, {})
    if word := presets.secret_in([*given, *start.words]):
        yield f"{word} looks like a secret, and every user sees it", presets.ELSEWHERE


def _environment(site: Site, start: Asked) -> Problems:
    try:
        found = host.declared_variables(site)
    except TrainError as error:
        what, _, remedy = str(error).rpartition(": ")
        yield what, remedy
        return
    missing = [name for name in site.env_names if name not in found]
    further = [name for name in found if name not in site.env_names]
    if missing or further:
        told = [f"no {', '.join(missing)}"] if missing else []
        told += [f"{', '.join(further)} besides"] if further else []
        yield f"{site.env_file} is not as declared ({'; '.join(told)})", AGAIN
    if start.preset.wandb and not _wandb({**found, **start.preset.variables}):
        yield (
            f"preset {start.preset.name} logs to Weights & Biases, and there is no key for it",
            "put WANDB_API_KEY or WANDB_MODE=offline into environment_variables",
        )


def _wandb(variables: Mapping[str, str]) -> bool:
    offline = variables.get("WANDB_MODE") in ("offline", "disabled", "dryrun")
    try:
        known = netrc.netrc().authenticators("api.wandb.ai") is not None
    except (OSError, netrc.NetrcParseError):
        known = False
    return bool(variables.get("WANDB_API_KEY")) or offline or known


def saves_in(site: Site, preset: Preset, ranks: int) -> Path | None:
    """Return the folder of a run's checkpoints, as far as it is known before there is a run."""
    pattern = checkpoints.pattern_of(preset, presets.values(preset, site.runs / "RUN", ranks))
    return checkpoints.folder_of(pattern) if pattern else None


def _room(site: Site, start: Asked) -> Problems:
    preset, own = start.preset, site.runs / "RUN"
    if why := unwritable(site.runs):
        yield f"runs cannot be written down in {site.runs}: {why}", AGAIN
    folder = saves_in(site, preset, start.ranks)
    if folder and folder.is_relative_to(own / code.WORKTREE / "~"):
        yield "only a shell replaces the ~ of the checkpoints' folder", "write {home}"
    elif folder and not folder.is_relative_to(own) and (why := unwritable(folder)):
        argument = checkpoints.argument(preset)
        other = f"give --set {argument}=FOLDER" if argument else "name another folder"
        make = f"run `sudo install -d -o {getpass.getuser()} {shlex.quote(str(folder))}`"
        yield f"checkpoints cannot be saved in {folder}: {why}", f"{other}, or {make}"
    yield from _disks(site, preset, folder or site.runs)
    available = host.memory_gib()[1]
    if available < preset.ram_gib:
        free = f"{available:.1f} GiB of memory are free, and {preset.name} needs"
        yield f"{free} {preset.ram_gib:g}", "end what uses it"
    shared = Path("/dev/shm")  # noqa: S108 - it is looked at
    need = SHM_MIB * start.processes
    if shared.is_dir() and (mib := shutil.disk_usage(shared).free >> 20) < need:
        what = f"{shared} has {mib} MiB free, and {start.processes} ranks want {need}"
        yield what, f"run `sudo mount -o remount,size={start.processes}G {shared}`"


def _disks(site: Site, preset: Preset, folder: Path) -> Problems:
    runs, saves = above(site.runs), above(folder)
    wanted = {runs: ("a run's logs", _LOGS_GIB)}
    if preset.checkpoint_gib:
        same = saves.stat().st_dev == runs.stat().st_dev
        logs = _LOGS_GIB if same else 0.0
        two = ("two checkpoints", logs + 2 * preset.checkpoint_gib)
        wanted[runs if same else saves] = two
    for place, (what, gib) in wanted.items():
        free = shutil.disk_usage(place).free / _GIB
        if free < gib:
            told = f"{free:.1f} GiB are free below {place}, and {what} need {gib:g}"
            yield told, "delete what nobody needs there"


def _taken(site: Site, start: Asked) -> Problems:
    held = {} if start.queue else claims.holders(site, start.devices)
    count = len(start.devices)
    need = 1 if start.devices == [CPU] else start.ranks
    if count - len(held) < need:
        what = "the CPU is" if CPU in held else f"{len(held)} of {count} GPUs are"
        runs = dict.fromkeys(held.values())
        yield f"{what} taken by {', '.join(runs)}", taken_remedy([*runs], start.hosts)


def taken_remedy(runs: list[str], hosts: int = 1) -> str:
    """Return what helps where runs have what another one needs."""
    ends = " and ".join(f"`train stop {run}`" for run in runs if run)
    ways = [*["give --queue to wait"] * (hosts == 1), *[f"end what has it: {ends}"] * bool(ends)]
    return ", or ".join(ways) or "start it when they have ended"


def _in_use(site: Site, start: Asked, known: list[Gpu]) -> Problems:
    if site.accelerator == "cpu":
        return
    held = claims.holders(site, start.devices)
    try:
        users = host.gpu_users()
    except TrainError as error:
        yield str(error), "look at `nvidia-smi`, and reboot where a driver was updated"
        return
    for gpu in known:
        if gpu.uuid not in start.devices or gpu.uuid in held:
            continue
        if users.get(gpu.uuid):
            who = some(users[gpu.uuid], 3)
            yield f"GPU {gpu.index} is in use by {who}", "end it, or give other --gpus"
        free = (gpu.total_mib - gpu.used_mib) / 1024
        if free < start.preset.gpu_gib:
            has = f"GPU {gpu.index} has {free:.1f} GiB free of {gpu.total_mib / 1024:.1f}"
            needs = f"and preset {start.preset.name} needs {start.preset.gpu_gib:g}"
            yield f"{has}, {needs}", "end what has it, give other --gpus, or a smaller preset"
