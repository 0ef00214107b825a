"""What to change of a run whose GPU memory was full, in the words of its own command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from . import calling, commanded, rundir
from .presets import PresetError, resolved
from .record import Run

MEMORY = "CUDA-17"
"""The catalogue's entry for a GPU whose memory is full."""

# What programs call them; a separator may be -, _ or ., and any other word may stand before.
_BATCH = re.compile(
    r"(?:[\w.-]{0,40}[._-])?(?:device|micro|local|per[._-]device[._-]train)?[._-]?batch[._-]?size"
)
_TOTAL = re.compile(r"(?:total|global|effective)[._-]?batch")
_LENGTH = re.compile(
    r"(?:[\w.-]{0,40}[._-])?(?:max[._-])?(?:seq(?:uence)?[._-]?(?:len(?:gth)?)?|context"
    r"(?:[._-]length)?|block[._-]size|max[._-]length)"
)
_SHORTEST = 256


def smaller(run: Run, smaller_preset: str = "", gpus: str = "") -> tuple[str, ...]:
    """Return the steps that make this run need less memory; none where its words tell nothing.

    + smaller_preset: see `next_smaller`
    + gpus: those that it had, as `--gpus` takes them; empty for all of the host
    """
    given = dict(_arguments(run.command))
    steps = []
    same = "the total stays, the result is the same"
    less = "each step then sees half as much: the result changes a little"
    whole = any(_TOTAL.search(name) for name in given)
    for pattern, least, words in (
        (_BATCH, 1, same if whole else less),
        (_LENGTH, _SHORTEST, "only if that is not enough: the result changes"),
    ):
        found = _largest(given, pattern)
        if found and found[1] // 2 >= least:
            name, value = found
            command = _command(run, name, value // 2, gpus)
            steps.append(f"Halve {name}, which is {value} ({words}): `{command}`")
    if smaller_preset:
        command = _start(run, smaller_preset, gpus, {}, words=())
        steps.append(f"Or the next smaller preset, which ran here: `{command}`")
    return tuple(steps)


def decisive(run: Run) -> dict[str, int]:
    """Return the arguments of a run that its need of memory grows with, and their values."""
    given = dict(_arguments(run.command))
    return dict(found for each in (_BATCH, _LENGTH) if (found := _largest(given, each)))


def next_smaller(
    preset: str,
    presets: Mapping[str, Mapping[str, Any]],
    ran: Container[str],
    failed: Mapping[str, int],
) -> str:
    """Return the nearest preset that this one extends and that is known to fit, empty if none is.

    + presets: as data gives them; a larger one extends the smaller
    + ran: those that have trained at least a step on this host
    + failed: what did not fit, see `decisive`; a run may have had less than its own preset
    """
    seen = {preset}
    while True:
        below = presets.get(preset, {}).get("extends")
        if not isinstance(below, str) or below in seen:
            return ""
        if below in ran and _is_less(below, presets, failed):
            return below
        seen.add(below)
        preset = below


def _is_less(
    preset: str, presets: Mapping[str, Mapping[str, Any]], failed: Mapping[str, int]
) -> bool:
    """Tell whether a preset has less of something that decides, and more of nothing."""
    try:
        given = resolved(presets, preset).arguments
    except PresetError:
        return False
    both = [(each, failed[name]) for name, each in given.items() if name in failed]
    known = [(each, most) for each, most in both if isinstance(each, int)]
    return all(each <= most for each, most in known) and any(each < most for each, most in known)


def _arguments(command: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield name and value of each `--name=value` and `--name value`."""
    for word, following in pairwise([*command, ""]):
        name, equals, value = word.partition("=")
        if name.startswith("--") and len(name) > 2:
            yield name[2:], value if equals else following


def _largest(given: dict[str, str], pattern: re.Pattern[str]) -> tuple[str, int] | None:
    found = [
        (name, int(value))
        for name, value in given.items()
        if pattern.fullmatch(name) and not _TOTAL.search(name)
        if value.isascii() and value.isdigit() and len(value) < 10
    ]
    return max(found, key=lambda each: each[1], default=None)


def _command(run: Run, name: str, value: int, gpus: str) -> str:
    """Return how this run is started with another value; without a preset, as it was typed."""
    if not run.preset:
        return f"--{name}={value}"
    words, changed = _with_value(run.words, name, value)
    settings = {key: old for key, old in run.overrides.items() if key != name}
    return _start(run, run.preset, gpus, settings | ({} if changed else {name: str(value)}), words)


def _with_value(words: Sequence[str], name: str, value: int) -> tuple[list[str], bool]:
    """Return the words behind -- with another value of an argument, and whether they name it."""
    changed, found = list(words), False
    for place, word in enumerate(words):
        if word.partition("=")[0] == f"--{name}":
            found = True
            if "=" in word:
                changed[place] = f"--{name}={value}"
            elif place + 1 < len(words):
                changed[place + 1] = str(value)
    return changed, found


def _start(
    run: Run, preset: str, gpus: str, settings: Mapping[str, str], words: Sequence[str]
) -> str:
    """Return how a run like this one is started: on all of its hosts, where it had several."""
    typed = commanded.start(
        preset,
        gpus=gpus,
        unproven=run.unproven,
        queue=run.queue,
        retries=run.retries,
        settings=settings,
        words=words,
    )
    if run.across:
        group = rundir.group(rundir.Run(run.folder))
        return calling.together("start", group, *typed).strip("`")
    return shlex.join(["train", "start", *typed])
