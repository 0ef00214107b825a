"""What is in the way of a start, all of it at once, each with its remedy."""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..terminal import some
from . import claims, code, host, presets, units
from .host import AGAIN, CPU, Site, TrainError, above, unwritable
from .presets import Preset
from .runs import Run

SHM_MIB = 128
"""Of /dev/shm, for each rank and its data loaders."""
PROVE = "run `pyinfra INVENTORY tasks/smoke.py` for this host"
_GIB = 1 << 30
_LOGS_GIB = 1.0
Problems = Iterator[tuple[str, str]]


def devices(site: Site, preset: Preset, gpus: str | None) -> tuple[list[str], int]:
    """Return the devices that a run may have, and how many ranks it has on this host.

    + gpus: indices or UUIDs, as they were typed
    """
    if site.accelerator == "cpu":
        if gpus is not None:
            raise TrainError("this host has no GPUs, by its data: leave out --gpus")
        return [CPU], preset.ranks or (1 if preset.launch == "python" else site.ranks)
    known = host.gpus()
    if not known:
        raise TrainError("the driver shows no GPU: look at `nvidia-smi`")
    found = [gpu.uuid for gpu in known]
    if gpus is not None:
        names = {name: gpu.uuid for gpu in known for name in (str(gpu.index), gpu.uuid)}
        words = [word.strip() for word in gpus.split(",")]
        found = [names[word] for word in dict.fromkeys(words) if word in names]
        if len(found) < len(words):
            has = ", ".join(str(gpu.index) for gpu in known)
            raise TrainError(f"--gpus {gpus:.80}: give GPUs of this host, each once, of {has}")
    ranks = preset.ranks or len(found)
    if ranks > len(found):
        what = f"preset {preset.name} has {ranks} ranks, one for each GPU, and there are"
        raise TrainError(f"{what} {len(found)}: give --set ranks={len(found)}")
    return found, ranks


def refuse(site: Site, run: Run) -> None:
    """Raise TrainError with all that is in the way of a run, written down already or not yet."""
    preset = run.settings
    found = [*_several(run, preset)] or [
        each for check in _CHECKS for each in check(site, run, preset)
    ]
    if found:
        lines = [f"  {what}\n    {remedy}" for what, remedy in found]
        raise TrainError("\n".join(["this run cannot start:", *lines]))


def _several(run: Run, preset: Preset) -> Problems:
    if not run.across:
        return
    if preset.launch != "torchrun":
        yield f"preset {preset.name} is launched by python", "several hosts take launch: 'torchrun'"
    for name in (name for name, value in preset.arguments.items() if "{run}" in str(value)):
        what = f"preset {preset.name} has the run's own folder in {name}, which hosts do not share"
        yield what, f"give --set {name}=FOLDER, one that all of them share, at the same path"
    for option in ("retries", "queue"):
        if getattr(run, option):
            yield "hosts cannot wait for each other", f"leave out --{option}"


def _host(site: Site, run: Run, preset: Preset) -> Problems:
    if not run.unproven and (why := host.unproven(site)):
        yield why, f"{PROVE}, or give --unproven"
    if found := units.problem():
        yield found
    for path in (site.python, site.env_file):
        if not os.access(path, os.R_OK):
            yield f"{path} cannot be read", AGAIN
    checkout = Path(site.checkout)
    if code.head(checkout) is None:
        yield f"{checkout} is no checkout with a commit", "set training_repo and training_commit"
    elif preset.file and not (checkout / preset.file).is_file():
        yield f"{checkout} has no {preset.file}", f"correct 'file' of {preset.name}"


def _arguments(site: Site, run: Run, preset: Preset) -> Problems:
    yield from presets.arithmetic(preset, run.world)
    if word := presets.secret_in([*presets.argument_words(preset.arguments, {}), *run.words]):
        yield f"{word} looks like a secret, and every user sees it", presets.ELSEWHERE
    names = {"WANDB_API_KEY", "WANDB_MODE"} & {*site.env_names, *preset.variables}
    login = Path.home() / ".netrc"
    if preset.wandb and not names and not (login.exists() and "wandb" in login.read_text()):
        what = f"preset {preset.name} logs to Weights & Biases, and there is no key for it"
        yield what, "put WANDB_API_KEY or WANDB_MODE=offline into environment_variables"


def _room(site: Site, run: Run, preset: Preset) -> Problems:
    saves = run.saves or site.runs
    saves = site.runs if saves.is_relative_to(site.runs) else saves
    if "/~" in (run.pattern or ""):
        yield "only a shell replaces the ~ of the checkpoints' folder", "write {home}"
    needs = {site.runs: ("a run's logs", _LOGS_GIB)}
    if preset.checkpoint_gib:
        own = _LOGS_GIB if saves == site.runs else 0
        needs[saves] = ("two checkpoints", 2 * preset.checkpoint_gib + own)
    for folder in dict.fromkeys((site.runs, saves)):
        if why := unwritable(folder):
            make = f"run `sudo install -d -o {getpass.getuser()} {shlex.quote(str(folder))}`"
            yield f"nothing can be written in {folder}: {why}", f"{make}, or name another folder"
    for folder, (what, gib) in needs.items():
        if (free := shutil.disk_usage(above(folder)).free / _GIB) < gib:
            need = f"{free:.1f} GiB are free below {above(folder)}, and {what} need {gib:g}"
            yield need, "delete files there"


def _memory(site: Site, run: Run, preset: Preset) -> Problems:
    if (available := host.memory_gib()[1]) < preset.ram_gib:
        free = f"{available:.1f} GiB of memory are free, and {preset.name} needs"
        yield f"{free} {preset.ram_gib:g}", "end what uses it"
    shared, need = Path("/dev/shm"), SHM_MIB * run.nproc  # noqa: S108 - it is looked at
    if shared.is_dir() and (mib := shutil.disk_usage(shared).free >> 20) < need:
        what = f"{shared} has {mib} MiB free, and {run.nproc} ranks want {need}"
        yield what, f"run `sudo mount -o remount,size={run.nproc}G {shared}`"


def _taken(site: Site, run: Run, preset: Preset) -> Problems:
    held, count = claims.holders(site, run.devices), len(run.devices)
    if count - len(held) < run.wants and not run.queue:
        what = "the CPU is" if CPU in held else f"{len(held)} of {count} GPUs are"
        names = [*dict.fromkeys(held.values())]
        yield f"{what} taken by {', '.join(names)}", taken_remedy(names, run)
    known, users = ([], {}) if run.devices == [CPU] else (host.gpus(), host.gpu_users())
    for gpu in (gpu for gpu in known if gpu.uuid in run.devices and gpu.uuid not in held):
        if users.get(gpu.uuid):
            who = some(users[gpu.uuid], 3)
            yield f"GPU {gpu.index} is in use by {who}", "end it, or give other --gpus"
        free = (gpu.total_mib - gpu.used_mib) / 1024
        if free < preset.gpu_gib:
            has = f"GPU {gpu.index} has {free:.1f} GiB free of {gpu.total_mib / 1024:.1f}"
            needs = f"and preset {preset.name} needs {preset.gpu_gib:g}"
            yield f"{has}, {needs}", "end what has it, give other --gpus, or a smaller preset"


def taken_remedy(names: list[str], run: Run) -> str:
    """Return what helps where runs have what another one needs."""
    ends = " and ".join(f"`train stop {name}`" for name in names if name)
    ways = [] if run.across else ["give --queue to wait"]
    ways += [f"end what has it: {ends}"] if ends else []
    return ", or ".join(ways) or "start it when they have ended"


_CHECKS = (_host, _arguments, _room, _memory, _taken)
