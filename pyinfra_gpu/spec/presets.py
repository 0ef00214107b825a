"""Presets of training runs, checked by the same code as on hosts."""

from __future__ import annotations

from typing import Any

from pyinfra_gpu.on_host.train import presets as on_host
from pyinfra_gpu.spec.values import BadValueError


def presets(value: object) -> dict[str, dict[str, Any]]:
    """Accept a dict of presets, each right by itself and with what it extends."""
    try:
        return on_host.check(value)
    except on_host.PresetError as error:
        raise BadValueError(f"is wrong: {error.problem}", remedy=error.remedy) from None
