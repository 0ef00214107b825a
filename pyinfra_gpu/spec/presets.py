"""Presets of training runs, checked by the same code as on hosts."""

from __future__ import annotations

from typing import Any

from pyinfra_gpu.on_host.train import presets as on_host
from pyinfra_gpu.on_host.train.preset_values import is_text
from pyinfra_gpu.spec.values import BadValueError, kind
from pyinfra_gpu.spec.variables import FORBIDDEN


def presets(value: object) -> dict[str, dict[str, Any]]:
    """Accept a dict of presets, each right by itself and with what it extends."""
    try:
        found = on_host.check(value)
    except on_host.PresetError as error:
        raise BadValueError(f"is wrong: {error.problem}", remedy=error.remedy) from None
    for preset, given in found.items():
        for name in given.get("variables", {}):
            if name in FORBIDDEN:
                raise BadValueError(
                    f"is wrong: preset {preset} sets {name}, which is not set because"
                    f" {FORBIDDEN[name]}",
                    remedy=f"take {name} out of 'variables' of {preset}",
                )
    return found


def command(value: object) -> tuple[str, ...]:
    """Accept a command as a list of words, without a secret: every user of a host can read it."""
    if not isinstance(value, list | tuple) or not all(map(is_text, value)):
        raise BadValueError(f"is {kind(value)}, not a list of texts")
    words = tuple(value)
    if words and not words[0].startswith("/"):
        raise BadValueError("begins with a word that is no absolute path")
    if word := on_host.secret_in(words):
        raise BadValueError(f"has a secret in {word}", remedy="put it into a file of the owner's")
    return words
