"""The socket under an SSH connection, with real sockets on loopback."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from pyinfra_gpu.engine import connection, transport


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
    assert {"transport_factory": connection.make_transport} == transport.CONNECT_KWARGS
