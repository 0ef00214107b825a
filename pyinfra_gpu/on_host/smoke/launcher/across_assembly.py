"""The launchers of one run across hosts: who is here, what they say, who has fallen silent.

The hosts form a star: all are connected to the first host of the plan, which passes on what each
says to all the others. A message is an object with a `kind` and the `host` that sent it.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from .across_link import Dialer, Link, listen

PULSE_S = 1.0
"""Each launcher says something at least this often."""
SILENCE_S = 15.0
"""After so many seconds without a word a host counts as lost. A busy host is late by a second or
two; a lost packet costs TCP less than four before it is sent the third time."""
_DIAL_S = 3.0

Message = dict[str, Any]


class Assembly:
    """One launcher's end of it."""

    def __init__(self, me: str, hosts: Mapping[str, Sequence[str]], run_id: str, port: int) -> None:
        """Stand for host `me` among `hosts` (name -> addresses to try), of which one is first.

        + run_id: what tells this run's launchers from anybody else
        + port: TCP port at which the first host's launcher listens

        Raises OSError where this is the first host and the port cannot be listened at.
        """
        self.me = me
        self.hosts = list(hosts)
        self.first = self.hosts[0]
        self._run_id = run_id
        self._heard: dict[str, float] = {}
        self._told = 0.0
        self._links: dict[str, Link] = {}
        self._strangers: list[Link] = []
        self._server: socket.socket | None = None
        self._dialer: Dialer | None = None
        self._read: list[Message] = []
        self.closed_on: set[str] = set()
        if me == self.first:
            self._server = listen(port)
        else:
            self._dialer = Dialer(list(hosts[self.first]), port, _DIAL_S)

    # -- who is here

    @property
    def missing(self) -> list[str]:
        """Return the hosts that have not been heard of, in the plan's order."""
        return [host for host in self.hosts if host != self.me and host not in self._heard]

    @property
    def refusals(self) -> dict[str, str]:
        """Return address of the first host -> why it could not be reached there."""
        return self._dialer.refusals if self._dialer else {}

    @property
    def address_of_first(self) -> str | None:
        """Return at which address the first host was reached from here, None before that."""
        return self._dialer.address if self._dialer and self.first in self._links else None

    def local_address(self) -> str | None:
        """Return this host's address as the other end of one of its connections sees it."""
        for link in self._links.values():
            if not link.closed:
                return link.local_address()
        return None

    def silent(self, now: float) -> list[str]:
        """Return the hosts that were heard of and are no more, those to be blamed alone.

        What comes from the others comes by way of the first host: where that is silent, nothing
        can be said about them.
        """
        lost = [
            host
            for host in self.hosts
            if host != self.me and now - self._heard.get(host, now) > SILENCE_S
        ]
        return [self.first] if self.first in lost else lost

    # -- messages

    def say(self, kind: str, **content: Any) -> None:
        """Send a message to all the other hosts."""
        message = {**content, "kind": kind, "host": self.me, "run": self._run_id}
        for link in self._links.values():
            link.send(message)
        self._told = time.monotonic()

    def poll(self, seconds: float, step: str) -> list[Message]:
        """Wait for at most `seconds`; return what the other hosts have said meanwhile.

        + step: what this host's ranks are doing, told with the pulse
        """
        if time.monotonic() - self._told > PULSE_S:
            self.say("pulse", step=step)
        self._dial()
        links = [*self._links.values(), *self._strangers]
        open_ = [link for link in links if not link.closed]
        waiting: list[Any] = [*open_, *([self._server] if self._server else [])]
        if waiting:
            select.select(waiting, [link for link in open_ if link.behind], [], seconds)
        else:
            time.sleep(seconds)
        self._accept()
        self._receive()
        messages, self._read = self._read, []
        return messages

    def flush(self, seconds: float) -> None:
        """Send what is still waiting, for at most `seconds`."""
        limit = time.monotonic() + seconds
        while any(link.behind for link in self._links.values()) and time.monotonic() < limit:
            for link in self._links.values():
                link.flush()
            time.sleep(0.02)

    def close(self) -> None:
        """Leave."""
        for link in (*self._links.values(), *self._strangers):
            link.close()
        if self._server is not None:
            self._server.close()
        if self._dialer is not None:
            self._dialer.close()

    def _dial(self) -> None:
        if self._dialer is None or self.first in self._links:
            return
        link = self._dialer.poll(time.monotonic())
        if link is not None:
            self._links[self.first] = link
            self.say("hello", step="meeting")

    def _accept(self) -> None:
        while self._server is not None:
            try:
                connection, _ = self._server.accept()
            except OSError:  # nobody else, or one who has gone again
                return
            self._strangers.append(Link(connection))

    def _receive(self) -> None:
        for link in list(self._strangers):
            messages = link.receive()
            if link.closed or messages:
                self._strangers.remove(link)
            if messages:
                self._introduce(link, messages)
        for host, link in self._links.items():
            link.flush()
            self._take(host, link.receive())
            if link.closed and host not in self.closed_on:
                self.closed_on.add(host)

    def _introduce(self, link: Link, messages: list[Message]) -> None:
        """Take a new connection in if it belongs to a host of this run that is not here yet."""
        host = messages[0].get("host")
        ours = messages[0].get("run") == self._run_id and host in self.hosts[1:]
        if not ours or host in self._links:
            link.close()
            return
        self._links[str(host)] = link
        self._take(str(host), messages)
        self.say("welcome")

    def _take(self, by: str, messages: list[Message]) -> None:
        for message in messages:
            host = message.get("host")
            # Only the first host speaks for others.
            known = host in self.hosts and host != self.me and by in (host, self.first)
            if not known or message.get("run") != self._run_id:
                continue
            self._heard[str(host)] = time.monotonic()
            self._read.append(message)
            if self.me == self.first:
                for other, link in self._links.items():
                    if other != host:
                        link.send(message)
