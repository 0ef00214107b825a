"""What the hosts of one run tell one another through the controller, while it works on them all.

Like the journal it is a pyinfra state callback, so it lives exactly as long as one run.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

import gevent  # type: ignore[import-untyped]  # it has none; pyinfra's own event loop
from pyinfra import context
from pyinfra.api.state import BaseStateCallback, State, StateStage

_POLL_S = 0.05


class Meeting(BaseStateCallback):
    """Topic -> host -> what this host has said on it."""

    def __init__(self, state: State) -> None:
        """Begin with nothing said."""
        self.run_id = secrets.token_hex(8)
        self._state = state
        self._said: dict[str, dict[str, Any]] = {}
        self._left: set[str] = set()

    def say(self, topic: str, host: str, value: Any) -> None:
        """Tell the other hosts something."""
        self._said.setdefault(topic, {})[host] = value

    def leave(self, host: str) -> None:
        """Tell the other hosts that this one will say nothing more."""
        self._left.add(host)

    def hear(self, topic: str, hosts: Iterable[str], seconds: float) -> dict[str, Any]:
        """Return what each of `hosts` says on a topic, waiting for it for at most `seconds`.

        A host that has left, or that the run has given up, is not waited for: it is not in what
        is returned, unless it had said something before.
        """
        said, wanted = self._said.setdefault(topic, {}), set(hosts)
        with gevent.Timeout(seconds, False):
            while wanted - said.keys() - self._left - self._given_up():
                gevent.sleep(_POLL_S)
        return {host: value for host, value in said.items() if host in wanted}

    def _given_up(self) -> set[str]:
        """Return the hosts of the inventory that this run does not work on, or no more."""
        works_on = {*self._state.active_hosts} - {*self._state.failed_hosts}
        return {host.name for host in self._state.inventory if host not in works_on}


def meeting() -> Meeting:
    """Return the current run's, made at first use."""
    state: State = context.state
    there = [each for each in state.callback_handlers if isinstance(each, Meeting)]
    if not there:
        there.append(Meeting(state))
        state.add_callback_handler(there[0])  # type: ignore[no-untyped-call]
    return there[0]


def executing() -> bool:
    """Return whether the run acts by now, so that all hosts come to the same operation at once."""
    return bool(context.state.current_stage == StateStage.Execute)
