"""Presets: what is run and how it is resumed, as data. Pure; controller and host read it alike."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from ..terminal import some
from .preset_values import named, wrong

Value = str | int | float | bool | None

LONGEST_CHAIN = 50
"""Presets that one may extend, each through the next; a person reads four or five."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_PLACE = re.compile(r"\{([A-Za-z][A-Za-z0-9_.-]*)\}")
_BRACES = re.compile(r"\{([A-Za-z0-9][A-Za-z0-9_. -]{0,60})\}")
"""What looks like a place, and may be none: JSON has a quote or a colon between its braces."""
_SECRET = re.compile(r"(^|[_.-])(key|token|secret|password|passwd|credentials?)$", re.IGNORECASE)
_SECRET_VALUE = re.compile(
    r"(hf_|sk-|ghp_|github_pat_|wandb_v1_)[A-Za-z0-9_-]{16,}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}"  # Slack, and the web hooks of others: the URL is the key
    r"|hooks\.slack\.com/services/.{8,}|/api/webhooks/[0-9]+/.{8,}"
    r"|\b[0-9]{6,12}:[A-Za-z0-9_-]{30,}"  # a bot of Telegram's
    r"|\b(?i:bearer|basic) +[A-Za-z0-9+/=._~-]{8,}"
    r"|[a-z]://[^/\s:@]*:[^/\s@]{3,}@"  # a password in a URL
    r"|[?&;](?i:[a-z_.-]{0,40}(?:key|token|secret|password))=[^&\s]{8,}"
)
_OPTION = re.compile(r"-{0,2}[A-Za-z][A-Za-z0-9_.-]{0,63}")
PLACES = ("run", "name", "ranks", "home")
"""What `{...}` in a text may stand for, beside the names of the preset's own arguments."""
RESUME_PLACES = (*PLACES, "checkpoint", "step")
ELSEWHERE = "put it into environment_variables, which only the owner can read"


