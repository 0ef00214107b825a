"""What a data key is: its name, stage, allowed values, default, description and checker."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyinfra_gpu.spec import values as v


class FromStack:
    """Stands for a default that the chosen stack supplies."""

    def __repr__(self) -> str:
        return "FROM_STACK"


FROM_STACK = FromStack()


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """One data key; `example` is a valid value, other than the default where there is another.

    None in data means the default where that is None or comes from the stack, so that one layer
    can take back what a more general one said.
    """

    name: str
    stage: str
    type_text: str
    default: object
    description: str
    example: object
    check: v.Checker = field(repr=False)

    @property
    def default_text(self) -> str:
        """The default as a person reads it."""
        return "the stack's" if self.default is FROM_STACK else repr(self.default)


def make_key(
    name: str,
    stage: str,
    type_text: str,
    default: object,
    check: v.Checker,
    *,
    example: object,
    description: str,
) -> Key:
    """Return a key; None is allowed where the default is None or comes from the stack."""
    if default is None or default is FROM_STACK:
        check = v.optional(check)
    return Key(
        name=name,
        stage=stage,
        type_text=type_text,
        default=default,
        description=description,
        example=example,
        check=check,
    )
