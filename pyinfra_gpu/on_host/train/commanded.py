"""How a start was typed, so that what is advised next keeps all of it but for what it changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def start(
    preset: str,
    *,
    gpus: str = "",
    unproven: bool = False,
    queue: bool = False,
    retries: int = 0,
    settings: Mapping[str, str],
    words: Sequence[str] = (),
    like: str = "",
) -> list[str]:
    """Return the words behind `train start`.

    + settings: what --set gives; words: behind --
    + like: the run that it repeats, in place of a preset
    """
    behind = ["--", *words] if words else []
    return [
        *(["--like", like] if like else [preset]),
        *(["--gpus", gpus] if gpus else []),
        *(["--unproven"] * unproven),
        *(["--queue"] * queue),
        *(["--retries", str(retries)] if retries else []),
        *(word for name, value in settings.items() for word in ("--set", f"{name}={value}")),
        *behind,
    ]