class PresetError(ValueError):
    """What is wrong with a preset, a clause that begins with its name, and what to do about it."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}: {remedy}")
        self.problem, self.remedy = problem, remedy


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """One preset with everything that it extends.

    + module, file: what is run, one of the two; a file is relative to the repository
    + launch: "torchrun", or "python" for one process that starts what it needs by itself
    + arguments: name -> value, as `--name=value`; True is the bare `--name`, None and False nothing
    + words: further words of the command line
    + ranks: processes, one for each GPU; None: all GPUs of the host
    + gpu_gib, ram_gib, checkpoint_gib: what it needs free on each GPU, of memory, for a checkpoint
    + checkpoints: a glob that matches each checkpoint, a file or a folder; None: it saves none
    + complete: patterns of all files of a checkpoint, in its folder; {rank} is each rank
    + resume: arguments that are set to go on from {checkpoint}, whose number is {step}
    + multiples: argument -> those whose product must divide it; "ranks" counts as one of them
    + resume_after_reboot: whether it goes on by itself once the host is proven again
    + try_with: arguments that make it a few steps
    + wandb: whether it logs to Weights & Biases
    """

    name: str
    module: str | None = None
    file: str | None = None
    launch: str = "torchrun"
    arguments: Mapping[str, Value] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    ranks: int | None = None
    gpu_gib: float = 0
    ram_gib: float = 0
    checkpoint_gib: float = 0
    checkpoints: str | None = None
    complete: tuple[str, ...] = ()
    resume: Mapping[str, Value] = field(default_factory=dict)
    multiples: Mapping[str, tuple[str | int, ...]] = field(default_factory=dict)
    try_with: Mapping[str, Value] = field(default_factory=dict)
    wandb: bool = False
    resume_after_reboot: bool = False

    def processes(self, ranks: int) -> int:
        """Return how many processes train where it has so many ranks, one for each GPU.

        Launched by python it is one, which sees all of those GPUs.
        """
        return 1 if self.launch == "python" else ranks

    def as_json(self) -> dict[str, Any]:
        """Return it as `from_json` reads it."""
        return asdict(self)


KEYS = (*(each.name for each in fields(Preset) if each.name != "name"), "extends")
"""The keys of a preset."""
_MERGED = ("arguments", "variables", "resume", "multiples", "try_with")


def from_json(document: Mapping[str, Any]) -> Preset:
    """Return the preset that a run wrote down."""
    known = {each.name for each in fields(Preset)}
    given = {name: value for name, value in document.items() if name in known}
    for name in ("words", "complete"):
        given[name] = tuple(given.get(name, ()))
    return Preset(**given)


def check(presets: object) -> dict[str, dict[str, Any]]:
    """Accept a dict of presets, each by itself and with what it extends; raises PresetError."""
    if not isinstance(presets, Mapping):
        raise PresetError("the presets are not a dict", "write {'NAME': {'file': 'train.py'}}")
    for name, given in presets.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise PresetError(
                f"the preset {named(name)} is not named by at most 40 of a-z, 0-9, _ and -",
                "rename it",
            )
        if not isinstance(given, Mapping):
            raise PresetError(f"preset {name} is not a dict", "write {'file': 'train.py'}")
        _check_keys(name, given)
    for name in presets:
        _check_whole(resolved(presets, name))
    return {name: dict(given) for name, given in presets.items()}


def resolved(presets: Mapping[str, Mapping[str, Any]], name: str) -> Preset:
    """Return one preset with everything that it extends; raises PresetError."""
    chain: dict[str, None] = {}  # in order, and fast to look into
    following: str | None = name
    while following is not None:
        if following in chain:
            last, way = [*chain][-1], some([*chain], 6)
            raise PresetError(
                f"preset {name} extends itself ({way.replace(', ', ' -> ')} -> {following})",
                f"take 'extends' out of {last}",
            )
        if following not in presets:
            by = f"preset {[*chain][-1]} extends {following}, and " if chain else ""
            raise PresetError(
                f"{by}there is no preset {following}", nearest(following, presets, "presets are")
            )
        if len(chain) > LONGEST_CHAIN:
            raise PresetError(
                f"preset {name} extends more than {LONGEST_CHAIN} presets, each through the next",
                f"give one of them, such as {[*chain][-1]}, what it needs in place of 'extends'",
            )
        chain[following] = None
        following = presets[following].get("extends")
    merged: dict[str, Any] = {}
    for each in reversed(chain):
        for key, value in presets[each].items():
            if key in _MERGED:
                value = {**merged.get(key, {}), **value}
            elif key in ("words", "complete"):
                value = tuple(value)
            merged[key] = value
    merged.pop("extends", None)
    return Preset(name=name, **merged)


def nearest(word: str, known: Mapping[str, object] | Sequence[str], what: str) -> str:
    """Return what was probably meant, else all that there is."""
    close = difflib.get_close_matches(word, [*known], n=1)
    return f"did you mean {close[0]}?" if close else f"the {what} {', '.join(known) or 'none'}"


def with_settings(preset: Preset, settings: Sequence[str]) -> Preset:
    """Return the preset with `K=V` for each of its arguments K, or `ranks=N`; raises PresetError.

    An argument that the preset has not is a slip more often than meant; what it does not know
    goes behind `--`.
    """
    arguments = dict(preset.arguments)
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise PresetError(f"--set {setting} has no value", "write --set NAME=VALUE")
        if name == "ranks" and name not in arguments:
            if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= 64:
                raise PresetError(f"--set ranks={text} is not a number", "give one from 1 to 64")
            preset = replace(preset, ranks=int(text))
            continue
        if name not in arguments:
            remedy = nearest(name, arguments, "arguments are")
            raise PresetError(
                f"preset {preset.name} has no argument {name!r}",
                f"{remedy}; what it does not know goes behind --, as -- --{name}={text}",
            )
        before = arguments[name]
        if kind := _wanted(text, before):
            raise PresetError(
                f"--set {name} takes {kind}, as in preset {preset.name}, where it is {before}",
                f"give one, or put --{name}=VALUE behind --",
            )
        arguments[name] = _parsed(text, before)
        # An empty text may mean something to a program; the name of a folder it is not.
        found = wrong("arguments", {name: arguments[name]})
        if found and (text or f"{{{name}}}" in str(preset.as_json())):
            raise PresetError(f"--set gives{found[0].removeprefix('for')}", f"{found[1]}")
    changed = replace(preset, arguments=arguments)
    _check_whole(changed)
    return changed


def _parsed(text: str, before: Value) -> Value:
    """Return a value as data would give it; what was switched on or off stays a switch."""
    if isinstance(before, bool) and text.casefold() in ("true", "false"):
        return text.casefold() == "true"
    if re.fullmatch(r"-?[0-9]{1,18}", text, re.ASCII):
        return int(text)
    return text


_MOST = 1e18


def _wanted(text: str, before: Value) -> str:
    """Return what kind of number the place of another one takes, empty where it has that.

    A fraction may stand where a preset has 0; else a whole number is one, and is written as one, or
    programs that take whole ones refuse it ("1e3"). What is above 0 stays so, but for -1, by which
    programs mean that there is none.
    """
    if isinstance(before, bool | str | None):
        return ""
    if not _is_number(text):
        return "a number"
    written = re.fullmatch(r"-?[0-9]{1,18}", text, re.ASCII)
    number = float(text)
    if number < 0 < before and number != -1:
        return "a number above 0"
    if type(before) is float or written:
        return ""
    if not number.is_integer():
        return "a whole number" if before else ""
    return f"a whole number ({int(number)})" if abs(number) < _MOST else "a whole number"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii() and text == text.strip()


def places(text: str) -> list[str]:
    """Return the names in the `{...}` of a text that `filled` looks up."""
    return _PLACE.findall(text)


def filled(text: str, values: Mapping[str, object]) -> str:
    """Return a text with its `{...}` replaced."""
    return _PLACE.sub(lambda match: str(values.get(match[1], match[0])), text)


def argument_words(arguments: Mapping[str, Value], values: Mapping[str, object]) -> list[str]:
    """Return arguments as words of a command line."""
    words = []
    for name, value in arguments.items():
        if value is True:
            words.append(f"--{name}")
        elif value is not None and value is not False:
            words.append(f"--{name}={filled(str(value), values)}")
    return words


def products(preset: Preset, ranks: int) -> list[tuple[str, int, str, int]]:
    """Return (argument, value, product in words, product) of each rule that does not hold."""
    numbers: dict[str, Value] = {"ranks": ranks, **preset.arguments}
    wrong = []
    for name, factors in preset.multiples.items():
        total, product, told = numbers[name], 1, []
        for factor in factors:
            number = factor if isinstance(factor, int) else numbers[factor]
            product *= int(number) if isinstance(number, int) else 0
            told.append(str(factor) if isinstance(factor, int) else f"{factor} {number}")
        if not isinstance(total, int) or product <= 0 or total % product:
            wrong.append((name, total if isinstance(total, int) else 0, " x ".join(told), product))
    return wrong


def arithmetic(preset: Preset, ranks: int) -> list[tuple[str, str]]:
    """Return (what does not hold, what to do) of each rule of the preset, for so many ranks."""
    found = []
    for name, total, told, product in products(preset, ranks):
        problem = f"{name} {total} of preset {preset.name} is no multiple of {told} = {product}"
        below = total // product * product if product > 0 else 0
        near = " or ".join(str(n) for n in (below, below + product) if n > 0) or "a multiple"
        found.append((problem, f"set {name} to {near}"))
    return found


def secret_in(words: Sequence[str]) -> str | None:
    """Return the name of the first word that looks like a key or a password, else None.

    Every user of the host sees a command line, and run.json keeps it.
    """
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not equals and index + 1 < len(words) and not words[index + 1].startswith("-"):
            value = words[index + 1]
        shown = name if _OPTION.fullmatch(name) else "a word"
        if _SECRET_VALUE.search(word):
            return shown if equals else "a word"
        if (equals or name.startswith("-")) and _SECRET.search(name) and len(value) >= 8:
            return shown
    return None


def is_secret(name: str) -> bool:
    """Tell whether a variable is probably somebody's key or password, by its name."""
    return bool(_SECRET.search(name))


