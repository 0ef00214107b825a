"""What a record's field may be beside its value: `None`, not there; `Unknown`, not told."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from pyinfra_gpu.errors import masked
from pyinfra_gpu.text import one_line

TEXT_LIMIT = 65536  # bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Unknown:
    """Stands in a field that the host would not tell.

    + reason: one clause that says why, e.g. "git is not on this host"
    """

    reason: str

    def __str__(self) -> str:
        """Say so in words: it may stand in a sentence."""
        return f"unknown ({self.reason})"

    def to_json(self) -> dict[str, str]:
        """The form in which it is printed."""
        return {"unknown": self.reason}

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        """In a host's answer it is `{"?": reason}`, which is no value of anything else."""
        form = core_schema.typed_dict_schema(
            {"?": core_schema.typed_dict_field(core_schema.str_schema())}, extra_behavior="forbid"
        )
        return core_schema.no_info_after_validator_function(
            lambda reported: cls(one_line(reported["?"])), form
        )


def as_json(value: object) -> object:
    """Plain data (dicts, lists, strings, numbers) for records and whatever they hold.

    Without the passwords in addresses: what is printed ends up in logs.
    """
    if isinstance(value, Unknown):
        return value.to_json()
    if isinstance(value, BaseModel):
        return as_json(value.model_dump(mode="json", by_alias=True, exclude_unset=True))
    if dataclasses.is_dataclass(value):
        return {
            field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [as_json(item) for item in value]
    return masked(value) if isinstance(value, str) else value
