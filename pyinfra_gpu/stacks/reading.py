"""Reading the project's YAML files into their models: what is wrong in one becomes one sentence.

The sentence names the file, the place in it, what is there and what belongs there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Mapping
from dataclasses import MISSING, dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    Strict,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from pyinfra_gpu.errors import shown
from pyinfra_gpu.stacks import StacksError
from pyinfra_gpu.text import one_line

if TYPE_CHECKING:
    from yaml import SafeLoader as _SafeLoader
else:  # the C parser is several times faster and differs in nothing we use
    _SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

T = TypeVar("T")
K = TypeVar("K")


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEntry:
    """Base of what a file consists of: an entry with exactly these fields.

    `KEYED_BY` is the field that is not written, because it is the entry's name in its table.
    """

    KEYED_BY: ClassVar[str] = ""

    @model_validator(mode="before")
    @classmethod
    def _has_only_fields(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        allowed = {each.name for each in fields(cls)}
        required = {each.name for each in fields(cls) if each.default is MISSING}
        if not required <= set(value):
            return value  # what is missing is reported first
        for name in value:
            if name not in allowed:
                listed = ", ".join(sorted(allowed - {cls.KEYED_BY}))
                raise misplaced(str(name), f"is not a field; the fields are {listed}")
        return value


def expected(what: str) -> PydanticCustomError:
    """Return what a validator raises where a value is not `what` ("a version such as '13.0'")."""
    return PydanticCustomError("expected", "{it}", {"it": f"must be {what}"})


def misplaced(name: str, it: str) -> PydanticCustomError:
    """Return what a validator raises about `name` in the mapping it checks: `it` is wrong there."""
    return PydanticCustomError("misplaced", "{it}", {"it": it, "name": name})


def matching(pattern: str, what: str) -> AfterValidator:
    """Return the validator of text that matches `pattern` as a whole, and is `what` then."""
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise expected(what)
        return text

    return AfterValidator(check)


def keyed(entry: type[FileEntry]) -> BeforeValidator:
    """Return what gives each entry of a table its name, as the field `entry.KEYED_BY`."""
    field = entry.KEYED_BY

    def check(table: object) -> object:
        if not isinstance(table, dict):
            return table
        return {name: _with_name(name, body, field) for name, body in table.items()}

    return BeforeValidator(check)


def _with_name(name: object, body: object, field: str) -> object:
    if not isinstance(body, dict):
        return body
    if field in body:
        raise misplaced(f"{name}.{field}", "is not a field: it is the entry's name")
    return {**body, field: name}


Text = Annotated[str, Strict(), Field(min_length=1)]
Whole = Annotated[int, Strict()]
Flag = Annotated[bool, Strict()]
Version = Annotated[Text, matching(r"\d+(\.\d+)*", "a version such as '13.0'")]
Table = Annotated[Mapping[K, T], AfterValidator(MappingProxyType)]
"""Entries by name; nobody can change it."""


class _StrictLoader(_SafeLoader):
    """SafeLoader that refuses a key given twice, which YAML forbids and PyYAML silently accepts."""

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Hashable, object]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def read(text: str, source: str, model: TypeAdapter[T]) -> T:
    """Return what the YAML `text` says, as `model` types it.

    + source: names the file in errors

    Raises StacksError for what is not YAML, for unknown and missing fields, and for wrong values.
    """
    data = _load(text, source)
    try:
        return model.validate_python(data)
    except ValidationError as error:
        raise _sentence(source, error.errors(include_url=False)[0]) from None


def wrong(source: str, place: str, it: str, found: str = "") -> StacksError:
    """Return the error for one place of a file: `it` says what it must be."""
    found = f" = {found}" if found else ""
    return StacksError(one_line(f"{source}: {place}{found} is wrong: it {it}; correct the file"))


def refuse_unknown(source: str, place: str, name: object, names: Collection[object]) -> None:
    """Raise StacksError unless `name`, which stands at `place`, is one of `names`."""
    if name not in names:
        listed = ", ".join(str(each) for each in names)
        raise wrong(source, place, f"must be one of {listed}", shown(place, name))


def _load(text: str, source: str) -> object:
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 (it is a SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise StacksError(
            one_line(f"{source}{line}: is not valid YAML ({error.problem}); correct that line")
        ) from None
    except (yaml.YAMLError, TypeError) as error:
        raise StacksError(one_line(f"{source}: is not valid YAML ({error}); correct it")) from None


_IT: Mapping[str, str] = {
    "missing": "is missing",
    "string_type": "must be text; versions stay in quotes",
    "string_too_short": "must be text; versions stay in quotes",
    "int_type": "must be a whole number",
    "float_type": "must be a number of at least 0",
    "greater_than_equal": "must be a number of at least 0",
    "bool_type": "must be yes or no",
    "tuple_type": "must be a list",
    "frozen_set_type": "must be a list",
    "too_short": "must have at least one item",
    "mapping_type": "must be a mapping",
    "dict_type": "must be a mapping",
    "dataclass_type": "must be a mapping",
}
"""Kind of pydantic's error -> what its words in our sentence."""


def _sentence(source: str, error: ErrorDetails) -> StacksError:
    kind, context = error["type"], error.get("ctx", {})
    path = [str(part) for part in error["loc"]]
    if kind == "misplaced":
        return wrong(source, ".".join([*path, context["name"]]), context["it"])
    it = _IT.get(kind) or context.get("it") or f"is not accepted ({error['msg']})"
    if kind == "literal_error":
        allowed = re.findall(r"'([^']*)'", context["expected"])
        it = f"must be one of {', '.join(allowed)}"
    if path[-1:] == ["[key]"]:
        path.pop()
        it = "must be a name in quotes" if kind == "string_type" else it
    place = ".".join(path) or "the file"
    return wrong(source, place, it, "" if kind == "missing" else shown(place, error["input"]))
