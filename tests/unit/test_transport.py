"""Connections of our kind: their sockets, what is said where they fail, any login shell."""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys

import pytest
from pyinfra.api.exceptions import ConnectError, PyinfraError
from pyinfra.connectors.ssh import SSHConnector

from pyinfra_gpu.engine import transport
from pyinfra_gpu.engine.transport import one_line


def test_nagle_is_off_and_a_dead_peer_is_noticed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
    made = transport.make_transport(client)
    assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    milliseconds = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert milliseconds == transport.DEAD_PEER_S * 1000
    assert made.packetizer._Packetizer__keepalive_interval == transport.KEEPALIVE_S  # type: ignore[attr-defined]
    made.close()


def test_an_import_of_our_operations_leaves_pyinfra_as_it_is() -> None:
    """They can be imported into anybody's deploy; what has to be ours is so by the command line."""
    program = """
import pyinfra
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
assert seen() == before
from pyinfra_gpu.engine import transport
transport.install()
assert ssh.SSHClient is transport.Client
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)


FAILURES = [
    (UnicodeError("label empty\x1b[2J or too long"), "UnicodeError: label empty"),
    (PyinfraError("No such private key file: id"), "could not be reached: No such private key"),
    (ConnectError("SSH error (said \x1b]0;x\x07)"), "could not be reached: said"),
    (ConnectError("EOF error ()"), "could not be reached: it hung up before the login"),
]


@pytest.mark.parametrize(("error", "words"), FAILURES)
def test_whatever_pyinfra_does_not_reckon_with_is_one_hosts_failure_in_one_line(
    error: Exception, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(connector: SSHConnector) -> None:
        raise error

    monkeypatch.setattr(transport, "_connect", fails)
    connector = SSHConnector.__new__(SSHConnector)
    with pytest.raises(ConnectError) as raised:
        transport._connect_or_say_why(connector)
    assert words in str(raised.value)
    assert str(raised.value).isprintable()


COMMANDS = {
    "lines": ("echo one\necho two", "one\ntwo\n"),
    "quotes": (f"sh -c {shlex.quote('echo one' + chr(10) + 'echo its')}", "one\nits\n"),
    "a single quote": ('echo "it\'s"\ntrue', "it's\n"),
    "backslashes": ("printf '%s\\n' 'a\\nb\\\\c' '\\047'\n:", "a\\nb\\\\c\n\\047\n"),
    "an exclamation mark": ("[ ! -e /dev/null/x ] && echo 'no!such'", "no!such\n"),
    "other characters": ("echo 'caf\xe9 %s $HOME `x` $(y)'\n:", "caf\xe9 %s $HOME `x` $(y)\n"),
    "standard input": ('read -r line\necho "<$line>"', "<typed>\n"),
}


@pytest.mark.parametrize("shell", ["bash", "rbash", "dash", "busybox sh", "zsh", "fish", "tcsh"])
@pytest.mark.parametrize("name", COMMANDS)
def test_every_login_shell_runs_a_command_as_it_stands(name: str, shell: str) -> None:
    command, printed = COMMANDS[name]
    ran = subprocess.run(
        [*shell.split(), "-c", one_line(f"{command}\nexit 7")],
        input="typed\n", capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert (ran.stdout, ran.stderr, ran.returncode) == (printed, "", 7)