# -- the values of one preset


def _check_keys(name: str, given: Mapping[str, Any]) -> None:
    for key, value in given.items():
        if key not in KEYS:
            remedy = nearest(str(key), KEYS, "keys of a preset are")
            raise PresetError(
                f"preset {name} has the key {named(key)}, which nothing reads", remedy
            )
        if found := wrong(key, value):
            what, remedy = found
            raise PresetError(f"preset {name} gives {key} {what}", remedy)
    for variable, value in given.get("variables", {}).items():
        if is_secret(variable) or _SECRET_VALUE.search(value):
            raise PresetError(f"preset {name} sets {variable}, which looks secret", ELSEWHERE)


def _check_whole(preset: Preset) -> None:
    name = preset.name
    if (preset.module is None) is (preset.file is None):
        what = "neither a module nor a file" if preset.module is None else "a module and a file"
        raise PresetError(f"preset {name} names {what}", "give one of 'module' and 'file'")
    if word := secret_in([*argument_words(preset.arguments, {}), *preset.words]):
        raise PresetError(f"preset {name} has a secret in {word}", ELSEWHERE)
    if preset.resume and not preset.checkpoints:
        raise PresetError(
            f"preset {name} has 'resume' and no 'checkpoints'", "give the glob that matches them"
        )
    if preset.complete and not preset.checkpoints:
        raise PresetError(
            f"preset {name} has 'complete' and no 'checkpoints'",
            "give the glob that matches them, or leave 'complete' out",
        )
    if preset.resume_after_reboot and not preset.resume:
        raise PresetError(
            f"preset {name} has 'resume_after_reboot' and no 'resume'", "say how it is resumed"
        )
    for argument, factors in preset.multiples.items():
        for each in (argument, *(one for one in factors if isinstance(one, str))):
            if each != "ranks" and not isinstance(preset.arguments.get(each), int):
                raise PresetError(
                    f"'multiples' of preset {name} counts with {each}, which is no whole number"
                    " among its arguments",
                    f"give arguments a number for {each}",
                )
    _check_places(preset)


def _check_places(preset: Preset) -> None:
    """Refuse a `{...}` that stands for nothing: it would reach the program as it is."""
    given = (*preset.arguments.values(), *preset.try_with.values())
    texts = [*map(str, given), *preset.words, *preset.variables.values()]
    asked: list[tuple[str, tuple[str, ...]]] = [
        (text, PLACES) for text in [*texts, preset.checkpoints or ""]
    ]
    asked += [(str(text), RESUME_PLACES) for text in preset.resume.values()]
    asked += [(text, (*RESUME_PLACES, "rank")) for text in preset.complete]
    for text, known in asked:
        for place in _BRACES.findall(text):
            if place not in known and place not in preset.arguments:
                remedy = nearest(place, [*known, *preset.arguments], "places are")
                raise PresetError(f"preset {preset.name} has {{{place}}} in {text!r:.80}", remedy)
