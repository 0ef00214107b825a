"""Presets of training runs, checked and resolved here, so that hosts get them ready to run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetPydanticSchema,
    StringConstraints,
    create_model,
)

from pyinfra_gpu.on_host.train import presets as runs
from pyinfra_gpu.on_host.train.presets import Preset
from pyinfra_gpu.spec.types import Bad, Text, Variable, refuse

_LONGEST = 4096  # characters of a value
_RESUME_PLACES = (*runs.PLACES, "checkpoint", "step")
Short = Annotated[Text, StringConstraints(min_length=1, max_length=_LONGEST)]


def _printable(value: object) -> object:
    """Refuse what is no word of a command line, and no switch."""
    text = value if isinstance(value, str) else "a number"
    finite = not isinstance(value, float) or math.isfinite(value)
    right = finite and isinstance(value, str | int | float | None)
    if not right or not text.isprintable() or not 0 < len(text) <= _LONGEST:
        raise Bad("is no text on one line, number, True, False or None")
    return value


Value = Annotated[Any, AfterValidator(_printable)]
Argument = Annotated[
    Text,
    refuse("^(?![A-Za-z][A-Za-z0-9_.-]{0,63}$)", "is not letters, digits, _, . and - alone"),
]


_TYPES = {
    "Module": Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.\w+)*$")],
    "Inside": Annotated[
        Short, refuse(r"^[/-]|(^|/)\.\.(/|$)", "leads out of the repo or is an option")
    ],
    "Short": Short,
    "Arguments": dict[Argument, Value],
    "Variables": dict[Variable, Short],
    "Words": Annotated[list[Short], Field(strict=False)],
    "Ranks": Annotated[int, Field(ge=1, le=64)],
    "Gib": Annotated[float, Field(ge=0, le=1 << 20)],
}
"""What stands here for the host's name of a type."""
_HINTS = get_type_hints(Preset, localns=_TYPES, include_extras=True)
_FIELDS: dict[str, Any] = {name: (hint, None) for name, hint in _HINTS.items() if name != "name"}
_Given = create_model(
    "_Given",
    __config__=ConfigDict(extra="forbid", strict=True),
    **{"extends": (str | None, None), **_FIELDS},
)
KEYS = tuple(_Given.model_fields)
"""What may be given for a preset."""


def resolved(known: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Return a preset with all that it has of those that it extends: dicts are merged."""
    chain = [name]
    while (following := known[chain[-1]].get("extends")) is not None:
        last = chain[-1]
        if following in chain:
            way = " -> ".join([*chain[:5], following])
            raise _wrong(name, f"extends itself ({way})", f"take 'extends' out of {last}")
        if following not in known:
            hint = runs.nearest(following, known, "presets are")
            raise _wrong(last, f"extends {following}, which is not there", hint)
        chain.append(following)
    merged: dict[str, Any] = {}
    for each in reversed(chain):
        for key, given in known[each].items():
            merged[key] = {**merged.get(key, {}), **given} if isinstance(given, dict) else given
    merged.pop("extends", None)
    return merged


def _wrong(name: str, problem: str, remedy: str) -> Bad:
    return Bad(f"is wrong: preset {name} {problem}", remedy)


def _whole(declared: dict[str, BaseModel]) -> dict[str, Preset]:
    """Return each preset with what it extends; refuse one whose keys do not fit each other."""
    known = {name: each.model_dump(exclude_unset=True) for name, each in declared.items()}
    found = {name: runs.from_json(name, resolved(known, name)) for name in known}
    for name, preset in found.items():
        for problem, remedy in _contradictions(preset):
            raise _wrong(name, problem, remedy)
    return found


def _contradictions(preset: Preset) -> Iterator[tuple[str, str]]:
    """Yield (problem, remedy) of each key that another one contradicts, or that it needs."""
    if (preset.module is None) is (preset.file is None):
        names = "neither a module nor a file" if preset.module is None else "a module and a file"
        yield f"names {names}", "give one of 'module' and 'file'"
    # A variable of such a name is refused however short it is.
    variables = (f"--{name}={value:*<8}" for name, value in preset.variables.items())
    words = [*runs.argument_words(preset.arguments, {}), *preset.words, *variables]
    if secret := runs.secret_in(words):
        yield f"has a secret in {secret}", runs.ELSEWHERE
    if (preset.resume or preset.complete) and not preset.checkpoints:
        problem = "has 'resume' or 'complete' and no 'checkpoints'"
        yield problem, "give the glob that matches them"
    if preset.resume_after_reboot and not preset.resume:
        yield "has 'resume_after_reboot' and no 'resume'", "say how it is resumed"
    own, resume = (*runs.PLACES, *preset.arguments), (*_RESUME_PLACES, *preset.arguments)
    plain = [*preset.arguments.values(), *preset.try_with.values(), *preset.words]
    plain += [*preset.variables.values(), preset.checkpoints or ""]
    for texts, known in (
        (plain, own), (preset.resume.values(), resume), (preset.complete, (*resume, "rank")),
    ):  # fmt: skip
        for text in texts:
            if place := runs.unknown_place(str(text), known):
                yield f"has {{{place}}} in {text!r:.80}", runs.nearest(place, known, "places are")


def _runnable(words: tuple[str, ...]) -> tuple[str, ...]:
    if words and not words[0].startswith("/"):
        raise Bad("begins with a word that is no absolute path")
    if word := runs.secret_in(words):  # every user of a host could read it
        raise Bad(f"has a secret in {word}", "put it into a file of the owner's")
    return words


PresetName = Annotated[str, Field(pattern="^[a-z0-9][a-z0-9_-]{0,39}$")]
_Checked = Annotated[Preset, GetPydanticSchema(lambda _, handler: handler(_Given))]
Presets = Annotated[dict[PresetName, _Checked], AfterValidator(_whole)]
Command = Annotated[tuple[Short, ...], Field(strict=False), AfterValidator(_runnable)]
