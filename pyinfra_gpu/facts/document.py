"""The one reader of JSON that a host, or a program on it, wrote.

Everything that comes in is a type of pydantic's, and everything else is `Unknown` with its reason:
too long, too deep, cut off, a key twice, a number that no reader could show, no text at all.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, NoReturn, TypeVar

from pydantic import TypeAdapter, ValidationError

from pyinfra_gpu.facts.fields import TEXT_LIMIT, Unknown
from pyinfra_gpu.text import shortened

DEPTH = 40
"""So many lists and objects may stand in one another; what we write comes to ten."""

LARGEST = 2**64
"""No number of ours is larger, in either direction."""

_LONGEST_REASON = 200  # characters
_DIGITS = 40  # of a whole number; of more than that, a type could not even say where it stands
# Up to the end where it is not closed: one way through any text, so it takes linear time.
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)', re.DOTALL)
_BRACKETS = {"[": 1, "{": 1, "]": -1, "}": -1}

D = TypeVar("D")


class _RefusedError(ValueError):
    """The text is JSON, and nothing that a program of ours would write."""


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
        found: D = _adapter(form).validate_json(text)
        return found
    except ValidationError as error:
        return Unknown(reason(error))
    except ValueError as error:
        return Unknown(shortened(str(error), _LONGEST_REASON))


def loads(text: str, limit: int) -> Any:
    """Return what a text in JSON says; `ValueError`, with a clause, where no program of ours did.

    It refuses what pydantic would read, or only break at.
    """
    try:
        return _loads(text, limit)
    except _RefusedError:
        raise
    except (ValueError, RecursionError):
        raise _RefusedError("it is no JSON") from None


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def _loads(text: str, limit: int) -> Any:
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise _RefusedError("it is no text") from None
    if size > limit:
        raise _RefusedError(f"it is longer than {limit // 1024} KiB")
    steps = (_BRACKETS.get(each, 0) for each in _STRING.sub("", text))
    if max(accumulate(steps), default=0) > DEPTH:
        raise _RefusedError(f"it is nested more than {DEPTH} deep")
    return json.loads(
        text,
        object_pairs_hook=_object,
        parse_int=_integer,
        parse_float=_number,
        parse_constant=_no_number,
    )


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key in found if sum(key == each for each, _ in pairs) > 1)
        raise _RefusedError(f"it has the key {twice[:40]!a} twice")
    return found


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise _RefusedError("it holds a number that is too large")
    return int(digits)


def _number(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _RefusedError("it holds a number that is too large")
    return value


def _no_number(word: str) -> NoReturn:
    raise _RefusedError(f"it holds {word}, which is no JSON")


def reason(error: ValidationError) -> str:
    """Return the first thing that does not fit, in one clause; names in it are the host's."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    text = f"{place}: {first['msg']}" if place else first["msg"]
    return shortened(text, _LONGEST_REASON)
