"""Presets of runs, which a host gets resolved: `--set`, the command and the checkpoints."""

from __future__ import annotations

import difflib
import glob
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from .host import CPU, Site, TrainError

Value = Any
"""Of an argument: a text, a number, True, False or None."""
PLACES = ("run", "name", "ranks", "home")
"""What `{...}` in a text may stand for, beside the names of the preset's own arguments."""
RESUME_PLACES = (*PLACES, "checkpoint", "step")
ELSEWHERE = "put it into environment_variables, which only the owner can read"
WORKTREE = "code"
"""In a run's folder; there its program runs, so there a relative path begins."""
LONGEST = 4096
"""Characters of a value."""
BATCH = re.compile(r"(?:[\w.-]*[._-])?batch[._-]?size")
_PLACE = re.compile(r"\{([A-Za-z][A-Za-z0-9_.-]*)\}")
# What looks like a place, and may be none: JSON has a quote or a colon between its braces.
_BRACES = re.compile(r"\{([A-Za-z0-9][A-Za-z0-9_. -]{0,60})\}")
_SECRET = re.compile(r"(^|[_.-])(key|token|secret|password|passwd|credentials?)$", re.IGNORECASE)
_SECRET_VALUE = re.compile(
    r"(hf_|sk-|ghp_|github_pat_|wandb_v1_)[A-Za-z0-9_-]{16,}|xox[abprs]-[A-Za-z0-9-]{10,}"
    r"|hooks\.slack\.com/services/.{8,}|/api/webhooks/[0-9]+/.{8,}"
    r"|\b[0-9]{6,12}:[A-Za-z0-9_-]{30,}|\b(?i:bearer|basic) +[A-Za-z0-9+/=._~-]{8,}"
    r"|[a-z]://[^/\s:@]*:[^/\s@]{3,}@"
    r"|[?&;](?i:[a-z_.-]{0,40}(?:key|token|secret|password))=[^&\s]{8,}"
)
_SWITCH = {"true": True, "on": True, "yes": True, "1": True}
_SWITCH |= {"false": False, "off": False, "no": False, "0": False}


@dataclass(frozen=True, kw_only=True)
class Preset:
    """What is run, and what it needs; docs/train.md describes each key."""

    name: str
    module: str | None = None
    file: str | None = None
    launch: str = "torchrun"
    arguments: Mapping[str, Value] = field(default_factory=dict)
    words: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    ranks: int | None = None
    gpu_gib: float = 0
    ram_gib: float = 0
    checkpoint_gib: float = 0
    checkpoints: str | None = None
    complete: Sequence[str] = ()
    resume: Mapping[str, Value] = field(default_factory=dict)
    multiples: Mapping[str, Sequence[str | int]] = field(default_factory=dict)
    try_with: Mapping[str, Value] = field(default_factory=dict)
    wandb: bool = False
    resume_after_reboot: bool = False

    def processes(self, ranks: int) -> int:
        """Return how many processes train on a host that has so many ranks' devices."""
        return 1 if self.launch == "python" else ranks


def from_json(name: str, document: Mapping[str, Any]) -> Preset:
    """Return a resolved preset; what another version of this program added is left out."""
    known = {each.name for each in fields(Preset)}
    return Preset(**{**{key: each for key, each in document.items() if key in known}, "name": name})


def chosen(site: Site, name: str | None) -> Preset:
    """Return the preset of that name, or the only one."""
    if not site.presets:
        text = "no presets are declared for this host"
        raise TrainError(f"{text}: set training_presets, as docs/train.md shows")
    if name is None:
        name, *others = site.presets
        if others:
            raise TrainError(f"say which preset: {', '.join(site.presets)}")
    if name not in site.presets:
        hint = nearest(name, site.presets, "presets are")
        raise TrainError(f"there is no preset {name}: {hint}")
    return from_json(name, site.presets[name])


def nearest(word: str, known: Iterable[str], what: str) -> str:
    """Return "did you mean ...?", or which words there are."""
    close = difflib.get_close_matches(word, known := [*known], n=1)
    return f"did you mean {close[0]}?" if close else f"the {what} {', '.join(known) or 'none'}"


