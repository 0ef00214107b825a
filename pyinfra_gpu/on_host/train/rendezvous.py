"""Where the hosts of a step meet before torchrun does: who is there, and at which addresses.

A host may have several addresses, and not all of them lead to the others. So the first host listens
where torchrun's store will be, at the addresses that it was announced with; the others connect.
Both ends then know an address that works. Whoever connects proves that it knows the token of this
run, and so does the first host; what is said has a fixed size, so there is nothing to parse:

    first host -> 32 random bytes
    other host -> 32 random bytes, its place among the hosts in one byte, a code of both
    first host -> a code that welcomes; and when all are there, one that says so

Who says something else, or nothing, is hung up on, and takes nobody's place.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import select
import selectors
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

_NONCE = _CODE = 32
_SAID = _NONCE + 1 + _CODE
_EACH_S = 3.0
"""Seconds for a connection, and for what must be said in it at once."""
_PAUSE_S = 0.1
_MOST_UNKNOWN = 128
"""Connections at a time of whom it is not known yet who they are; the oldest is dropped first."""
_TOKEN_S = 10.0
_TOKEN_LEAST, _TOKEN_MOST = 16, 256
Stopped = Callable[[], str | None]


@dataclass(frozen=True)
class Met:
    """An address that works. `local` is this host's end of it; `endpoint` is the store's."""

    local: str
    endpoint: tuple[str, int]


@dataclass
class Missed:
    """Not all were met.

    + tried: address -> what went wrong there, for who looks for the first host
    + welcomed: whether the first host was met, and waited for others in vain
    + absent: the places of the hosts that did not come, for the first host
    """

    tried: dict[str, str] = field(default_factory=dict)
    welcomed: bool = False
    absent: list[int] = field(default_factory=list)


def read_token(file: int) -> bytes | None:
    """Return the token of this run, one line of hexadecimal; None where none comes at once."""
    text = b""
    until = time.monotonic() + _TOKEN_S
    while not text.endswith(b"\n") and len(text) < _TOKEN_MOST:
        if not select.select([file], [], [], max(0.0, until - time.monotonic()))[0]:
            return None
        piece = os.read(file, _TOKEN_MOST - len(text))
        if not piece:
            break
        text += piece
    try:
        token = bytes.fromhex(text.decode("ascii").strip())
    except ValueError:
        return None
    return token if len(token) >= _TOKEN_LEAST else None


def serve(
    endpoints: Sequence[tuple[str, int]],
    others: Iterable[int],
    token: bytes,
    until: float,
    stopped: Stopped,
) -> Met | Missed:
    """Listen until all other hosts are there, or until a moment on the monotonic clock.

    + endpoints: addresses and ports of this host; others: the places of the other hosts
    + token: what the hosts of this run know and nobody else; stopped: whether to give up at once

    Raises OSError where a port is in use.
    """
    with ExitStack() as opened:
        meeting = opened.enter_context(_Meeting(set(others), token))
        for server in _listening(endpoints, opened):
            meeting.selector.register(server, selectors.EVENT_READ)
        while time.monotonic() < until and not stopped():
            meeting.listen()
            if not meeting.absent:
                return meeting.begin()
        return Missed(absent=meeting.absent)


def _listening(endpoints: Sequence[tuple[str, int]], opened: ExitStack) -> list[socket.socket]:
    """Return sockets that listen at the endpoints that are this machine's."""
    servers = []
    for address, port in endpoints:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            server = socket.create_server((address, port), family=family)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
                continue
            raise
        servers.append(opened.enter_context(server))
    if not servers:  # what is announced is another machine's, which leads here
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        server = socket.create_server(("", endpoints[0][1]), family=family, dualstack_ipv6=dual)
        servers.append(opened.enter_context(server))
    for server in servers:
        server.setblocking(False)
    return servers


@dataclass
class _Guest:
    """A connection to the first host. `place` is whose it is, None as long as nothing is proven."""

    connection: socket.socket
    until: float
    challenge: bytes = field(default_factory=lambda: os.urandom(_NONCE))
    heard: bytes = b""
    place: int | None = None


