"""How a data key is declared: as one field of the section of the spec that holds it.

    @dataclass(frozen=True, kw_only=True, slots=True)
    class SmokeSpec:
        accept: Accept = key(
            choice("proof", "two-gpus"),
            default="proof",
            example="two-gpus",
            help="what a pass must prove",
        )

With `smoke: SmokeSpec = part(SmokeSpec, stage="smoke")` in HostSpec that is the data key
`smoke_accept`: its checker, its default, its place in the spec, its sentences in errors and its row
in docs/keys.md. What data does not say but follows from it is a `computed` field; an ordinary field
with a default is for what becomes known later, such as the hosts of a group.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pyinfra_gpu.spec import values as v
from pyinfra_gpu.stacks import Catalogue, Stack

T = TypeVar("T")
_METADATA = "pyinfra_gpu.spec"


@dataclass(frozen=True, slots=True)
class Default:
    """A default that depends on the stack or on other keys.

    + text: it in words, for documents and errors
    + value: returns it for one host
    """

    text: str
    value: Callable[[Given], object]


def from_stack(value: Callable[[Given], object]) -> Default:
    """Return a default that the chosen stack supplies."""
    return Default("the stack's", value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """One data key; `example` is a valid value, other than the default where there is another.

    None in data means the default where that is None or a `Default`, so that one layer can take
    back what a more general one set.

    + check: returns a value in its final form, or raises BadValueError
    + type_text: what is allowed, in words
    + remedy: returns what to do about a wrong value, from all data of its layer; None = "set e.g."
    + synonyms: what people write for this key, where likeness of letters would point elsewhere
    """

    name: str
    stage: str
    type_text: str
    default: object
    description: str
    example: object
    check: v.Checker = field(repr=False)
    remedy: Callable[[Mapping[str, object]], str] | None = field(default=None, repr=False)
    synonyms: tuple[str, ...] = ()

    @property
    def default_text(self) -> str:
        """The default as a person reads it."""
        return self.default.text if isinstance(self.default, Default) else repr(self.default)


class Given:
    """One host's data with every default filled in, which is what computed fields read."""

    def __init__(
        self, host: str, values: Mapping[str, Any], keys: Mapping[str, Key], known: Catalogue
    ) -> None:
        """+ values: those that data gives, checked."""
        self.host, self.known = host, known
        self._values, self._keys = values, keys

    @property
    def stack(self) -> Stack:
        """The chosen stack."""
        return self.known.stacks[self["stack"]]

    def declares(self, name: str) -> bool:
        """Return whether data gives this key a value other than None."""
        return self._values.get(name) is not None

    def __getitem__(self, name: str) -> Any:
        """Return the value of a key, or its default."""
        if self.declares(name):
            return self._values[name]
        default = self._keys[name].default
        return default.value(self) if isinstance(default, Default) else default


@dataclass(frozen=True, kw_only=True, slots=True)
class _Declared:
    """What `key` declares of one field; the rest of its Key follows from its place."""

    name: str | None
    about: dict[str, Any]
    settle: Callable[[Given, Any], object] | None


@dataclass(frozen=True, slots=True)
class _Computed:
    value: Callable[[Given], object]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    section: type[Any]
    stage: str
    prefix: str
    when: Callable[[Given], bool]


def key(
    check: v.Checker,
    *,
    default: object,
    example: object,
    help: str,  # noqa: A002 (as argparse calls it)
    allowed: str | None = None,
    name: str | None = None,
    settle: Callable[[Given, Any], object] | None = None,
    remedy: Callable[[Mapping[str, object]], str] | None = None,
    synonyms: tuple[str, ...] = (),
) -> Any:
    """Declare the field of a section that one data key fills.

    + check: the checker of its values; None passes too where the default is None or a Default
    + default: a value, or a Default
    + example: a valid value, other than the default where there is another
    + help: its meaning in one clause, for docs/keys.md and inventories/lab.py
    + allowed: the allowed values in words; may be left out where the checker knows them
    + name: the data key; default: the section's prefix and the field's name
    + settle: returns what the field becomes, from the host's data and the key's value; default: the
      value itself
    + remedy, synonyms: see Key
    """
    if default is None or isinstance(default, Default):
        allowed, check = allowed or v.allowed_by(check), v.optional(check)
    about = {
        "check": check,
        "type_text": allowed or v.allowed_by(check),
        "default": default,
        "example": example,
        "description": help,
        "remedy": remedy,
        "synonyms": synonyms,
    }
    return field(metadata={_METADATA: _Declared(name=name, about=about, settle=settle)})


def computed(value: Callable[[Given], object], *, default: object = dataclasses.MISSING) -> Any:
    """Declare a field that no key fills: `value` returns it from the host's data.

    + default: for sections that are made by hand
    """
    metadata = {_METADATA: _Computed(value)}
    if default is dataclasses.MISSING:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


def part(
    section: type[Any],
    *,
    stage: str,
    prefix: str | None = None,
    when: Callable[[Given], bool] = lambda given: True,
) -> Any:
    """Declare a field that holds another section.

    + stage: the stage that reads its keys
    + prefix: what the names of its keys begin with; default: the stage and an underscore
    + when: whether the host has it at all; otherwise the field is None
    """
    prefix = f"{stage}_" if prefix is None else prefix
    declared = _Part(section=section, stage=stage, prefix=prefix, when=when)
    return field(metadata={_METADATA: declared})


def keys_of(section: type[Any], stage: str, prefix: str = "") -> Iterator[Key]:
    """Yield every key that `section` and its parts declare, in the order of their fields."""
    for each in dataclasses.fields(section):
        declared = each.metadata.get(_METADATA)
        if isinstance(declared, _Declared):
            name = declared.name or f"{prefix}{each.name}"
            yield Key(name=name, stage=stage, **declared.about)
        elif isinstance(declared, _Part):
            yield from keys_of(declared.section, declared.stage, declared.prefix)


def build(section: type[T], given: Given, prefix: str = "") -> T:
    """Return the section that `given` describes."""
    return section(
        **{
            each.name: _value(each.metadata[_METADATA], each.name, given, prefix)
            for each in dataclasses.fields(section)  # type: ignore[arg-type]
            if _METADATA in each.metadata
        }
    )


def _value(declared: object, field_name: str, given: Given, prefix: str) -> object:
    if isinstance(declared, _Computed):
        return declared.value(given)
    if isinstance(declared, _Part):
        there = declared.when(given)
        return build(declared.section, given, declared.prefix) if there else None
    assert isinstance(declared, _Declared)  # noqa: S101 (there is no fourth kind)
    value = given[declared.name or f"{prefix}{field_name}"]
    return value if declared.settle is None else declared.settle(given, value)
