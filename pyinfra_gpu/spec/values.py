"""Checkers for single values: each returns the value in its final form or raises BadValueError."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from packaging.version import InvalidVersion, Version

from pyinfra_gpu.errors import nearest

T = TypeVar("T")
Checker = Callable[[object], object]
LONGEST_LIST = 14  # names an error lists before it only points at the nearest


class BadValueError(ValueError):
    """What is wrong with a value.

    + suggestion: the value that was probably meant
    + remedy: what to do, where that is more than setting a value; KEY stands for the key
    + allowed: what is allowed, where the key's own description does not say it
    """

    def __init__(
        self,
        problem: str,
        *,
        suggestion: object = None,
        remedy: str | None = None,
        allowed: str | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.suggestion = suggestion
        self.remedy = remedy
        self.allowed = allowed


def kind(value: object) -> str:
    """Return what a value is, in words for a person who never saw Python's type names."""
    if value is None:
        return "nothing (None)"
    words: tuple[tuple[type, str], ...] = (
        (bool, "a yes/no value"),
        (int, "a whole number"),
        (float, "a number with a decimal point"),
        (str, "text"),
        (bytes, "bytes"),
        (dict, "a dict"),
        (list, "a list"),
        (tuple, "a tuple"),
        (set, "a set"),
    )
    return next((word for type_, word in words if isinstance(value, type_)), type(value).__name__)


@dataclass(frozen=True, slots=True)
class Allowing(Generic[T]):
    """A checker that can say in words what it allows."""

    check: Callable[[object], T]
    allowed: str

    def __call__(self, value: object) -> T:
        """Return the value in its final form; raises BadValueError."""
        return self.check(value)


def allowed_by(checker: Checker) -> str:
    """Return what a checker allows, in words; raises TypeError for one that cannot say it."""
    if not isinstance(checker, Allowing):
        raise TypeError(f"{checker!r} does not say what it allows: declare the key with `allowed`")
    return checker.allowed


def _boolean(value: object) -> bool:
    """Accept True and False only; 1, "yes" and "false" are mistakes more often than meant."""
    if not isinstance(value, bool):
        word = str(value).casefold() if isinstance(value, str | int) else ""
        meant = {"1": True, "yes": True, "true": True, "on": True}.get(word)
        if word in ("0", "no", "false", "off"):
            meant = False
        raise BadValueError(f"is {kind(value)}, not True or False", suggestion=meant)
    return value


boolean = Allowing(_boolean, "True or False")


def integer(low: int, high: int) -> Allowing[int]:
    """Return a checker for whole numbers from `low` to `high`; True and False are not numbers."""

    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            meant = int(value) if isinstance(value, str) and value.isdecimal() else None
            if isinstance(value, float) and value.is_integer():
                meant = int(value)
            raise BadValueError(f"is {kind(value)}, not a whole number", suggestion=meant)
        if value < low:
            raise BadValueError("is too small", suggestion=low)
        if value > high:
            raise BadValueError("is too large", suggestion=high)
        return value

    return Allowing(check, f"a whole number from {low} to {high}")


def number(low: float, high: float) -> Allowing[float]:
    """Return a checker for finite numbers from `low` to `high`."""

    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadValueError(f"is {kind(value)}, not a number")
        if math.isnan(value):
            raise BadValueError("is not a number")
        if not low <= value <= high:
            raise BadValueError("is too small" if value < low else "is too large")
        return float(value)

    return Allowing(check, f"a number from {low:g} to {high:g}")


def power_of_two(low: int, high: int) -> Allowing[int]:
    """Return a checker for powers of two from `low` to `high`."""
    whole = integer(low, high)

    def check(value: object) -> int:
        size = whole(value)
        if size & (size - 1):
            raise BadValueError("is not a power of two", suggestion=1 << (size.bit_length() - 1))
        return size

    return Allowing(check, f"a power of two from {low} to {high}")


def text(value: object) -> str:
    """Accept text that is not empty and holds no control characters."""
    if not isinstance(value, str):
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise BadValueError(
                f"is {kind(value)}, not text",
                remedy=f"put it in quotes, KEY = '{value}', on the command line "
                f"--data 'KEY=\"{value}\"' (unquoted, 3.10 is the number 3.1)",
            )
        raise BadValueError(f"is {kind(value)}, not text")
    if not value:
        raise BadValueError("is empty")
    if any(ord(c) < 32 or 127 <= ord(c) < 160 for c in value):
        raise BadValueError("contains a line break or another control character")
    if not value.isprintable():
        raise BadValueError("contains a character that cannot be printed")
    return value


def choice(*allowed: str) -> Allowing[str]:
    """Return a checker for one of a few words."""
    *but_last, last = (repr(word) for word in allowed)
    words = f"{', '.join(but_last)} or {last}" if but_last else last
    return Allowing(one_of(lambda: allowed, "one of the allowed words"), words)