def with_settings(preset: Preset, settings: Sequence[str]) -> Preset:
    """Return the preset with other values, each NAME=VALUE and of the kind that stood there."""
    arguments = dict(preset.arguments)
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not name or not equals:
            raise TrainError(f"--set {name or setting} has no value: write --set NAME=VALUE")
        if name in arguments:
            arguments[name] = _of_kind(preset, name, text)
        elif name != "ranks":
            hint = nearest(name, arguments, "arguments are")
            raise TrainError(
                f"preset {preset.name} has no argument {name!r}: {hint}; what it does not know"
                f" goes behind --, as -- --{name}={text}"
            )
        elif text.isdecimal() and 1 <= int(text) <= 64:
            preset = replace(preset, ranks=int(text))
        else:
            raise TrainError(f"--set ranks={text} is not a number: give one from 1 to 64")
    return replace(preset, arguments=arguments)


def _of_kind(preset: Preset, name: str, text: str) -> Value:
    before: Value = preset.arguments[name]
    value: Value = None
    kind = "a text in printable characters"
    try:
        if isinstance(before, bool):
            kind = "on or off"
            value = _SWITCH[text.lower()]
        elif isinstance(before, int | float):
            # 0 may be a rate or a share as well.
            whole = isinstance(before, int) and (before != 0 or text.lstrip("-").isdecimal())
            kind = "a whole number" if whole and before else "a number"
            value = int(text) if whole else float(text)
            if BATCH.fullmatch(name) and value < 1:
                kind, value = "a number above 0", None
        elif place := unknown_place(text, (*PLACES, *preset.arguments)):
            kind = f"no {{{place}}}: the places are {', '.join(PLACES)} and its arguments"
        elif text.isprintable() and 0 < len(text) <= LONGEST:
            value = text
    except (KeyError, ValueError):
        pass
    if value is None:
        was = "" if isinstance(before, str) else f", as in preset {preset.name}, where it is "
        was += "" if isinstance(before, str) else str(before)
        text = f"--set {name} takes {kind}{was}"
        raise TrainError(f"{text}: give one, or put --{name}=VALUE behind --")
    return value


def unknown_place(text: str, known: Iterable[str]) -> str:
    """Return the first `{...}` in a text that stands for nothing known; "" where there is none."""
    return next((place for place in _BRACES.findall(text) if place not in {*known}), "")


def filled(text: str, values: Mapping[str, object]) -> str:
    """Return a text with what its `{...}` stand for."""
    return _PLACE.sub(lambda match: str(values.get(match[1], match[0])), text)


def arithmetic(preset: Preset, ranks: int) -> list[tuple[str, str]]:
    """Return (problem, remedy) of each total that is no multiple of what it must be.

    + ranks: of all hosts
    """
    numbers = {"ranks": ranks, **preset.arguments}
    found = []
    for name, factors in preset.multiples.items():
        total, product, told = numbers.get(name), 1, []
        for factor in factors:
            value = factor if isinstance(factor, int) else numbers.get(factor)
            product *= value if isinstance(value, int) else 0
            told.append(str(factor) if isinstance(factor, int) else f"{factor} {value}")
        if isinstance(total, int) and product > 0 and total % product == 0:
            continue
        below = total // product * product if isinstance(total, int) and product > 0 else 0
        near = " or ".join(str(n) for n in (below, below + product) if n > 0) or "A MULTIPLE"
        problem = f"{name} {total} of preset {preset.name} is no multiple of"
        found.append((f"{problem} {' x '.join(told)} = {product}", f"give --set {name}={near}"))
    return found


def secret_in(words: Sequence[str]) -> str | None:
    """Return the option whose value looks like a secret, which every user of a host could see."""
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if not equals and not following.startswith("-"):
            value = following
        shown = name if re.fullmatch(r"-{0,2}[A-Za-z][A-Za-z0-9_.-]{0,63}", name) else "a word"
        if _SECRET_VALUE.search(word):
            return shown if equals else "a word"
        if (equals or name.startswith("-")) and _SECRET.search(name) and len(value) >= 8:
            return shown
    return None


def is_secret(name: str, value: str = "") -> bool:
    """Tell whether a variable of that name, or with that value, looks secret."""
    return bool(_SECRET.search(name) or _SECRET_VALUE.search(value))


# -- what is run


