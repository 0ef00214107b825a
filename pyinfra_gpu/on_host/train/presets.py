"""Presets of runs: what one is, on hosts and for the controller that checks it, and `--set`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from .host import Site, TrainError

Value = Any
"""Of an argument: a text, a number, True, False or None."""
Short = str
Module = str
Inside = str
Ranks = int
Gib = float
Arguments = Mapping[str, Value]
Variables = Mapping[str, str]
Words = Sequence[str]
PLACES = ("run", "name", "ranks", "home")
"""What `{...}` in a text may stand for, beside the names of the preset's own arguments."""
ELSEWHERE = "put it into environment_variables, which only the owner can read"
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
_NUMBER = re.compile(r"[+-]?[0-9]*\.?[0-9]+([eE][+-]?[0-9]+)?")
_SWITCH = {"true": True, "on": True, "yes": True, "1": True}
_SWITCH |= {"false": False, "off": False, "no": False, "0": False}


@dataclass(frozen=True, kw_only=True)
class Preset:
    """What is run, and what it needs; docs/train.md describes each key.

    `spec/presets.py` has the check behind each name of a type.
    """

    name: str
    module: Module | None = None
    file: Inside | None = None
    launch: Literal["torchrun", "python"] = "torchrun"
    arguments: Arguments = field(default_factory=dict)
    words: Words = ()
    variables: Variables = field(default_factory=dict)
    ranks: Ranks | None = None
    gpu_gib: Gib = 0
    checkpoint_gib: Gib = 0
    checkpoints: Short | None = None
    complete: Words = ()
    resume: Arguments = field(default_factory=dict)
    try_with: Arguments = field(default_factory=dict)
    resume_after_reboot: bool = False


def from_json(name: str, document: Mapping[str, Any]) -> Preset:
    """Return a resolved preset; what another version of this program added is left out."""
    known = {each.name for each in fields(Preset)}
    return Preset(**{**{key: each for key, each in document.items() if key in known}, "name": name})


def chosen(site: Site, name: str | None) -> Preset:
    """Return the preset of that name, or the only one."""
    names = [*site.presets]
    if not names:
        raise TrainError("no presets are declared for this host: set training_presets")
    if name is None and len(names) > 1:
        raise TrainError(f"say which preset: {', '.join(names)}")
    name = name or names[0]
    if name not in names:
        raise TrainError(f"there is no preset {name}: {nearest(name, names, 'presets are')}")
    return from_json(name, site.presets[name])


def nearest(word: str, known: Iterable[str], what: str) -> str:
    """Return "did you mean ...?", or which words there are."""
    close = difflib.get_close_matches(word, known := [*known], n=1)
    return f"did you mean {close[0]}?" if close else f"the {what} {', '.join(known) or 'none'}"


def with_settings(preset: Preset, settings: Sequence[str]) -> Preset:
    """Return the preset with other values, each NAME=VALUE and of the kind that stood there."""
    arguments, ranks = dict(preset.arguments), preset.ranks
    for setting in settings:
        name, _, text = setting.partition("=")
        if not text:
            raise TrainError(f"--set {setting} has no value: write --set NAME=VALUE")
        if name in arguments:
            arguments[name] = _of_kind(preset, name, text)
        elif name != "ranks":
            hint = nearest(name, arguments, "arguments are")
            what = f"preset {preset.name} has no argument {name!r}: {hint}"
            raise TrainError(f"{what} (others go behind --, as -- --{name}={text})")
        elif text.isdecimal() and 1 <= int(text) <= 64:
            ranks = int(text)
        else:
            raise TrainError(f"--set ranks={text} is not a number: give one from 1 to 64")
    return replace(preset, arguments=arguments, ranks=ranks)


def _of_kind(preset: Preset, name: str, text: str) -> Value:
    before: Value = preset.arguments[name]
    if place := unknown_place(text, (*PLACES, *preset.arguments)):
        places = f"the places are {', '.join(PLACES)} and its arguments"
        raise TrainError(f"--set {name} has {{{place}}}, which stands for nothing: {places}")
    if isinstance(before, bool):
        if text.lower() in _SWITCH:
            return _SWITCH[text.lower()]
    elif not isinstance(before, int | float) or _NUMBER.fullmatch(text):
        return text
    kind = "on or off" if isinstance(before, bool) else "a number"
    what = f"--set {name}={text}: in preset {preset.name} it is {before}"
    raise TrainError(f"{what}; give {kind}, or put --{name}={text} behind --")


def unknown_place(text: str, known: Iterable[str]) -> str:
    """Return the first `{...}` in a text that stands for nothing known; "" where there is none."""
    return next((place for place in _BRACES.findall(text) if place not in {*known}), "")


def filled(text: str, values: Mapping[str, object]) -> str:
    """Return a text with what its `{...}` stand for."""
    return _PLACE.sub(lambda match: str(values.get(match[1], match[0])), text)


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


def argument_words(arguments: Mapping[str, Value], known: Mapping[str, object]) -> list[str]:
    """Return arguments as words: True is a switch, None and False leave one out."""
    return [
        f"--{name}" if value is True else f"--{name}={filled(str(value), known)}"
        for name, value in arguments.items()
        if value is not None and value is not False
    ]
