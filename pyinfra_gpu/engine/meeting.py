"""What the hosts of one run tell one another through the controller, while it works on them all.

Each keeps what it has said in its `connector_data`, pyinfra's scratch space of this host and run.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import gevent  # type: ignore[import-untyped]  # it has none; pyinfra's own event loop
from pyinfra import context
from pyinfra.api.state import StateStage

RUN_ID = secrets.token_hex(8)
"""Names this run, which is this process."""

_KEY, _LEFT = "pyinfra_gpu_said", "left"
_POLL_S = 0.05


def say(topic: str, value: Any) -> None:
    """Have this host tell the others something."""
    context.host.connector_data.setdefault(_KEY, {})[topic] = value


def leave() -> None:
    """Have this host tell the others that it will say nothing more."""
    say(_LEFT, True)


def hear(topic: str, names: Sequence[str], seconds: float) -> dict[str, Any]:
    """Return what each of these hosts says on a topic, waiting for it for at most `seconds`.

    A host that has left, or that the run has given up, is not waited for: it is not in what is
    returned, unless it had said something before.
    """
    state = context.state
    hosts = [each for each in state.inventory if each.name in names]
    said = {host.name: host.connector_data.setdefault(_KEY, {}) for host in hosts}

    def waited_for(host: Any) -> bool:
        works_on = host in state.active_hosts and host not in state.failed_hosts
        return works_on and not said[host.name].keys() & {topic, _LEFT}

    with gevent.Timeout(seconds, False):
        while any(map(waited_for, hosts)):
            gevent.sleep(_POLL_S)
    return {name: reported[topic] for name, reported in said.items() if topic in reported}


def executing() -> bool:
    """Return whether the run acts by now, so that all hosts come to the same operation at once."""
    return bool(context.state.current_stage == StateStage.Execute)
