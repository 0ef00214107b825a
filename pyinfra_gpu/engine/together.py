"""What the hosts of one run tell one another through the controller, while it works on them all.

Like the journal it is a pyinfra state callback, so it lives exactly as long as one run.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import gevent  # type: ignore[import-untyped]  # it has none; pyinfra's own event loop
from pyinfra import context
from pyinfra.api.state import BaseStateCallback, State, StateStage

_POLL_S = 0.05
_T = TypeVar("_T")


class Together(BaseStateCallback):
    """Topic -> host -> what this host has said on it."""

    def __init__(self, given_up: Callable[[], set[str]]) -> None:
        """Begin with nothing said.

        + given_up: returns the hosts that nothing more is to be expected of
        """
        self.run_id = secrets.token_hex(8)
        self._given_up = given_up
        self._said: dict[str, dict[str, Any]] = {}
        self._left: set[str] = set()
        self._once: dict[str, Any] = {}

    def say(self, topic: str, host: str, value: Any) -> None:
        """Tell the other hosts something."""
        self.said(topic)[host] = value

    def said(self, topic: str) -> dict[str, Any]:
        """Return host -> what it has said on a topic by now."""
        return self._said.setdefault(topic, {})

    def leave(self, host: str) -> None:
        """Tell the other hosts that this one will say nothing more."""
        self._left.add(host)

    def silent(self, topic: str, hosts: Iterable[str]) -> set[str]:
        """Return those of `hosts` that have left, or are given up, without a word on a topic."""
        return (set(hosts) - self.said(topic).keys()) & (self._left | self._given_up())

    def hear(self, topic: str, hosts: Iterable[str], seconds: float) -> dict[str, Any]:
        """Return what each of `hosts` says on a topic, waiting for it for at most `seconds`.

        A host that has left, or that the run has given up, is not waited for: it is not in what
        is returned, unless it had said something before.
        """
        wanted = set(hosts)
        with gevent.Timeout(seconds, False):
            while wanted - self.said(topic).keys() - self.silent(topic, wanted):
                gevent.sleep(_POLL_S)
        return {host: value for host, value in self.said(topic).items() if host in wanted}

    def once(self, topic: str, make: Callable[[], _T]) -> _T:
        """Return what `make` returned for the first host that asked for this."""
        if topic not in self._once:
            self._once[topic] = make()
        made: _T = self._once[topic]
        return made


def together() -> Together:
    """Return the current run's, made at first use."""
    state: State = context.state
    there = [each for each in state.callback_handlers if isinstance(each, Together)]
    if not there:
        there.append(Together(lambda: _given_up(state)))
        state.add_callback_handler(there[0])  # type: ignore[no-untyped-call]
    return there[0]


def executing() -> bool:
    """Return whether the run acts by now, so that all hosts come to the same operation at once."""
    return bool(context.state.current_stage == StateStage.Execute)


def _given_up(state: State) -> set[str]:
    """Return the hosts of the inventory that this run does not work on, or no more."""
    active = {host.name for host in state.active_hosts} - {h.name for h in state.failed_hosts}
    return {host.name for host in state.inventory} - active