def values(preset: Preset, folder: Path, ranks: int) -> dict[str, object]:
    """Return what `{...}` stands for in a run of that folder."""
    count = preset.processes(ranks)
    known = {"run": str(folder), "name": folder.name, "ranks": count, "home": str(Path.home())}
    given = {name: value for name, value in preset.arguments.items() if value is not None}
    for name, value in given.items():
        given[name] = filled(value, known) if isinstance(value, str) else value
    return {**given, **known}


def argument_words(arguments: Mapping[str, Value], known: Mapping[str, object]) -> list[str]:
    """Return arguments as words: True is a switch, None and False leave one out."""
    return [
        f"--{name}" if value is True else f"--{name}={filled(str(value), known)}"
        for name, value in arguments.items()
        if value is not None and value is not False
    ]


def command(
    python: str,
    preset: Preset,
    known: Mapping[str, object],
    ranks: int,
    further: Sequence[str],
    *,
    hosts: int = 1,
    resumed: Mapping[str, object] | None = None,
) -> list[str]:
    """Return the command line of a run.

    + known: what `{...}` stands for; + further: what stood behind `--`
    + resumed: the checkpoint and its step, where it goes on
    """
    known = {**known, **(resumed or {})}
    arguments = {**preset.arguments, **(preset.resume if resumed else {})}
    what = ["-m", preset.module] if preset.module else [str(preset.file)]
    own = [*argument_words(arguments, known), *(filled(word, known) for word in preset.words)]
    program = [python, "-u", *what, *own, *further]
    if preset.launch == "python":
        return program
    nodes = ["--standalone"] if hosts == 1 else ["--nnodes", str(hosts)]
    torchrun = [python, "-m", "torch.distributed.run", *nodes]
    return [*torchrun, "--nproc-per-node", str(ranks), "--no-python", *program]


def devices_variable(devices: Sequence[str]) -> dict[str, str]:
    """Return the variable that shows a run its GPUs and no others."""
    return {"CUDA_VISIBLE_DEVICES": "" if [*devices] == [CPU] else ",".join(devices)}


# -- its checkpoints


@dataclass(frozen=True)
class Checkpoint:
    """+ step: the digits in its name, as they stand there."""

    path: Path
    step: str

    @property
    def changed(self) -> float:
        return self.path.stat().st_mtime


def newest(
    preset: Preset, values: Mapping[str, object], ranks: int, since: float
) -> Checkpoint | None:
    """Return the newest complete checkpoint that was written since a moment.

    + ranks: of all hosts
    """
    for each in reversed(found(preset, values)):
        if each.changed >= since and _complete(preset, each, values, ranks):
            return each
    return None


def found(preset: Preset, values: Mapping[str, object]) -> list[Checkpoint]:
    """Return all that the preset's pattern matches, the newest step last."""
    pattern, known = pattern_of(preset, values), []
    for name in glob.glob(pattern) if pattern else ():  # noqa: PTH207 - it is an absolute one
        numbers = re.findall("[0-9]+", Path(name).name)
        known.append(Checkpoint(Path(name), numbers[-1] if numbers else ""))
    return sorted(known, key=lambda each: (int(each.step or 0), each.path))


def pattern_of(preset: Preset, values: Mapping[str, object]) -> str | None:
    """Return where checkpoints are, as a glob with an absolute path."""
    if preset.checkpoints is None:
        return None
    worktree = glob.escape(str(Path(str(values["run"])) / WORKTREE))
    return os.path.normpath(Path(worktree) / filled(preset.checkpoints, values))


def folder_of(pattern: str) -> Path:
    """Return the folder above the first part of a pattern that is no plain name."""
    parts = Path(pattern).parts[:-1]
    magic = next((place for place, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return Path(*parts[:magic])


def _complete(preset: Preset, each: Checkpoint, values: Mapping[str, object], ranks: int) -> bool:
    folder = each.path if each.path.is_dir() else each.path.parent
    known = {**values, "checkpoint": str(each.path), "step": each.step or "*"}

    def holds(pattern: str, rank: int) -> bool:
        path = folder / filled(pattern, {**known, "rank": rank})
        return path.is_file() and path.stat().st_size > 0

    for pattern in (*preset.complete, *([each.path.name] if each.path.is_file() else [])):
        ranked = "{rank}" in pattern
        if not all(holds(pattern, rank) for rank in range(ranks if ranked else 1)):
            return False
        if ranked and (folder / filled(pattern, {**known, "rank": ranks})).exists():
            return False  # it is of a run with more ranks
    return True
