"""Presets of training runs, checked and resolved here, so that hosts get them ready to run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from pyinfra_gpu.on_host.train import presets as runs
from pyinfra_gpu.spec.values import BadValueError, kind
from pyinfra_gpu.spec.variables import FORBIDDEN

LONGEST_CHAIN = 50
"""Presets that one may extend, each through the next."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"
Text = Annotated[
    str, StringConstraints(min_length=1, max_length=runs.LONGEST, pattern=_PRINTABLE, strict=True)
]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Gib = Annotated[float, Field(ge=0, le=1 << 20, strict=True)]
Value = (
    Annotated[bool, Field(strict=True)] | Annotated[int, Field(strict=True)] | Number | Text | None
)
Argument = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$")]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
Inside = Annotated[Text, StringConstraints(pattern=r"^(?![/-])(?:(?!\.\.(?:/|$))[^/]*(?:/|$))*$")]
Factor = Annotated[int, Field(gt=0, strict=True)] | Text


class Preset(BaseModel):
    """What may be given for a preset; `on_host.train.presets.Preset` is what becomes of it."""

    model_config = ConfigDict(extra="forbid", regex_engine="python-re")

    extends: str | None = None
    module: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.\w+)*$")] | None = None
    file: Inside | None = None
    launch: Literal["torchrun", "python"] = "torchrun"
    arguments: dict[Argument, Value] = {}
    words: list[Text] | tuple[Text, ...] = []
    variables: dict[Variable, Text] = {}
    ranks: Annotated[int, Field(ge=1, le=64, strict=True)] | None = None
    gpu_gib: Gib = 0
    ram_gib: Gib = 0
    checkpoint_gib: Gib = 0
    checkpoints: Text | None = None
    complete: list[Text] | tuple[Text, ...] = []
    resume: dict[Argument, Value] = {}
    multiples: dict[Argument, Annotated[list[Factor], Field(min_length=1)]] = {}
    try_with: dict[Argument, Value] = {}
    wandb: Annotated[bool, Field(strict=True)] = False
    resume_after_reboot: Annotated[bool, Field(strict=True)] = False


_MERGED = ("arguments", "variables", "resume", "multiples", "try_with")
_KEYS = tuple(Preset.model_fields)


def presets(value: object) -> dict[str, dict[str, Any]]:
    """Accept a dict of presets, and return each with what it extends."""
    if not isinstance(value, Mapping):
        raise BadValueError(f"is {kind(value)}, not a dict of presets")
    for name, given in value.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise _wrong(f"{name!r:.60} is no name of a preset", "name it by a-z, 0-9, _ and -")
        _check(name, given)
    found = {name: resolved(value, name) for name in value}
    for name, given in found.items():
        _check_whole(runs.from_json(name, given))
    return found


