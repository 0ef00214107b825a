"""A port forward: a port of this machine that leads to a host in a user's network namespace.

Run as a program (`python port_forward.py PORT TARGET-PID ADDRESS ADDRESS-PORT`). It listens on
127.0.0.1:PORT here, then enters the namespaces of process TARGET-PID and passes every connection
on to ADDRESS from there. Standard library only, started by its path.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys

CHUNK = 65536


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until one side ends, then end the other."""
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.close()


def _without_delay(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def _serve(listener: socket.socket, address: str, port: int) -> None:
    async def enter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(address, port)
        except OSError:
            writer.close()
            return
        _without_delay(writer)
        _without_delay(far_writer)
        await asyncio.gather(_pass_on(reader, far_writer), _pass_on(far_reader, writer))
        writer.close()
        far_writer.close()

    server = await asyncio.start_server(enter, sock=listener)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    async with server:
        await server.serve_forever()


def main() -> int:
    """Listen, or serve what was listened on before the namespaces were entered."""
    first, target, address, port = sys.argv[1:]
    if target != "inside":
        listener = socket.create_server(("127.0.0.1", int(first)))
        listener.set_inheritable(True)
        descriptor = str(listener.fileno())
        enter = ["nsenter", f"--target={target}", "--user", "--net", "--"]
        again = [sys.executable, "-I", __file__, descriptor, "inside", address, port]
        os.execvp(enter[0], [*enter, *again])  # noqa: S606 - becomes that program for good
    listener = socket.socket(fileno=int(first))
    listener.setblocking(False)
    asyncio.run(_serve(listener, address, int(port)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
