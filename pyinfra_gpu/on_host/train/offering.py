"""What may be typed next: the presets and runs that there are, for `on_host.completion`."""

from __future__ import annotations

import argparse

from . import gpus, rundir, site
from .errors import TrainError

_MOST = 50  # runs, the newest
_MOST_RANKS = 64


def presets(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Return the declared presets; none where they cannot be read."""
    del prefix, parsed_args
    try:
        return [*site.load().presets]
    except TrainError:
        return []


def runs(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Return the last runs, the newest first."""
    del prefix, parsed_args
    try:
        return [run.name for run in reversed(rundir.all_runs(site.load())[-_MOST:])]
    except (TrainError, OSError):
        return []


def going(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Return the runs that have not ended, the newest first."""
    return [name for name in runs(prefix, parsed_args) if not _ended(name)]


def resumable(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Return the runs that have ended and not finished, the newest first."""
    names = runs(prefix, parsed_args)
    return [name for name in names if _ended(name) and _outcome(name) != "finished"]


def with_logs(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Return the runs that have begun, the newest first."""
    return [name for name in runs(prefix, parsed_args) if _document(name).get("attempts")]


def ranks(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Return the ranks of the run that was typed, else of the newest."""
    names = runs(prefix, parsed_args)
    name = getattr(parsed_args, "run", None) or next(iter(names), "")
    count = _document(name).get("nproc")
    return [*map(str, range(count))] if isinstance(count, int) and count <= _MOST_RANKS else []


def devices(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Return the GPUs of this host, behind those that were typed."""
    del parsed_args
    before, comma, _last = prefix.rpartition(",")
    try:
        known = [str(gpu.index) for gpu in gpus.listed()]
    except (TrainError, OSError):
        return []
    return [f"{before}{comma}{each}" for each in known if each not in before.split(",")]


def _document(name: str) -> rundir.Document:
    try:
        return rundir.Run(site.load().runs / name).settled()
    except (TrainError, OSError, KeyError):
        return {}


def _ended(name: str) -> bool:
    return bool(_document(name).get("state") == "ended")


def _outcome(name: str) -> str:
    return rundir.outcome(document) if (document := _document(name)) else ""


def settings(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Return the arguments of the preset that was typed, as `--set` takes them."""
    del prefix
    try:
        declared = site.load().presets
    except TrainError:
        return []
    names, following = ["ranks"], getattr(parsed_args, "preset", None)
    for _each in declared:  # as often as there are presets: they may extend each other in a circle
        preset = declared.get(str(following), {})
        names += preset.get("arguments", {})
        following = preset.get("extends")
    return [f"{name}=" for name in dict.fromkeys(names)]


def offer(action: argparse.Action, what: object) -> None:
    """Have an argument complete by one of these."""
    action.completer = what  # type: ignore[attr-defined]  # argcomplete reads it