def resolved(known: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Return a preset with all that it has of those that it extends."""
    chain: list[str] = []
    following: str | None = name
    while following is not None:
        if following in chain or len(chain) > LONGEST_CHAIN:
            way = " -> ".join([*chain[:5], following])
            raise _wrong(
                f"preset {name} extends too many ({way})", f"take 'extends' out of {chain[-1]}"
            )
        if following not in known:
            hint = runs.nearest(following, known, "presets are")
            raise _wrong(f"preset {chain[-1]} extends {following}, which is not there", hint)
        chain.append(following)
        following = known[following].get("extends")
    merged: dict[str, Any] = {}
    for each in reversed(chain):
        for key, given in known[each].items():
            merged[key] = {**merged.get(key, {}), **given} if key in _MERGED else given
    merged.pop("extends", None)
    return merged


def command(value: object) -> tuple[str, ...]:
    """Accept a command as a list of words, without a secret: every user of a host can read it."""
    if not isinstance(value, list | tuple) or not all(map(_is_text, value)):
        raise BadValueError(f"is {kind(value)}, not a list of texts")
    words = tuple(value)
    if words and not words[0].startswith("/"):
        raise BadValueError("begins with a word that is no absolute path")
    if word := runs.secret_in(words):
        raise BadValueError(f"has a secret in {word}", remedy="put it into a file of the owner's")
    return words


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= runs.LONGEST and value.isprintable()


def _wrong(problem: str, remedy: str) -> BadValueError:
    return BadValueError(f"is wrong: {problem}", remedy=remedy)


def _check(name: str, given: object) -> None:
    """Refuse a preset with a key or a value that is wrong by itself; no value is repeated."""
    if not isinstance(given, Mapping):
        raise _wrong(f"preset {name} is {kind(given)}", "write {'file': 'train.py'}")
    for key in given:
        if key not in _KEYS:
            hint = runs.nearest(str(key), _KEYS, "keys of a preset are")
            raise _wrong(f"preset {name} has the key {key!r:.60}, which nothing reads", hint)
    try:
        Preset.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key, *below = map(str, first["loc"])
        inside = f" of {below[0]}" if below and isinstance(given[key], Mapping) else ""
        if below[-1:] == ["[key]"]:
            remedy = "use letters, digits, _, . and -, without dashes before it"
            raise _wrong(f"{key} of preset {name} has the name {below[0]!r:.60}", remedy) from None
        raise _wrong(f"{key}{inside} of preset {name}: {first['msg']}", f"correct {key}") from None
    for variable, value in given.get("variables", {}).items():
        if variable in FORBIDDEN:
            why = f"preset {name} sets {variable}, which is not set because {FORBIDDEN[variable]}"
            raise _wrong(why, f"take {variable} out of 'variables' of {name}")
        if runs.is_secret(variable, value):
            raise _wrong(f"preset {name} sets {variable}, which looks secret", runs.ELSEWHERE)


def _check_whole(preset: runs.Preset) -> None:
    """Refuse a resolved preset whose keys do not fit each other."""
    name = preset.name
    if (preset.module is None) is (preset.file is None):
        what = "neither a module nor a file" if preset.module is None else "a module and a file"
        raise _wrong(f"preset {name} names {what}", "give one of 'module' and 'file'")
    if word := runs.secret_in([*runs.argument_words(preset.arguments, {}), *preset.words]):
        raise _wrong(f"preset {name} has a secret in {word}", runs.ELSEWHERE)
    for key in ("resume", "complete"):
        if getattr(preset, key) and not preset.checkpoints:
            what = f"preset {name} has {key!r} and no 'checkpoints'"
            raise _wrong(what, "give the glob that matches them")
    if preset.resume_after_reboot and not preset.resume:
        what = f"preset {name} has 'resume_after_reboot' and no 'resume'"
        raise _wrong(what, "say how it is resumed")
    for argument, factors in preset.multiples.items():
        for each in (argument, *(one for one in factors if isinstance(one, str))):
            if each != "ranks" and type(preset.arguments.get(each)) is not int:
                what = f"'multiples' of preset {name} counts with {each}, which is no whole number"
                raise _wrong(what, f"give its arguments a number for {each}")
    _check_places(preset)


def _check_places(preset: runs.Preset) -> None:
    own, resume = runs.PLACES, runs.RESUME_PLACES
    plain = [*preset.arguments.values(), *preset.try_with.values(), *preset.words]
    plain += [*preset.variables.values(), preset.checkpoints or ""]
    asked: list[tuple[str, tuple[str, ...]]] = [(str(text), own) for text in plain]
    asked += [(str(text), resume) for text in preset.resume.values()]
    asked += [(text, (*resume, "rank")) for text in preset.complete]
    for text, known in asked:
        if place := runs.unknown_place(text, (*known, *preset.arguments)):
            hint = runs.nearest(place, [*known, *preset.arguments], "places are")
            raise _wrong(f"preset {preset.name} has {{{place}}} in {text!r:.80}", hint)
