"""SSH servers on loopback that let everybody in, forward connections, and run nothing.

python ssh_server.py: reads lines, each a JSON list of files with private host keys. For each line
it prints the port of one more server that has them; all serve until there are no more lines.
"""

from __future__ import annotations

import json
import socket
import sys
import threading

import paramiko


class Server(paramiko.ServerInterface):
    def __init__(self) -> None:
        self.targets: dict[int, tuple[str, int]] = {}

    def check_auth_none(self, username: str) -> int:
        return paramiko.AUTH_SUCCESSFUL

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return paramiko.AUTH_SUCCESSFUL

    def get_allowed_auths(self, username: str) -> str:
        return "none,publickey"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_direct_tcpip_request(
        self, chanid: int, origin: tuple[str, int], destination: tuple[str, int]
    ) -> int:
        self.targets[chanid] = destination
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Timer(0.05, end, [channel]).start()
        return True


def end(channel: paramiko.Channel) -> None:
    channel.send_exit_status(0)
    channel.close()


def copy(source: object, target: object) -> None:
    while data := source.recv(65536):  # type: ignore[attr-defined]
        target.sendall(data)  # type: ignore[attr-defined]


def serve(connection: socket.socket, keys: list[paramiko.PKey]) -> None:
    transport = paramiko.Transport(connection)
    for key in keys:
        transport.add_server_key(key)
    server = Server()
    try:
        transport.start_server(server=server)
        while transport.is_active():
            channel = transport.accept(0.2)
            if channel is not None and channel.chanid in server.targets:
                onward = socket.create_connection(server.targets[channel.chanid])
                for pair in ((channel, onward), (onward, channel)):
                    threading.Thread(target=copy, args=pair, daemon=True).start()
    except (paramiko.SSHException, OSError, EOFError):
        pass  # who does not like our key goes away
    finally:
        transport.close()


def listen(listening: socket.socket, keys: list[paramiko.PKey]) -> None:
    while True:
        connection, _ = listening.accept()
        threading.Thread(target=serve, args=(connection, keys), daemon=True).start()


def main() -> None:
    for line in sys.stdin:
        keys = [paramiko.PKey.from_path(file) for file in json.loads(line)]
        listening = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=listen, args=(listening, keys), daemon=True).start()
        print(listening.getsockname()[1], flush=True)


if __name__ == "__main__":
    main()
