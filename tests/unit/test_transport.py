"""The socket under an SSH connection, with real sockets on loopback."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import gevent
import paramiko
import pytest
from pyinfra.api.exceptions import ConnectError, PyinfraError
from pyinfra.connectors.ssh import SSHConnector

from pyinfra_gpu.engine import connection, login, transport, turns
from pyinfra_gpu.engine.turns import LOGINS
from pyinfra_gpu.engine.wire import within


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        peer, _ = server.accept()
        with client, peer:
            yield client, peer


def test_nagle_is_off_and_a_dead_peer_is_noticed(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    client, _ = pair
    made = connection.make_transport(client)
    try:
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        milliseconds = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert milliseconds == connection.DEAD_PEER_S * 1000
        assert made.packetizer._Packetizer__keepalive_interval == connection.KEEPALIVE_S  # type: ignore[attr-defined]
    finally:
        made.close()


def test_a_socket_that_is_not_tcp_is_left_alone() -> None:
    first, second = socket.socketpair()
    with first, second:
        connection.make_transport(first).close()


def test_it_can_be_handed_to_pyinfra_as_inventory_data() -> None:
    factory = transport.connect_kwargs(logins=3)["transport_factory"]
    assert factory.func is connection.make_transport
    assert factory.keywords["turns"].number == 3
    assert transport.CONNECT_KWARGS["transport_factory"].keywords["turns"].number == LOGINS


@pytest.fixture
def one_at_a_time() -> Callable[[socket.socket], paramiko.Transport]:
    factory: Callable[[socket.socket], paramiko.Transport]
    factory = transport.connect_kwargs(logins=1)["transport_factory"]
    return factory


def test_a_host_that_says_nothing_takes_no_turn_and_is_given_up(
    pair: tuple[socket.socket, socket.socket],
    one_at_a_time: Callable[[socket.socket], paramiko.Transport],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "GREETING_S", 0.2)
    client, _ = pair
    with pytest.raises(OSError, match="it said nothing for"):
        one_at_a_time(client)


def test_the_next_host_logs_in_when_the_connection_of_the_one_before_ends(
    pair: tuple[socket.socket, socket.socket],
    one_at_a_time: Callable[[socket.socket], paramiko.Transport],
) -> None:
    client, peer = pair
    peer.sendall(b"SSH-2.0-x\r\n")
    first = one_at_a_time(client)
    second = gevent.spawn(one_at_a_time, client)
    gevent.sleep(0.05)
    assert turns.is_waiting(second)
    first.sock.close()
    second.get(timeout=0.5).close()
    assert not turns.is_waiting(second)


def test_a_turn_that_lasts_too_long_is_another_hosts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LONGEST_S", 0.1)
    few = turns.Turns(1)
    few.take()
    second = gevent.spawn(few.take).get(timeout=0.5)
    second.end()
    second.end()
    gevent.sleep(0.15)
    held = few.take()  # of one: neither end was counted twice
    third = gevent.spawn(few.take)
    gevent.sleep(0.02)
    assert turns.is_waiting(third)
    held.end()
    third.get(timeout=0.5).end()


def test_the_time_until_its_turn_is_not_counted_against_a_host() -> None:
    few = turns.Turns(1)
    held = few.take()
    gevent.spawn_later(0.3, held.end)
    with within(0.1, "no answer came"):
        few.take().end()
    with pytest.raises(TimeoutError), within(0.1, "no answer came"):
        gevent.sleep(0.3)


def test_all_hosts_are_connected_to_at_once_as_far_as_files_can_be_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = [256, 4096]

    def raised(_: int, given: tuple[int, int]) -> None:
        limits[:] = given

    monkeypatch.setattr(turns.resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(turns.resource, "setrlimit", raised)
    assert turns.at_once(25) == 25
    assert limits == [256, 4096]
    assert turns.at_once(500) == 500
    assert limits == [1600, 4096]
    assert 1000 < turns.at_once(5000) < 4096 / 2
    assert limits == [4096, 4096]
    assert gevent.get_hub().threadpool.maxsize >= 100


def test_whatever_pyinfra_does_not_reckon_with_is_one_hosts_failure_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for error, words in (
        (UnicodeError("label empty\x1b[2J or too long"), "UnicodeError: label empty"),
        (PyinfraError("No such private key file: id"), "Could not connect (No such private key"),
        (ConnectError("SSH error (said \x1b]0;x\x07)"), "SSH error (said "),
        (ConnectError("EOF error ()"), "Could not connect (it hung up before the login)"),
    ):

        def fails(connector: SSHConnector, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(login, "_connect", fails)
        connector = SSHConnector.__new__(SSHConnector)
        connector.data = {"ssh_config_file": ""}  # type: ignore[assignment,typeddict-item]
        with pytest.raises(ConnectError) as raised:
            connector.connect()
        assert words in str(raised.value)
        assert str(raised.value).isprintable()
