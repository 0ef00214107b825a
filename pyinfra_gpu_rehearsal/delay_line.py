"""A slow line: a program that passes frames between two interfaces and holds each for a while.

Run as a program (`python delay_line.py FIRST SECOND MS`) in the lab's network namespace, where
the kernel cannot delay packets itself. Standard library only, started by its path.
"""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import time
from collections import deque

# linux/if_ether.h, linux/if_packet.h
ETH_P_ALL = 0x0003
SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23
LONGEST_FRAME = 128 * 1024
MOST_WAITING = 4096  # frames; what comes then is lost, as on a real line


def listen(name: str) -> socket.socket:
    """Return a socket for the frames that come in on interface NAME and go out on it.

    Each has a header that says what is left to be done with it (checksum, cutting into packets):
    between interfaces of one machine such work is put off and must not be forgotten.
    """
    line = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    line.setblocking(False)
    line.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    line.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
    line.bind((name, ETH_P_ALL))
    return line


def take_in(source: socket.socket, waiting: deque[tuple[float, bytes]], delay: float) -> None:
    """Read what has come on SOURCE and note when each frame is due."""
    while True:
        try:
            frame = source.recv(LONGEST_FRAME)
        except OSError:
            return  # nothing more for now, or the interface is down
        if len(waiting) < MOST_WAITING:
            waiting.append((time.monotonic() + delay, frame))


def give_out(target: socket.socket, waiting: deque[tuple[float, bytes]]) -> float:
    """Write the frames that are due to TARGET; return the seconds until the next one is."""
    while waiting:
        rest = waiting[0][0] - time.monotonic()
        if rest > 0:
            return rest
        # Where the interface is down or full the frame is lost, as on a real line.
        with contextlib.suppress(OSError):
            target.send(waiting[0][1])
        waiting.popleft()
    return 60.0


def main() -> int:
    """Pass frames between the two interfaces until ended."""
    first, second = listen(sys.argv[1]), listen(sys.argv[2])
    delay = int(sys.argv[3]) / 1000
    forward: deque[tuple[float, bytes]] = deque()
    backward: deque[tuple[float, bytes]] = deque()
    poll = select.epoll()
    for line in (first, second):
        poll.register(line, select.EPOLLIN)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        wait = min(give_out(second, forward), give_out(first, backward))
        for descriptor, _ in poll.poll(wait):
            if descriptor == first.fileno():
                take_in(first, forward, delay)
            else:
                take_in(second, backward, delay)


if __name__ == "__main__":
    raise SystemExit(main())
