"""What to change of a run whose GPU memory was full, in the words of its own command line."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any

from . import retyped, rundir
from .presets import PresetError, resolved
from .record import Run

MEMORY = "cuda-out-of-memory"
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
_NUMBER = re.compile(r"[^=]+=[-+.0-9][-+.0-9eE]*")
_SHORTEST = 256


def smaller(run: Run, smaller_preset: str = "", gpus: str = "") -> tuple[str, ...]:
    """Return the steps that make this run need less memory; none where its words tell nothing.

    + smaller_preset: see `next_smaller`
    + gpus: those that it had, as `--gpus` takes them; empty for all of the host
    """
    given = dict(retyped.arguments(run.command))
    begun = retyped.of_run(run, gpus)
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
            # Without a preset, as it was typed.
            command = f"`--{name}={value // 2}`"
            if run.preset:
                command = _start(run, begun.changed(name, value // 2))
            steps.append(f"Halve {name}, which is {value} ({words}): {command}")
    if smaller_preset:
        # It is known to fit as it is: a number of the larger one's may be what did not.
        fits = tuple(each for each in begun.settings if not _NUMBER.fullmatch(each))
        other = replace(begun.without(_decides), what=(smaller_preset,), settings=fits)
        steps.append(f"Or the next smaller preset, which ran here: {_start(run, other)}")
    return tuple(steps)


def decisive(run: Run) -> dict[str, int]:
    """Return the arguments of a run that its need of memory grows with, and their values."""
    given = dict(retyped.arguments(run.command))
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


def _decides(name: str) -> bool:
    """Tell whether the need of memory grows with an argument: a smaller preset has its own."""
    return any(each.fullmatch(name) for each in (_BATCH, _LENGTH))


def _largest(given: dict[str, str], pattern: re.Pattern[str]) -> tuple[str, int] | None:
    found = [
        (name, int(value))
        for name, value in given.items()
        if pattern.fullmatch(name) and not _TOTAL.search(name)
        if value.isascii() and value.isdigit() and len(value) < 10
    ]
    return max(found, key=lambda each: each[1], default=None)


def _start(run: Run, start: retyped.Start) -> str:
    """Return how a run like this one is started: on all of its hosts, where it had several."""
    if run.across:
        return start.together(rundir.group(rundir.Run(run.folder)))
    return f"`{start.here()}`"
