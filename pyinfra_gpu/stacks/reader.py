"""Reading YAML with types: every wrong field of stacks.yaml becomes one sentence with its place."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

import yaml

from pyinfra_gpu.errors import SpecError, one_line, shown

if TYPE_CHECKING:
    from yaml import SafeLoader as _SafeLoader
else:  # the C parser is several times faster and differs in nothing we use
    _SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

T = TypeVar("T")
_VERSION = re.compile(r"\d+(\.\d+)*")


class StacksError(SpecError):
    """The compatibility data itself is malformed; the message is one sentence."""


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


def read_yaml(text: str, source: str) -> object:
    """Return the document in `text`; raise StacksError with file, line and reason if it is not
    YAML.
    """
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 (it is a SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise StacksError(
            one_line(f"{source}{line}: is not valid YAML ({error.problem}); correct that line")
        ) from None
    except (yaml.YAMLError, TypeError) as error:
        raise StacksError(one_line(f"{source}: is not valid YAML ({error}); correct it")) from None


class Node:
    """One mapping or value of the file, with its place; each getter checks one field's type."""

    def __init__(self, value: object, source: str, path: tuple[str, ...]) -> None:
        self._value, self._source, self._path = value, source, path
        self._asked: set[str] = set()

    def wrong(self, place: str, expected: str, found: str = "") -> StacksError:
        """Return the error that `place` should be `expected`."""
        found = f" = {found}" if found else ""
        return StacksError(
            one_line(f"{self._source}: {place}{found} is wrong: it {expected}; correct the file")
        )

    def known(self, place: str, name: object, names: Collection[object]) -> None:
        """Refuse `name` unless it is one of `names`."""
        if name not in names:
            raise self.wrong(
                place, f"must be one of {', '.join(str(n) for n in names)}", shown(place, name)
            )

    def done(self) -> None:
        """Refuse fields nobody asked for."""
        for key in self._mapping():
            if str(key) not in self._asked:
                allowed = ", ".join(sorted(self._asked))
                raise self.wrong(self._place(str(key)), f"is not a field; the fields are {allowed}")

    def _place(self, key: str | None = None) -> str:
        return ".".join((*self._path, key) if key is not None else self._path) or "the file"

    def _mapping(self) -> Mapping[object, object]:
        if not isinstance(self._value, dict):
            raise self.wrong(self._place(), "must be a mapping", shown(self._place(), self._value))
        return self._value

    def _get(self, key: str) -> Node:
        mapping = self._mapping()
        self._asked.add(key)
        if key not in mapping:
            raise self.wrong(self._place(key), "is missing")
        return Node(mapping[key], self._source, (*self._path, key))

    def _mistyped(self, expected: str) -> StacksError:
        return self.wrong(self._place(), f"must be {expected}", shown(self._place(), self._value))

    def text_here(self) -> str:
        """Return this value as text."""
        if not isinstance(self._value, str) or not self._value:
            raise self._mistyped("text; versions stay in quotes")
        return self._value

    def version_here(self) -> str:
        """Return this value as a dotted version."""
        text = self.text_here()
        if not _VERSION.fullmatch(text):
            raise self._mistyped("a version such as '13.0'")
        return text

    def matching_here(self, pattern: str, expected: str) -> str:
        """Return this value as text that matches `pattern` as a whole."""
        text = self.text_here()
        if not re.fullmatch(pattern, text):
            raise self._mistyped(expected)
        return text

    def integer_here(self) -> int:
        """Return this value as a whole number."""
        if isinstance(self._value, bool) or not isinstance(self._value, int):
            raise self._mistyped("a whole number")
        return self._value

    def _list_here(self) -> list[Node]:
        if not isinstance(self._value, list):
            raise self._mistyped("a list")
        return [
            Node(item, self._source, (*self._path, str(number)))
            for number, item in enumerate(self._value)
        ]

    def entries(self, build: Callable[[str, Node], T]) -> Mapping[str, T]:
        """Return each entry of this mapping, built by `build(name, node)`; names must be text."""
        result = {}
        for key, value in self._mapping().items():
            if not isinstance(key, str):
                raise self.wrong(self._place(str(key)), "must be a name in quotes", repr(key))
            result[key] = build(key, Node(value, self._source, (*self._path, key)))
        return MappingProxyType(result)

    def table(self, key: str, build: Callable[[str, Node], T]) -> Mapping[str, T]:
        """Return the entries of the field `key`."""
        return self._get(key).entries(build)

    def numbered(self, key: str, build: Callable[[int, Node], T]) -> Mapping[int, T]:
        """Return the entries of the field `key`, whose names must be whole numbers."""
        field, result = self._get(key), {}
        for name, value in field._mapping().items():
            place = (*field._path, str(name))
            number = Node(name, self._source, place).integer_here()
            result[number] = build(number, Node(value, self._source, place))
        return MappingProxyType(result)

    def listed(self, key: str, build: Callable[[Node], T]) -> tuple[T, ...]:
        """Return each item of the list under `key`, built by `build(node)`."""
        return tuple(build(node) for node in self._get(key)._list_here())

    def child(self, key: str) -> Node:
        """Return the mapping under `key`."""
        node = self._get(key)
        node._mapping()
        return node

    def optional_child(self, key: str) -> Node | None:
        """Return the mapping under `key`, or None if it is null."""
        node = self._get(key)
        if node._value is None:
            return None
        node._mapping()
        return node

    def text(self, key: str) -> str:
        """Return the text under `key`."""
        return self._get(key).text_here()

    def optional_text(self, key: str) -> str | None:
        """Return the text under `key`, or None."""
        node = self._get(key)
        return None if node._value is None else node.text_here()

    def matching(self, key: str, pattern: str, expected: str) -> str:
        """Return the text under `key`, which must match `pattern` as a whole."""
        return self._get(key).matching_here(pattern, expected)

    def has(self, key: str) -> bool:
        """Tell whether there is a field `key`, for fields that may be left out."""
        return key in self._mapping()

    def flag(self, key: str) -> bool:
        """Return the yes or no under `key`."""
        node = self._get(key)
        if not isinstance(node._value, bool):
            raise node._mistyped("yes or no")
        return node._value

    def choice(self, key: str, allowed: tuple[str, ...]) -> str:
        """Return the text under `key`, one of `allowed`."""
        text = self.text(key)
        self.known(self._place(key), text, allowed)
        return text

    def version(self, key: str) -> str:
        """Return the version under `key`."""
        return self._get(key).version_here()

    def optional_version(self, key: str) -> str | None:
        """Return the version under `key`, or None."""
        node = self._get(key)
        return None if node._value is None else node.version_here()

    def integer(self, key: str) -> int:
        """Return the whole number under `key`."""
        return self._get(key).integer_here()

    def optional_integer(self, key: str) -> int | None:
        """Return the whole number under `key`, or None."""
        node = self._get(key)
        return None if node._value is None else node.integer_here()

    def number(self, key: str) -> float:
        """Return the number >= 0 under `key`."""
        node = self._get(key)
        value = node._value
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise node._mistyped("a number of at least 0")
        return float(value)

    def integers(self, key: str) -> tuple[int, ...]:
        """Return the list of whole numbers under `key`."""
        return tuple(node.integer_here() for node in self._get(key)._list_here())

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the list of texts under `key`."""
        return tuple(node.text_here() for node in self._get(key)._list_here())

    def versions(self, key: str, *, length: int) -> tuple[str, ...]:
        """Return the list of `length` versions under `key`."""
        node = self._get(key)
        found = tuple(item.version_here() for item in node._list_here())
        if len(found) != length:
            raise node._mistyped(f"a list of {length} versions")
        return found

    def optional_range(self, key: str) -> tuple[int, int] | None:
        """Return [lowest, highest] under `key`, or None."""
        node = self._get(key)
        if node._value is None:
            return None
        lowest, highest = self.open_range(key)
        if highest is None:
            raise node._mistyped("[lowest, highest]")
        return lowest, highest

    def open_range(self, key: str) -> tuple[int, int | None]:
        """Return [lowest, highest] under `key`; null as the highest is None, no end."""
        node = self._get(key)
        items = node._list_here()
        bounds = [None if item._value is None else item.integer_here() for item in items]
        if len(bounds) == 2 and bounds[0] is not None:
            lowest, highest = bounds[0], bounds[1]
            if highest is None or lowest <= highest:
                return lowest, highest
        raise node._mistyped("[lowest, highest]")
