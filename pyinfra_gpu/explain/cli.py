"""The command `explain`."""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from dataclasses import dataclass
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, cast

import click

from pyinfra_gpu.diagnosis.catalogue import catalogue
from pyinfra_gpu.on_host.diagnosis import writing
from pyinfra_gpu.on_host.diagnosis.explain import explain
from pyinfra_gpu.output import show
from pyinfra_gpu.text import draws

EXPLAINED, MISTAKE, UNEXPLAINED = 0, 1, 2
HEAD, TAIL = 1 << 20, 7 << 20  # bytes kept of a longer log: the cause is near one of its ends
LARGEST = 4 << 30  # bytes read at all, unpacked
_BLOCK = 1 << 20
_LOOKED_AT, _MOST_ODD = 4096, 0.3  # characters; the share of control characters in no text
_STDIN = "standard input"


class MistakeError(Exception):
    """What was typed cannot be done; the message is a sentence."""


@dataclass(frozen=True)
class Log:
    """A log's text.

    + unread: which part of it was not read, a sentence; empty if all was
    """

    text: str
    unread: str = ""


@click.command(
    "explain",
    epilog="exit code: 0 explained; 2 nothing known explains it; 1 a log could not be read.",
    options_metavar="[--json]",
)
@click.argument("names", metavar="[LOG ...] [INVENTORY]", nargs=-1, type=click.Path())
@click.option("--limit", metavar="HOST", help="the host of the inventory on which the run failed")
@click.option("--same-sudo-password", is_flag=True, help="ask for the host's sudo password")
@click.option("--json", "as_json", is_flag=True, help="print one JSON document")
def command(names: tuple[str, ...], limit: str, same_sudo_password: bool, as_json: bool) -> int:
    """Explain why a run failed, from its log and its host.

    Reads the logs of a failed run (torchrun's output, a rank's log, the kernel's log, an
    installer's output) and says what failed, why, and what to do. Without a LOG, or for -, it reads
    standard input. With an INVENTORY, the last word if it ends with .py or --limit is given, it
    looks at the run's host as well, read-only, and decides by what it shows.
    """
    inventory = ""
    if names and (limit or names[-1].endswith(".py")):
        *names, inventory = names  # type: ignore[assignment]
    try:
        logs = {_STDIN if name == "-" else name: _log(name) for name in names or ["-"]}
        facts = _facts(inventory, limit, ask=same_sudo_password) if inventory else None
    except MistakeError as error:
        print(f"pyinfra-gpu explain: {error}", file=sys.stderr)
        return MISTAKE
    answer = explain({name: log.text for name, log in logs.items()}, catalogue(), facts)
    unread = {name: log.unread for name, log in logs.items() if log.unread}
    if as_json:
        text = json.dumps({**answer.as_json(), "unread": unread}, indent=2)
    else:
        notes = [f"{name}: {what}" for name, what in unread.items()]
        shown = writing.lines(answer, colour=draws(sys.stdout))
        text = "\n".join([*shown, *([""] if notes else []), *notes])
    return show(text, "explain") or (EXPLAINED if answer.found else UNEXPLAINED)


def _log(name: str) -> Log:
    shown = _STDIN if name == "-" else name
    try:
        if name != "-":
            with Path(name).open("rb") as file:
                return read_log(file)
        if sys.stdin is None:
            raise MistakeError(f"{_STDIN} is closed: name a LOG")
        if sys.stdin.isatty():
            print("paste the log here, then press Ctrl-D on a line of its own:", file=sys.stderr)
        return read_log(sys.stdin.buffer)
    except ValueError as error:
        raise MistakeError(f"{shown} {error}") from None
    except OSError as error:
        raise MistakeError(f"{shown} cannot be read: {error.strerror}") from None


def read_log(stream: BinaryIO) -> Log:
    """Return the log in `stream`, packed with gzip or not; of a long one its head and tail.

    Raises ValueError if it is in another form, damaged at its start or far too long.
    """
    plain = BufferedReader(cast(Any, stream))
    packed = plain.peek(2).startswith(b"\x1f\x8b")
    blocks: BinaryIO = cast(Any, gzip.GzipFile(fileobj=plain) if packed else plain)
    head, tail, length, unread = b"", b"", 0, []
    try:
        while block := blocks.read1(_BLOCK):  # type: ignore[attr-defined]
            length += len(block)
            if length > LARGEST:
                raise ValueError(f"is longer than {LARGEST >> 30} GiB: give a part of it")
            room = HEAD - len(head)
            head += block[:room]
            tail = (tail + block[room:])[-TAIL:]
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        if not head:
            raise ValueError(f"is damaged: {error}") from None
        unread.append(f"what follows the first {length} bytes, which is damaged ({error})")
    plain.detach()
    text = (head + tail).decode("utf-8", "replace")
    if (middle := length - HEAD - TAIL) > 0:  # a character may have been cut in two
        text = f"{head.decode('utf-8', 'ignore')}\n{tail.decode('utf-8', 'ignore')}"
        unread.insert(0, f"of its {length / 2**20:.0f} MiB the middle {middle / 2**20:.0f} MiB")
    start = text[:_LOOKED_AT]
    odd = sum(each == "\ufffd" or (each < " " and each not in "\t\n\r\x1b") for each in start)
    if odd > _MOST_ODD * len(start):
        raise ValueError("is not a text: unpack it (gzip is read as it is), or give the output")
    return Log(text.removeprefix("\ufeff"), f"Not read: {' and '.join(unread)}." if unread else "")


def _facts(inventory: str, name: str, *, ask: bool) -> dict[str, str] | None:
    """Look at the host once; None, and why on standard error, where it does not answer."""
    from getpass import getpass

    from pyinfra_gpu.diagnosis.host_facts import facts_of
    from pyinfra_gpu.engine.look import Unanswered
    from pyinfra_gpu.report.check.running import Request, known, probed, visit

    password = getpass("sudo password: ") if ask else None
    limit = (name,) if name else ()
    request = Request(inventory=inventory, limit=limit, sudo_password=password)
    hosts = [*known(request)[1]]
    if len(hosts) > 1:
        example = f"such as --limit {hosts[0]}"
        raise MistakeError(f"{inventory} has {len(hosts)} hosts: name one with --limit, {example}")
    seen: list[dict[str, str] | Unanswered] = []
    look = partial(probed, use=lambda spec, record: facts_of(record))
    _, reasons = visit(request, look, lambda found, names: seen.append(found))
    if reasons or not seen:
        raise MistakeError("; ".join(reasons) or f"{inventory} has no such host")
    if not isinstance(seen[0], Unanswered):
        return seen[0]
    print(f"{hosts[0]} {seen[0].reason}; this is explained by the log alone", file=sys.stderr)
    return None