def one_of(names: Callable[[], Collection[str]], what: str) -> Callable[[object], str]:
    """Return a checker for one of `names()`, which suggests the nearest name."""

    def check(value: object) -> str:
        word = text(value)
        known = names()
        if word not in known:
            listed = ", ".join(known) if len(known) <= LONGEST_LIST else None
            raise BadValueError(f"is not {what}", suggestion=nearest(word, known), allowed=listed)
        return word

    return check


def number_of(numbers: Callable[[], Collection[int]], what: str) -> Checker:
    """Return a checker for one of the whole numbers `numbers()`, which suggests the nearest."""
    whole = integer(0, 10**6)

    def check(value: object) -> int:
        wanted, known = whole(value), numbers()
        if wanted not in known:
            raise BadValueError(
                f"is not {what}",
                suggestion=min(known, key=lambda candidate: abs(candidate - wanted)),
                allowed=", ".join(str(candidate) for candidate in known),
            )
        return wanted

    return check


def matching(pattern: str, problem: str) -> Checker:
    """Return a checker for text that matches `pattern` as a whole."""
    compiled = re.compile(pattern)

    def check(value: object) -> str:
        word = text(value)
        if not compiled.fullmatch(word):
            raise BadValueError(problem)
        return word

    return check


def switch_or(pattern: str, what: str) -> Checker:
    """Return a checker for True, False or text that matches `pattern`: `what` it then is."""
    name = matching(pattern, f"is neither True, False nor {what}")

    def check(value: object) -> object:
        if isinstance(value, str) and value.casefold() not in ("true", "false", "yes", "no"):
            return name(value)
        return boolean(value)

    return check


def optional(checker: Checker) -> Checker:
    """Return `checker`, but None passes."""
    return lambda value: None if value is None else checker(value)


def source(value: object) -> Literal["wheel", "nightly", "source"]:
    """Accept "wheel", "nightly" and "source"."""
    word = text(value)
    if word == "source":
        return "source"
    if word == "nightly":
        return "nightly"
    if word != "wheel":
        raise BadValueError("is not a known source", suggestion="wheel")
    return "wheel"


def is_nightly(version: str) -> bool:
    """Return whether a version is a nightly's, which ends in a date: "2.16.0.dev20261120"."""
    return bool(re.fullmatch(r"\d+\.\d+\.\d+\.dev20\d{6}", version))


def torch_version(value: object) -> str:
    """Accept a release with three numbers, or a nightly's; the build has its own key."""
    word = text(value)
    try:
        version = Version(word)
    except InvalidVersion:
        raise BadValueError("is not a version") from None
    if version.local:
        raise BadValueError(
            "names the build too",
            remedy=f"set pytorch_version = '{version.public}' and "
            f"pytorch_build = '{version.local}'",
        )
    if is_nightly(str(version)):
        return str(version)
    if version.is_prerelease or version.is_postrelease or version.epoch:
        raise BadValueError("is not a final release", suggestion=version.base_version)
    if len(version.release) != 3:
        full = ".".join(str(part) for part in (*version.release, 0, 0)[:3])
        raise BadValueError("does not have three numbers", suggestion=full)
    return str(version)


def torch_release(value: object) -> str:
    """Accept a final release; a nightly has no place here."""
    version = torch_version(value)
    if is_nightly(version):
        raise BadValueError("is a nightly", suggestion=version.partition(".dev")[0])
    return version


def torch_build(value: object) -> str:
    """Accept "cpu" or "cu" with three digits."""
    word = text(value)
    if re.fullmatch(r"\d+\.\d+", word):
        build = f"cu{word.replace('.', '')}"
        raise BadValueError("is a CUDA release, not a build", suggestion=build)
    if not re.fullmatch(r"cpu|cu\d{3}", word):
        raise BadValueError("is not a build this project installs")
    return word


def interpreter(value: object) -> str:
    """Accept a command ("python3.12"), an absolute path, or a version ("3.12")."""
    word = text(value)
    if re.fullmatch(r"2(\.\d+)*|python2(\.\d+)*", word):
        raise BadValueError("is Python 2", suggestion="3.12")
    if re.fullmatch(r"\d+(\.\d+)*", word):
        if not re.fullmatch(r"3\.\d{1,2}(\.\d{1,2})?", word):
            raise BadValueError("is not a Python 3 version with its minor number")
        return word
    if word.startswith("-"):
        raise BadValueError("starts with a dash and would be read as an option")
    if "/" in word and not word.startswith("/"):
        raise BadValueError("is a relative path")
    if not re.fullmatch(r"[A-Za-z0-9._+/-]+", word) or ".." in word.split("/"):
        raise BadValueError("is not a command, an absolute path or a version")
    return word
