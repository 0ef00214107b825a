"""The one reader of JSON that a host, or a program on it, wrote.

Everything that comes in is a type of pydantic's, and everything else is `Unknown` with its reason:
too long, too deep, cut off, a number that no reader could show, no text at all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import from_json

from pyinfra_gpu.facts.fields import TEXT_LIMIT, Unknown
from pyinfra_gpu.text import shortened

LARGEST = 2**64
"""No number of ours is larger, in either direction."""

_UNREADABLE = 1e40  # for who reads it, and for whoever prints it
_LONGEST_REASON = 200  # characters

D = TypeVar("D")


def read(
    form: type[D], text: str | Unknown | None, *, limit: int = TEXT_LIMIT
) -> D | Unknown | None:
    """Return a host's document as its type; None and `Unknown` are passed on.

    + form: a frozen, strict model, or a dataclass with such a configuration
    + limit: bytes that the text may have

    Never raises, whatever the text is.
    """
    if text is None or isinstance(text, Unknown):
        return text
    try:
        loads(text, limit)
    except ValueError as error:
        return Unknown(shortened(str(error), _LONGEST_REASON))
    found: D | Unknown = validated(form, text)
    return found


def validated(form: Any, text: str) -> Any:
    """Return what a text in JSON tells as that type; else `Unknown`, with what does not fit."""
    try:
        return _adapter(form).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        why = f"{place}: {first['msg']}" if place else first["msg"]
        return Unknown(shortened(why, _LONGEST_REASON))


class Readable:
    """A document of ours that a host wrote."""

    @classmethod
    def read(cls, text: str | Unknown | None) -> Self | Unknown | None:
        """Return what a host wrote; `Unknown` with the reason where it is no such document."""
        return read(cls, text)


class Note(BaseModel, Readable):
    """One of which what else stands in it does not come in."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


def loads(text: str, limit: int) -> Any:
    """Return what a text in JSON says; `ValueError`, with a clause, where no program of ours did.

    The library itself gives up where lists stand in one another more than 200 deep.
    """
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise ValueError("it is no text") from None
    if len(raw) > limit:
        raise ValueError(f"it is longer than {limit // 1024} KiB")
    try:
        found = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise ValueError(f"it is no JSON: {error}") from None
    if not _is_small(found):
        raise ValueError("it holds a number that is too large")
    return found


def _is_small(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_small, value.values()))
    if isinstance(value, list):
        return all(map(_is_small, value))
    return not isinstance(value, int | float) or abs(value) < _UNREADABLE


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
