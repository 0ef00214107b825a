"""What a lab wants of the distribution, beside what the stages need."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyinfra_gpu.spec.key import key
from pyinfra_gpu.spec.values import BadValueError, kind

# A dash at the end of a name would ask for the package's removal.
_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]*[a-z0-9+]")
_OF_ANOTHER_STAGE = re.compile(r"(lib)?(nvidia(?!-container)|cuda).*")


def names(value: object) -> tuple[str, ...]:
    """Accept a list of package names, ["nvtop"]; returned sorted, each once."""
    if isinstance(value, str) or not isinstance(value, list | tuple):
        meant = value.replace(",", " ").split() if isinstance(value, str) else None
        raise BadValueError(f"is {kind(value)}, not a list", suggestion=meant or None)
    return tuple(sorted({_name(item) for item in value}))


def _name(item: object) -> str:
    if not isinstance(item, str):
        raise BadValueError(f"holds {kind(item)}, not text")
    if not _NAME.fullmatch(item):
        raise BadValueError(f"holds {item!r}, which is not the name of a package alone")
    if _OF_ANOTHER_STAGE.fullmatch(item):
        raise BadValueError(
            f"holds {item!r}, and the driver and the toolkit have stages of their own",
            remedy=f"remove {item!r} from it; the keys driver_... and cuda_... say what is wanted",
        )
    return item


@dataclass(frozen=True, kw_only=True, slots=True)
class PackagesSpec:
    """Packages of the distribution; `extra` are the user's own, sorted."""

    extra: tuple[str, ...] = key(
        names,
        default=None,
        allowed="a list of package names of a-z, 0-9, +, - and ., or None",
        example=["nvtop", "tmux"],
        help="further packages of the distribution to install; taken off here, they stay installed",
        settle=lambda given, extra: extra or (),
    )
