"""The socket under an SSH connection, with real sockets on loopback."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from pyinfra.api.exceptions import ConnectError, PyinfraError
from pyinfra.connectors.ssh import SSHConnector

from pyinfra_gpu.engine import transport


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
    client, peer = pair
    peer.sendall(b"SSH-2.0-x\r\n")
    made = transport.make_transport(client)
    try:
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        milliseconds = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert milliseconds == transport.DEAD_PEER_S * 1000
        assert made.packetizer._Packetizer__keepalive_interval == transport.KEEPALIVE_S  # type: ignore[attr-defined]
    finally:
        made.close()


def test_a_socket_that_is_not_tcp_is_left_alone() -> None:
    first, second = socket.socketpair()
    with first, second:
        transport.make_transport(first).close()


def test_a_host_that_says_nothing_is_given_up(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "GREETING_S", 0.2)
    with pytest.raises(OSError, match="it said nothing for"):
        transport.CONNECT_KWARGS["transport_factory"](pair[0])


def test_an_import_of_our_operations_leaves_pyinfra_as_it_is() -> None:
    """They can be imported into anybody's deploy; what has to be ours is so by the command line."""
    program = """
import importlib, pkgutil
from pyinfra.api import arguments, connectors, facts, operation
from pyinfra.connectors import ssh, sshuserclient
from pyinfra.connectors.ssh import SSHConnector
import sys
order = sys.modules["pyinfra.api.operation"]
def seen():
    return (ssh.SSHClient, sshuserclient.SSHClient, SSHConnector.connect,
            order.pop_global_arguments, facts.pop_global_arguments, arguments.pop_global_arguments,
            order.get_operation_order_from_stack, connectors.get_all_connectors)
before = seen()
import pyinfra_gpu.operations as ours
for each in pkgutil.iter_modules(ours.__path__):
    importlib.import_module(f"{ours.__name__}.{each.name}")
assert seen() == before
from pyinfra_gpu.engine import transport
transport.install()
assert ssh.SSHClient is transport.Client
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)


def test_whatever_pyinfra_does_not_reckon_with_is_one_hosts_failure_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SSHConnector, "connect", transport._connect_or_say_why)
    for error, words in (
        (UnicodeError("label empty\x1b[2J or too long"), "UnicodeError: label empty"),
        (PyinfraError("No such private key file: id"), "Could not connect (No such private key"),
        (ConnectError("SSH error (said \x1b]0;x\x07)"), "SSH error (said "),
        (ConnectError("EOF error ()"), "Could not connect (it hung up before the login)"),
    ):

        def fails(connector: SSHConnector, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(transport, "_connect", fails)
        connector = SSHConnector.__new__(SSHConnector)
        connector.data = {"ssh_config_file": ""}  # type: ignore[assignment,typeddict-item]
        with pytest.raises(ConnectError) as raised:
            connector.connect()
        assert words in str(raised.value)
        assert str(raised.value).isprintable()
