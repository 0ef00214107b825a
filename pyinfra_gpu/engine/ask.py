"""Asking a host something in the middle of an operation, and having the answer to judge."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import gevent  # type: ignore[import-untyped]  # it has none; pyinfra's own event loop
from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from pyinfra_gpu.engine import wire

_TOLD_S = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a command said.

    + ok: whether it ended with 0
    + stdout: its lines; lines: those of both channels
    + late, lost: whether it took too long, or the connection broke; the one line says so then
    """

    ok: bool
    stdout: tuple[str, ...]
    lines: tuple[str, ...]
    late: bool = False
    lost: bool = False


def ask(
    state: State,
    host: Host,
    command: str | StringCommand,
    run_as: dict[str, Any],
    *,
    seconds: float,
    what: str | None = None,
    stream: bool = False,
    **arguments: Any,
) -> Answer:
    """Run a shell command on the host, inside a FunctionCommand, and return what it said.

    + what: what it does; told now, and every half minute while it lasts
    + the others: as in `wire.run`; most often one of `deadlines` as seconds

    A connection that breaks, and a host that does not answer in time, is an answer that is not ok.
    """
    teller = gevent.spawn(_tell, host, what) if what else None
    try:
        ok, output = wire.run(
            state, host, command, run_as, seconds=seconds, show=stream, **arguments
        )
    except TimeoutError as error:
        return Answer(ok=False, stdout=(), lines=(str(error),), late=True)
    except Exception as error:  # whatever the transport raises when the peer is gone
        text = f"the connection was lost ({error!r})"
        return Answer(ok=False, stdout=(), lines=(text,), lost=True)
    finally:
        if teller is not None:
            teller.kill(block=False)
    return Answer(ok=ok, stdout=tuple(output.stdout_lines), lines=tuple(output.output_lines))


def _tell(host: Host, what: str) -> None:
    """Say that a long command is alive: its own output is for errors."""
    started = time.monotonic()
    host.log(f"{what} ...")
    while True:
        gevent.sleep(_TOLD_S)
        host.log(f"{what}: {time.monotonic() - started:.0f} s")