class _Meeting:
    """Who is there by now."""

    def __init__(self, places: set[int], token: bytes) -> None:
        self.selector = selectors.DefaultSelector()
        self._token = token
        self._places = places
        self._unknown: list[_Guest] = []
        self._there: dict[int, _Guest] = {}

    def __enter__(self) -> _Meeting:
        return self

    def __exit__(self, *_: object) -> None:
        for guest in [*self._unknown, *self._there.values()]:
            self._drop(guest)
        self.selector.close()

    @property
    def absent(self) -> list[int]:
        """Return the places of those that are not there."""
        return sorted(self._places - self._there.keys())

    def listen(self) -> None:
        """Take in what comes within a moment; hang up on who has said nothing for too long."""
        for key, _ in self.selector.select(_PAUSE_S):
            if isinstance(key.data, _Guest):
                if not self._hear(key.data):
                    self._drop(key.data)
            else:
                self._accept(key.fileobj)
        now = time.monotonic()
        for guest in [each for each in self._unknown if each.until < now]:
            self._drop(guest)

    def begin(self) -> Met:
        """Tell all that all are there."""
        first = self._there[min(self._there)].connection.getsockname()
        for guest in self._there.values():
            self._send(guest, self._code("begin", guest))
        local = str(first[0]).removeprefix("::ffff:")
        return Met(local, (local, first[1]))

    def _accept(self, server: Any) -> None:
        if len(self._unknown) >= _MOST_UNKNOWN:
            self._drop(self._unknown[0])
        try:
            connection, _ = server.accept()
        except OSError:  # it has hung up by now
            return
        connection.setblocking(False)
        guest = _Guest(connection, time.monotonic() + _EACH_S)
        self._unknown.append(guest)
        self.selector.register(connection, selectors.EVENT_READ, guest)
        if not self._send(guest, guest.challenge):
            self._drop(guest)

    def _hear(self, guest: _Guest) -> bool:
        """Take in what somebody says; return whether there is more to be expected of them."""
        try:
            piece = guest.connection.recv(_SAID + 1)
        except OSError:
            return False
        guest.heard += piece
        if not piece or len(guest.heard) > _SAID:
            return False
        if len(guest.heard) < _SAID:
            return True
        place = guest.heard[_NONCE]
        if place not in self._places or not hmac.compare_digest(
            guest.heard[-_CODE:], self._code("here", guest)
        ):
            return False
        if former := self._there.get(place):  # it has lost that one, or it would not come again
            self._drop(former)
        self._unknown.remove(guest)
        guest.place = place
        self._there[place] = guest
        return self._send(guest, self._code("welcome", guest))

    def _code(self, word: str, guest: _Guest) -> bytes:
        return _code(self._token, word, guest.challenge, guest.heard[: _NONCE + 1])

    @staticmethod
    def _send(guest: _Guest, what: bytes) -> bool:
        try:
            return guest.connection.send(what) == len(what)
        except OSError:
            return False

    def _drop(self, guest: _Guest) -> None:
        if guest.connection.fileno() < 0:  # by now, for another reason
            return
        self.selector.unregister(guest.connection)
        guest.connection.close()
        if guest.place is not None:
            del self._there[guest.place]
        else:
            self._unknown.remove(guest)


def _code(token: bytes, word: str, challenge: bytes, answer: bytes) -> bytes:
    """Return what only somebody with the token can say, in this one connection."""
    return hmac.digest(token, word.encode() + challenge + answer, hashlib.sha256)


def reach(
    endpoints: Sequence[tuple[str, int]], place: int, token: bytes, until: float, stopped: Stopped
) -> Met | Missed:
    """Try the endpoints one after the other, again and again, until all meet; see `serve`.

    + place: this host's, among all
    """
    missed = Missed()
    answered: set[str] = set()
    while True:
        for endpoint in endpoints:
            address = endpoint[0]
            try:
                with socket.create_connection(endpoint, timeout=_EACH_S) as connection:
                    talk = _Talk(connection, until, stopped)
                    _meet(talk, place, token, missed)
                    return Met(str(connection.getsockname()[0]), endpoint)
            except _SaidError as error:
                answered.add(address)
                missed.tried[address] = str(error)
            except OSError as error:
                if address not in answered:  # what was answered once says more
                    missed.tried[address] = error.strerror or str(error)
            if time.monotonic() > until or stopped():
                return missed
        time.sleep(_PAUSE_S)


class _SaidError(Exception):
    """What somebody who was connected to has said is not what the first host says."""


@dataclass(frozen=True)
class _Talk:
    """A connection to somebody who may say anything, or nothing."""

    connection: socket.socket
    until: float
    stopped: Stopped

    def read(self, size: int, seconds: float) -> bytes:
        """Return so many bytes. Raises OSError or _SaidError where they do not come."""
        heard, until = b"", min(self.until, time.monotonic() + seconds)
        self.connection.settimeout(_PAUSE_S)
        while len(heard) < size:
            if time.monotonic() > until or self.stopped():
                raise TimeoutError("connected, and nothing was answered")
            try:
                piece = self.connection.recv(size - len(heard))
            except TimeoutError:
                continue
            if not piece:
                raise _SaidError("connected, and was hung up on: it has another token, or none")
            heard += piece
        return heard


def _meet(talk: _Talk, place: int, token: bytes, missed: Missed) -> None:
    """Say who this is, and wait for all. Raises OSError or _SaidError where that fails."""
    challenge = talk.read(_NONCE, _EACH_S)
    answer = os.urandom(_NONCE) + bytes([place])
    talk.connection.sendall(answer + _code(token, "here", challenge, answer))
    for word, seconds in (("welcome", _EACH_S), ("begin", talk.until)):
        said = talk.read(_CODE, seconds)
        if not hmac.compare_digest(said, _code(token, word, challenge, answer)):
            raise _SaidError("somebody answers who does not know this run's token")
        missed.welcomed = True
