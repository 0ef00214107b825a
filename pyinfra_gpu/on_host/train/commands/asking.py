"""What is asked for: which preset, on which devices, with how many ranks."""

from __future__ import annotations

import argparse
from dataclasses import replace

from .. import calling, checkpoints, claims, gpus, presets, retyped, rundir
from ..checks import Asked, Problem
from ..errors import TrainError
from ..presets import Preset, PresetError
from ..record import read_run
from ..rundir import Run
from ..site import Site


def preset_of(
    site: Site, asked: argparse.Namespace, like: Run | None
) -> tuple[Preset, tuple[str, ...]]:
    """Return the preset as `--set` changes it, and the words behind `--`; raises TrainError.

    + like: the run whose preset it is to be
    """
    words = tuple(asked.words)
    try:
        if like is not None:
            request = like.request()
            preset = presets.from_json(request["preset"])
            words = words or tuple(request["words"])
        else:
            preset = presets.resolved(site.presets, _name(site, asked.preset))
        return presets.with_settings(preset, asked.set), words
    except PresetError as error:
        raise TrainError(str(error)) from None


def _name(site: Site, given: str | None) -> str:
    declared(site)
    if given is None and len(site.presets) > 1:
        raise TrainError(f"say which preset: {', '.join(site.presets)}")
    return given or next(iter(site.presets))


def declared(site: Site) -> list[str]:
    """Return the presets' names; raises TrainError where there is none."""
    if not site.presets:
        raise TrainError(
            "no presets are declared for this host: set training_presets, as docs/train.md shows"
        )
    return [*site.presets]


def wanted(
    site: Site,
    asked: argparse.Namespace,
    preset: Preset,
    words: tuple[str, ...],
    going_on: str = "",
) -> tuple[Asked, list[gpus.Gpu]]:
    """Return the start that is asked for, and the GPUs of this host; raises TrainError.

    + going_on: the run that it lets go on, which stays as it was begun; empty for a new one
    """
    known = [] if site.accelerator == "cpu" else gpus.listed()
    devices = _devices(site, asked.gpus, known)
    if site.accelerator == "cpu":
        ranks = preset.ranks or (1 if preset.launch == "python" else site.ranks)
    else:
        ranks = preset.ranks or len(devices)
        if ranks > len(devices):
            has = f"--gpus names {len(devices)}" if asked.gpus else f"this host has {len(devices)}"
            remedy = f"give --set ranks={len(devices)}"
            if going_on:  # its checkpoints are of so many ranks
                anew = retyped.of_options(asked, "--like", going_on)
                remedy = f"begin it anew with fewer, `{anew.changed('ranks', len(devices)).here()}`"
                if asked.gpus:
                    remedy = f"name {ranks} GPUs, or leave out --gpus for all, or {remedy}"
            raise TrainError(
                f"preset {preset.name} has {ranks} ranks, one for each GPU, and {has}: {remedy}"
            )
    start = Asked(
        preset=replace(preset, ranks=ranks),
        devices=tuple(devices),
        ranks=ranks,
        words=words,
        unproven=asked.unproven,
        queue=asked.queue,
        retries=asked.retries or 0,
        hosts=getattr(asked, "hosts", 1),
        going_on=bool(going_on),
    )
    return start, known


def _devices(site: Site, given: str | None, known: list[gpus.Gpu]) -> list[str]:
    """Return the devices that may be taken: those that are named, else all."""
    if site.accelerator == "cpu":
        if given is not None:
            raise TrainError("this host has no GPUs, by its data: leave out --gpus")
        return [claims.CPU]
    if not known:
        raise TrainError("the driver shows no GPU: look at `nvidia-smi`")
    if given is None:
        return [gpu.uuid for gpu in known]
    return _named(given, known)


def _named(given: str, known: list[gpus.Gpu]) -> list[str]:
    """Return the UUIDs of the GPUs that `--gpus` names, each once."""
    has = f"this host has {', '.join(str(gpu.index) for gpu in known)}"
    found: list[str] = []
    for word in map(str.strip, given.split(",")):
        if not word:
            if given.strip(" ,"):
                raise TrainError(f"--gpus {given!r:.80} has a comma too many: {has}")
            raise TrainError(f"--gpus {given!r} names no GPU: {has}; leave it out for all of them")
        match = [gpu for gpu in known if word in (str(gpu.index), gpu.uuid)]
        if not match:
            raise TrainError(f"there is no GPU {word}: {has}")
        if match[0].uuid in found:
            raise TrainError(f"--gpus {given:.80} names GPU {match[0].index} twice: name it once")
        found.append(match[0].uuid)
    return found


def refuse_across(asked: Asked, start: retyped.Start | None = None) -> None:
    """Raise TrainError where several hosts cannot train it together.

    + start: as it was typed; None where nothing more was than the preset
    """
    if asked.hosts > 1 and asked.preset.launch != "torchrun":
        raise TrainError(
            f"preset {asked.preset.name} is launched by python, for one process: several hosts"
            " take 'launch': 'torchrun'"
        )
    arguments = asked.preset.arguments
    own = [name for name, value in arguments.items() if "{run}" in str(value)]
    folder = checkpoints.argument(asked.preset)
    if folder and not str(arguments[folder]).startswith(("/", "{")):
        own.append(folder)  # it begins in the run's code
    if asked.hosts > 1 and own:
        start = start or retyped.Start(what=(asked.preset.name,))
        for name in own:
            start = start.changed(name, "FOLDER")
        typed = start.together("")
        raise TrainError(
            f"preset {asked.preset.name} has the run's own folder in {', '.join(own)}, and hosts do"
            f" not share it: type {typed}, with a folder that all of them share, at the same path"
        )
    if asked.hosts > 1 and asked.retries:
        raise TrainError(
            "a run of several hosts does not begin again by itself, since no host knows when the"
            " others are ready: leave out --retries, and let it go on with"
            f" {calling.together('resume', '')}"
        )
    if asked.hosts > 1 and asked.queue:
        raise TrainError(
            "a run of several hosts does not wait for its GPUs, since those that it has elsewhere"
            " would wait with it: leave out --queue"
        )


def refuse_part(like: Run, asked: argparse.Namespace) -> None:
    """Raise TrainError where one host alone is to repeat what several trained together."""
    document = like.read()
    if asked.hosts > 1 or not document.get("across"):
        return
    typed = retyped.of_options(asked, "--like", like.name)
    whole = typed.together(rundir.group(like))
    told = read_run(like.folder)
    alone = typed.over(retyped.of_run(told)).here() if told else "train start"
    raise TrainError(
        f"run {like.name} is one of {', '.join(document['across'])} together: repeat it with"
        f" {whole}, or begin one of this host alone with `{alone}`"
    )


def refuse(found: list[Problem]) -> None:
    """Raise TrainError with all that is in the way, where anything is."""
    if found:
        lines = [f"  {each.what}\n    {each.remedy}" for each in found]
        raise TrainError("\n".join(["this run cannot start:", *lines]))
