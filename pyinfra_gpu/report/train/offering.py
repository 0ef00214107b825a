"""What may be typed next on the controller: groups and presets, as the inventory declares them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from pyinfra_gpu.report.check.offering import typed
from pyinfra_gpu.report.check.running import known


def groups(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Return the inventory's groups; none where it cannot be read."""
    del prefix
    return list(known(typed(parsed_args))[0])


def presets(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Return the presets that its hosts declare, where one is to be started."""
    del prefix
    if getattr(parsed_args, "action", None) != "start":
        return []
    declared = (data.get("training_presets") for data in known(typed(parsed_args))[1].values())
    return [*dict.fromkeys(name for each in declared if isinstance(each, Mapping) for name in each)]
