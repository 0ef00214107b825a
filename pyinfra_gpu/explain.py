"""The command `explain`."""

from __future__ import annotations

import json
import sys
from getpass import getpass

import click

from pyinfra_gpu.diagnosis.catalogue import catalogue
from pyinfra_gpu.on_host.diagnosis import writing
from pyinfra_gpu.on_host.diagnosis.explain import explain
from pyinfra_gpu.output import show
from pyinfra_gpu.text import draws

HEAD, TAIL = 1 << 20, 7 << 20  # bytes kept of a longer log: the cause is near one of its ends
_MIB = 1 << 20
_START, _MOST_ODD = 4096, 0.3  # characters; the share of control characters in no text
_STDIN = "standard input"


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
    logs = {_STDIN if name == "-" else name: _log(name) for name in names or ["-"]}
    facts = _facts(inventory, limit, ask_password=same_sudo_password) if inventory else None
    answer = explain({name: text for name, (text, _) in logs.items()}, catalogue(), facts)
    unread = {name: left_out for name, (_, left_out) in logs.items() if left_out}
    if as_json:
        text = json.dumps({**answer.as_json(), "unread": unread}, indent=2)
    else:
        notes = [f"{name}: {left_out}" for name, left_out in unread.items()]
        shown = writing.lines(answer, colour=draws(sys.stdout))
        text = "\n".join([*shown, *([""] if notes else []), *notes])
    return show(text) or (0 if answer.found else 2)


def _log(name: str) -> tuple[str, str]:
    """Return a log's text, of a long one its head and tail, and a sentence on what is left out."""
    shown, length, tail = _STDIN if name == "-" else name, 0, b""
    if name == "-" and sys.stdin is None:
        raise click.ClickException(f"{_STDIN} is closed: name a LOG")
    if name == "-" and sys.stdin.isatty():
        click.echo("paste the log here, then press Ctrl-D on a line of its own:", err=True)
    try:
        with click.open_file(name, "rb") as file:
            head = file.read(HEAD)
            while block := file.read(_MIB):
                tail, length = (tail + block)[-TAIL:], length + len(block)
    except OSError as error:
        raise click.ClickException(f"{shown} cannot be read: {error.strerror}") from None
    middle = length - len(tail)
    joint = b"\n" if middle else b""
    text = (head + joint + tail).decode("utf-8", "replace").removeprefix("\ufeff")
    start = text[:_START]
    odd = sum(each == "\ufffd" or (each < " " and each not in "\t\n\r\x1b") for each in start)
    if odd > _MOST_ODD * len(start):
        raise click.ClickException(f"{shown} is not a text: unpack it, such as with `zcat`")
    size = f"its {(len(head) + length) / _MIB:.0f} MiB the middle {middle / _MIB:.0f} MiB"
    return text, f"Not read: of {size}." if middle else ""


def _facts(inventory: str, name: str, *, ask_password: bool) -> dict[str, str] | None:
    """Look at the host once; None, and why on standard error, where it does not answer."""
    from pyinfra_gpu.diagnosis.host_facts import facts_of
    from pyinfra_gpu.engine.look import Unanswered, answer
    from pyinfra_gpu.report.check.running import Request, ask, known

    password = getpass("sudo password: ") if ask_password else None
    limit = (name,) if name else ()
    request = Request(inventory=inventory, limit=limit, sudo_password=password)
    hosts = [*known(request)[1]]
    if len(hosts) > 1:
        which = f"name one with --limit, such as --limit {hosts[0]}"
        raise click.ClickException(f"{inventory} has {len(hosts)} hosts: {which}")
    answers, reasons = ask(request, answer)
    if reasons:
        raise click.ClickException("; ".join(reasons))
    (seen,) = answers.values()
    if not isinstance(seen, Unanswered):
        return facts_of(seen)
    click.echo(f"{hosts[0]} {seen.reason}; this is explained by the log alone", err=True)
    return None
