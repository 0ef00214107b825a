"""What to do about a failed check whose figure the smoke test measured itself: data, read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated, ClassVar

from pydantic import Field, TypeAdapter

from pyinfra_gpu.stacks.reading import FileEntry, Table, Text, keyed, read, wrong

_NAME = "catalogue/checks.yaml"


@dataclass(frozen=True, kw_only=True)
class Advice(FileEntry):
    """The steps to take after any of these checks; `source` tells where they are from."""

    KEYED_BY: ClassVar[str] = "name"

    name: str
    checks: tuple[Text, ...]
    fix: Annotated[tuple[Text, ...], Field(min_length=1)]
    source: Text


def advice(check_id: str) -> tuple[str, ...]:
    """Return the steps to take after this check has failed; empty where its sentence says all.

    + check_id: as in the verdict, such as "S4.grad_bitwise"
    """
    return known().get(check_id.rpartition(".")[2], ())


@cache
def known() -> Mapping[str, tuple[str, ...]]:
    """Return check's id without its stage -> steps.

    Raises StacksError, with file, entry and reason in one sentence, if the data is wrong.
    """
    text = (files("pyinfra_gpu.diagnosis") / _NAME).read_text(encoding="utf-8")
    return read_advice(text)


def read_advice(text: str) -> dict[str, tuple[str, ...]]:
    """Return what the YAML `text` holds, in the same form; raises StacksError as `known` does."""
    steps: dict[str, tuple[str, ...]] = {}
    model = TypeAdapter(Annotated[Table[str, Advice], keyed(Advice)])
    for entry in read(text, _NAME, model).values():
        for check in entry.checks:
            if check in steps:
                raise wrong(_NAME, f"{entry.name}.checks", "must have one advice a check", check)
            steps[check] = entry.fix
    return steps
