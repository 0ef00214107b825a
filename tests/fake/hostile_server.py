"""SSH servers on loopback, one for each way to be a bad host, and one that is good.

    python hostile_server.py ANSWERS KIND ...

ANSWERS is a JSON file: what a look of a host brings, by its name. Prints a port for each kind, and
serves until its standard input ends. A process of its own, so that what it does to a controller is
not done to itself.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paramiko
from paramiko.common import cMSG_CHANNEL_DATA

FOREVER_S = 3600.0
KEY = paramiko.ECDSAKey.generate()
Answers = dict[str, list[str]]


def _flood(say: Callable[[bytes], Any], what: bytes) -> None:
    """Say it again and again, until nobody listens any more."""
    try:
        while True:
            say(what)
    except (OSError, EOFError, paramiko.SSHException):
        return


def _stubborn(channel: paramiko.Channel, what: bytes) -> None:
    """Send data without a look at how much of it the other side takes."""
    message = paramiko.Message()
    message.add_byte(cMSG_CHANNEL_DATA)
    message.add_int(channel.remote_chanid)
    message.add_string(what)
    channel.transport._send_user_message(message)
    if not channel.transport.is_active():
        raise EOFError


def _answer(channel: paramiko.Channel, lines: list[str], *, status: int | None = 0) -> None:
    while channel.recv(65536):  # all of the look before any of the answer
        pass
    channel.sendall(("\n".join(lines) + "\n").encode("utf-8", "surrogateescape"))
    if status is None:
        channel.shutdown_write()
        time.sleep(FOREVER_S)
    channel.send_exit_status(status or 0)
    channel.close()


def _ended(channel: paramiko.Channel, seconds: float) -> None:
    """End, and send the rest of what was printed so much later, as a busy host does."""
    channel.sendall(b"done\n")
    channel.send_exit_status(0)
    time.sleep(seconds)
    channel.sendall(b"late\n")
    channel.close()


def _with(lines: list[str], **facts: object) -> list[str]:
    """Return an answer with other facts, whose names have a _ in the place of their dot."""
    reported = json.loads(lines[1]) | {
        name.replace("_", ".", 1): each for name, each in facts.items()
    }
    return [lines[0], json.dumps(reported, ensure_ascii=False), *lines[2:]]


_DEEP = "[" * 60_000
_TITLE = "\x1b]0;owned\x07\x1b[2J\x1b[31mDebian\u202e"

CONTENT: dict[str, Callable[[Answers], list[str]]] = {
    "good": lambda answers: answers["good"],
    "deep": lambda answers: _with(answers["good"], smoke_stamp=_DEEP, smoke_verdict=_DEEP),
    "escapes": lambda answers: _with(
        answers["good"], system_os_name=_TITLE, packages_lock_holder="\x1b[8mpid 1"
    ),
    "another host's": lambda answers: answers["other"],
}
"""What a look brings that ends as it should."""

COMMAND: dict[str, Callable[[paramiko.Channel, Answers], None]] = {
    "never answers": lambda channel, answers: time.sleep(FOREVER_S),
    "never ends": lambda channel, answers: _answer(channel, answers["good"], status=None),
    "holds on": lambda channel, answers: _ended(channel, FOREVER_S),
    "late": lambda channel, answers: _ended(channel, 3.0),
    "endless lines": lambda channel, answers: _flood(channel.sendall, b"x" * 99 + b"\n"),
    "endless errors": lambda channel, answers: _flood(channel.sendall_stderr, b"x" * 99 + b"\n"),
    "more than it may": lambda channel, answers: _flood(
        lambda what: _stubborn(channel, what), b"x" * 30_000
    ),
    "closes in the middle": lambda channel, answers: (
        channel.sendall("\n".join(answers["good"])[:900].encode()),
        channel.transport.close(),
    )[-1],
}
"""What a host does with the command of a look."""


def _farewell(reason: bytes) -> bytes:
    """Return a greeting, and SSH_MSG_DISCONNECT with a reason, as bytes before any encryption."""
    payload = b"\x01" + struct.pack(">II", 2, len(reason)) + reason + struct.pack(">I", 0)
    padding = 16 - (5 + len(payload)) % 8
    length = struct.pack(">IB", 1 + len(payload) + padding, padding)
    return b"SSH-2.0-x\r\n" + length + payload + bytes(padding)


_IGNORED = struct.pack(">IBBI", 12, 6, 2, 0) + bytes(6)
"""SSH_MSG_IGNORE, before any encryption."""


def _says(peer: socket.socket, what: bytes) -> None:
    peer.sendall(what)
    time.sleep(FOREVER_S)


BARE: dict[str, Callable[[socket.socket], None]] = {
    "silent": lambda peer: time.sleep(FOREVER_S),
    "endless greeting": lambda peer: _flood(peer.sendall, b"A" * 4096),
    "hangs up": lambda peer: peer.close(),
    "escapes in its farewell": lambda peer: _says(peer, _farewell(b"\x1b]0;owned\x07")),
    "floods behind its greeting": lambda peer: _flood(
        lambda what: peer.sendall(what), b"SSH-2.0-x\r\n" + _IGNORED * 10_000
    ),
    "drops before the login": lambda peer: (peer.sendall(b"SSH-2.0-x\r\n"), peer.close())[-1],
}
"""What listens on a port, and is no SSH server at all."""


class _Server(paramiko.ServerInterface):
    """Lets everybody in."""

    def __init__(self, kind: str, answers: Answers) -> None:
        self._kind, self._answers = kind, answers

    def get_allowed_auths(self, username: str) -> str:
        return "password"

    def check_auth_password(self, username: str, password: str) -> int:
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        if self._kind == "never opens a channel":
            time.sleep(FOREVER_S)
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        if self._kind == "never takes a command":
            time.sleep(FOREVER_S)
        threading.Thread(target=self._serve, args=(channel,), daemon=True).start()
        return True

    def _serve(self, channel: paramiko.Channel) -> None:
        time.sleep(0.05)  # until the answer to the request has gone
        try:
            if self._kind in CONTENT:
                _answer(channel, CONTENT[self._kind](self._answers))
            else:
                COMMAND[self._kind](channel, self._answers)
        except (OSError, EOFError, paramiko.SSHException):
            return


def _connection(peer: socket.socket, kind: str, answers: Answers) -> None:
    if kind in BARE:
        BARE[kind](peer)
        return
    transport = paramiko.Transport(peer)
    transport.add_server_key(KEY)
    try:
        transport.start_server(server=_Server(kind, answers))
    except (OSError, EOFError, paramiko.SSHException):
        return


def _listen(listener: socket.socket, kind: str, answers: Answers) -> None:
    kept = []
    while True:
        peer, _ = listener.accept()
        kept.append(peer)
        threading.Thread(target=_connection, args=(peer, kind, answers), daemon=True).start()


def main() -> None:
    """Serve one port for each kind."""
    answers = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for kind in sys.argv[2:]:
        listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=_listen, args=(listener, kind, answers), daemon=True).start()
        print(listener.getsockname()[1], flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
