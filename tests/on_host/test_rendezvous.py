"""Hosts that meet before a step: who is let in, who is not, and that nobody holds the others up."""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyinfra_gpu.on_host.train import rendezvous
from pyinfra_gpu.on_host.train.rendezvous import Met, Missed

TOKEN, ANOTHER = b"\x5a" * 32, b"\x5b" * 32
_PATIENCE_S = 30.0
_SAID = 65
"""Bytes of what an honest host says."""


def never() -> None:
    return None


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("", 0))
        return int(free.getsockname()[1])


class Later(threading.Thread):
    """A call in a thread of its own, whose answer is asked for later."""

    def __init__(self, call: Callable[[], Met | Missed]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self.start()

    def run(self) -> None:
        self._found = self._call()

    @property
    def found(self) -> Met | Missed:
        self.join(2 * _PATIENCE_S)
        return self._found


class First:
    """The first host of a step, at an address of this machine."""

    def __init__(self, others: int, seconds: float = _PATIENCE_S, at: str = "127.0.0.2") -> None:
        self.port = free_port()
        self.endpoint = (at, self.port)
        until = time.monotonic() + seconds
        places = range(1, others + 1)
        self._later = Later(lambda: rendezvous.serve([self.endpoint], places, TOKEN, until, never))
        while not self.listens:
            assert time.monotonic() < until
            time.sleep(0.01)

    @property
    def listens(self) -> bool:
        text = "".join(Path("/proc/net", name).read_text() for name in ("tcp", "tcp6"))
        rows = [row.split() for row in text.splitlines()]
        return any(row[1].endswith(f":{self.port:04X}") and row[3] == "0A" for row in rows)

    @property
    def found(self) -> Met | Missed:
        return self._later.found

    def connect(self) -> socket.socket:
        connection = socket.create_connection(self.endpoint)
        connection.settimeout(_PATIENCE_S)
        return connection

    def other(self, place: int = 1, token: bytes = TOKEN, seconds: float = _PATIENCE_S) -> Later:
        until = time.monotonic() + seconds
        return Later(lambda: rendezvous.reach([self.endpoint], place, token, until, never))


def is_hung_up_on(connection: socket.socket) -> bool:
    try:
        while connection.recv(4096):
            continue
    except ConnectionResetError:
        return True
    return True


def test_both_ends_learn_an_address_that_works() -> None:
    first = First(1)
    endpoints = [("127.0.0.2", first.port + 1), first.endpoint]  # nobody listens at the first one
    until = time.monotonic() + 20
    reached = rendezvous.reach(endpoints, 1, TOKEN, until, never)
    assert reached == Met("127.0.0.1", first.endpoint)
    assert first.found == Met("127.0.0.2", first.endpoint)


def test_who_meets_nobody_says_what_was_tried_and_can_be_stopped() -> None:
    past, nobody = time.monotonic(), [("127.0.0.1", 1)]
    missed = rendezvous.reach(nobody, 1, TOKEN, past, never)
    assert missed == Missed({"127.0.0.1": "Connection refused"})
    until = time.monotonic() + 60
    assert rendezvous.reach(nobody, 1, TOKEN, until, lambda: "SIGTERM") == missed
    local = [("127.0.0.1", 0)]
    assert isinstance(rendezvous.serve(local, [1], TOKEN, until, lambda: "SIGTERM"), Missed)
    assert time.monotonic() < until - 30


def test_the_first_host_listens_at_what_was_announced_alone() -> None:
    first = First(1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", first.port))
    first.other()
    assert isinstance(first.found, Met)


def test_behind_an_address_of_another_machine_the_first_host_is_met_all_the_same() -> None:
    first = First(1, at="192.0.2.1")  # which leads here, for all that is known
    until = time.monotonic() + _PATIENCE_S
    other = Later(lambda: rendezvous.reach([("127.0.0.1", first.port)], 1, TOKEN, until, never))
    assert first.found == other.found == Met("127.0.0.1", ("127.0.0.1", first.port))


STRANGE: dict[str, bytes] = {
    "nothing": b"",
    "half of it": b"\x01" * (_SAID // 2),
    "deep JSON": b"[" * 100_000,
    "a request": b"GET / HTTP/1.1\r\n\r\n",
    "a place that is none": b"\x00" * 32 + b"\xff" + b"\x00" * 32,
    "a wrong code": b"\x00" * 32 + b"\x01" + b"\x00" * 32,
}


@pytest.mark.parametrize("what", STRANGE)
def test_a_stranger_takes_nobodys_place_and_stalls_nobody(what: str) -> None:
    first = First(1)
    with first.connect() as stranger:
        stranger.sendall(STRANGE[what])
        began = time.monotonic()
        other = first.other()
        assert isinstance(first.found, Met)
        assert isinstance(other.found, Met)
        assert time.monotonic() - began < 3  # not even as long as a stranger is listened to
        assert is_hung_up_on(stranger)


def test_a_stranger_alone_is_hung_up_on_and_nobody_was_met() -> None:
    first = First(1, seconds=5)
    with first.connect() as silent, first.connect() as wrong:
        wrong.sendall(STRANGE["a wrong code"])
        assert is_hung_up_on(wrong)
        assert is_hung_up_on(silent)
    assert first.found == Missed(absent=[1])


def test_another_token_meets_nobody() -> None:
    first = First(1, seconds=2)
    other = first.other(token=ANOTHER, seconds=1)
    assert first.found == Missed(absent=[1])
    assert other.found == Missed(
        {"127.0.0.2": "connected, and was hung up on: it has another token, or none"}
    )


def test_what_was_said_once_is_worth_nothing_again() -> None:
    """A stranger who passes on and keeps what a host says cannot come as that host later."""
    first = First(2)
    with socket.create_server(("127.0.0.1", 0)) as between, first.connect() as onward:
        until = time.monotonic() + 2
        Later(lambda: rendezvous.reach([between.getsockname()], 1, TOKEN, until, never))
        victim, _ = between.accept()
        with victim:
            victim.sendall(onward.recv(32))
            said = victim.recv(_SAID, socket.MSG_WAITALL)
    with first.connect() as again:
        again.sendall(said)
        assert is_hung_up_on(again)
    first.other(1)
    first.other(2)
    assert isinstance(first.found, Met)


def test_who_answers_as_the_first_host_without_the_token_is_not_believed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        endpoint = stranger.getsockname()
        until = time.monotonic() + 1
        other = Later(lambda: rendezvous.reach([endpoint], 1, TOKEN, until, never))
        connection, _ = stranger.accept()
        with connection:
            connection.sendall(os.urandom(32))
            connection.recv(_SAID, socket.MSG_WAITALL)
            connection.sendall(os.urandom(64))
            found = other.found
    assert isinstance(found, Missed)
    assert not found.welcomed


def test_a_first_host_that_is_silent_does_not_hold_up_the_way_to_the_right_one() -> None:
    first = First(1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        until = time.monotonic() + _PATIENCE_S
        endpoints = [silent.getsockname(), first.endpoint]
        other = Later(lambda: rendezvous.reach(endpoints, 1, TOKEN, until, never))
        assert other.found == Met("127.0.0.1", first.endpoint)


def test_a_host_that_waits_for_others_in_vain_knows_that_it_met_the_first() -> None:
    first = First(3, seconds=3)
    found = first.other(1, seconds=4).found
    assert first.found == Missed(absent=[2, 3])
    assert isinstance(found, Missed)
    assert found.welcomed


def test_a_host_that_comes_again_is_taken_as_it_comes() -> None:
    first = First(2)
    gone = first.other(1, seconds=0.5)  # it loses patience, or its connection
    assert isinstance(gone.found, Missed)
    again, other = first.other(1), first.other(2)
    assert all(isinstance(each.found, Met) for each in (first, again, other))


@contextmanager
def many_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, before[1]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_six_hundred_and_one_strangers_keep_no_host_out() -> None:
    """With both ends of each in one process, the last have numbers that `select` cannot take."""
    with many_files():
        first = First(1)
        strangers = [first.connect() for _ in range(601)]
        try:
            other = first.other()
            assert isinstance(first.found, Met)
            assert isinstance(other.found, Met)
        finally:
            for each in strangers:
                each.close()


def test_beyond_the_thousandth_descriptor_hosts_meet_as_well() -> None:
    with many_files():
        held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
        try:
            first = First(1)
            first.other()
            assert isinstance(first.found, Met)
        finally:
            for each in held:
                os.close(each)


@pytest.mark.parametrize(
    ("said", "token"),
    [
        (b"5a" * 32 + b"\n", TOKEN),
        (b"5a" * 32, TOKEN),
        (b"", None),
        (b"5a" * 15, None),
        (b"no token\n", None),
        (b"\xff" * 64, None),
        (b"5a" * 4096, b"\x5a" * 128),  # no more of it is read
    ],
)
def test_a_token_is_one_line_of_hexadecimal(said: bytes, token: bytes | None) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as pipe:
        os.write(writing, said)
        os.close(writing)
        assert rendezvous.read_token(pipe.fileno()) == token
