"""One look per host and phase: the record every operation reads.

pyinfra 3 runs a fact's command each time it is asked. Our record is asked for by every operation,
so it is kept here, for one host and one phase, and dropped as soon as one of our operations hands
pyinfra a command: what a command did must be seen, never assumed. Planning and acting are two
phases where a person is asked between them, and one where nobody is (`-y`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyinfra import host, state
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.host import Host
from pyinfra.api.state import State
from pyinfra.connectors import util as connectors
from pyinfra.context import ctx_host

from pyinfra_gpu.diagnosis.command import explain_lines
from pyinfra_gpu.engine.ask import Answer, TooMuchError, abandon, run
from pyinfra_gpu.engine.deadlines import within
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.facts.parse import Answer as Reported
from pyinfra_gpu.facts.probe import COMMAND, asked_by
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host import probe_program
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stages.packages.findings import needed
from pyinfra_gpu.text import shortened

LONGEST_ANSWER = 2 << 20  # bytes that a look may bring; a host with all there is has a quarter
_LONGEST_REASON = 200  # characters
_GRACE_S = 5  # so that it is the deadline of the whole look that ends it
_KEY = "pyinfra_gpu_look"  # in connector_data, pyinfra's own of this host: (phase, what was seen)
_MACHINE = "pyinfra_gpu_machine"  # likewise: its boot and its own name
_FORGOTTEN = object()  # a phase that none is
_WANTS_PASSWORD = "sudo asks for a password there: run with --same-sudo-password"  # noqa: S105 - none
_BY_HAND = "log in there by hand (`ssh HOST`) and see"


@dataclass(frozen=True, kw_only=True, slots=True)
class Unanswered:
    """A look that was not answered: why, whether the host was reached at all, and has a Python."""

    reason: str
    unreachable: bool = False
    no_python: bool = False


def look(spec: HostSpec) -> Record | None:
    """Return what this host looks like now, with at most one SSH channel per phase.

    + spec: says which paths and packages to look at

    None when the host did not answer; the caller must refuse it then, and say `unanswered()`.
    """
    phase = state.current_stage if state.check_for_changes else None
    if host.connector_data.get(_KEY, (_FORGOTTEN,))[0] != phase:
        seen = answer(state, state.inventory.get_host(host.name), spec)
        host.connector_data[_KEY] = (phase, seen)
    return last_seen()


def last_seen() -> Record | None:
    """Return what this host's last look brought, from whichever phase; None if nothing."""
    seen = _last()
    return None if isinstance(seen, Unanswered) else seen


def last_of(other: Host) -> Record | None:
    """Return what the last look at another host of the run brought; None if nothing."""
    seen = other.connector_data.get(_KEY, (None, None))[1]
    return seen if isinstance(seen, Record) else None


def unanswered() -> str:
    """Return why this host's last look brought nothing, and what helps: a clause."""
    seen = _last()
    return seen.reason if isinstance(seen, Unanswered) else "could not be looked at"


def lacks_python() -> bool:
    """Return whether this host's last look brought nothing since it has no Python."""
    seen = _last()
    return isinstance(seen, Unanswered) and seen.no_python


def _last() -> Record | Unanswered | None:
    known = ctx_host.isset()  # type: ignore[no-untyped-call]
    return host.connector_data.get(_KEY, (None, None))[1] if known else None


def forget() -> None:
    """Have the next `look` ask the host again."""
    host.connector_data[_KEY] = (_FORGOTTEN, _last())


def request_text(spec: HostSpec) -> str:
    """Return the program of a look, as it goes to a host's standard input."""
    return probe_program("look", asked_by(spec, packages=needed(spec)))


def answer(state: State, host: Host, spec: HostSpec) -> Record | Unanswered:
    """Connect to a host if need be, look at it once, and return what was seen or why nothing was.

    All of that has to be done within the host's ``look_timeout_s``. Nothing is logged. Of a machine
    that the run has under two names the second one is not answered for.
    """
    text, seconds = request_text(spec), spec.look_timeout_s
    said = reach(state, host, COMMAND, as_root(spec), seconds=seconds, _stdin=text)
    if isinstance(said, Unanswered):
        return said
    if not said.ok:
        return Unanswered(reason=f"could not be looked at: {_why(said.lines)}")
    reported = Reported(said.stdout)
    if reported.problem:
        why = shortened(reported.problem, _LONGEST_REASON)
        return Unanswered(reason=f"could not be looked at: {why}", no_python=not reported.python)
    record = reported.record()
    machine = (record.system.boot_id, record.system.hostname)
    if all(isinstance(each, str) for each in machine):
        there = (x.name for x in state.inventory if x.connector_data.get(_MACHINE) == machine)
        if (name := next(there, host.name)) != host.name:
            return Unanswered(reason=f"is the same machine as {name}: declare it by one name")
        host.connector_data[_MACHINE] = machine
    return record


def reach(
    state: State,
    host: Host,
    command: str,
    run_as: dict[str, Any],
    *,
    seconds: float,
    **arguments: Any,
) -> Answer | Unanswered:
    """Connect to a host if need be, run a command there, and return its answer or why none came.

    + seconds: for all of that; the others are as in `ask.run`
    """
    reached = host.connected
    try:
        with within(seconds, "no answer came"):
            if not reached:
                host.connect(show_errors=False, raise_exceptions=True)
                reached = True
            return run(
                *(state, host, command, run_as),
                seconds=seconds + _GRACE_S,
                most=LONGEST_ANSWER,
                **arguments,
            )
    except TimeoutError as error:
        abandon(host)  # whatever is still on its way has nobody to come to
        return Unanswered(reason=f"could not be looked at: {error}", unreachable=not reached)
    except ConnectError as error:
        return Unanswered(reason=str(error), unreachable=True)
    except EOFError:
        return Unanswered(reason=f"could not be looked at: {_WANTS_PASSWORD}")
    except TooMuchError as error:
        return Unanswered(reason=f"could not be looked at: {error}")
    except OSError as error:
        return Unanswered(reason=f"the connection was lost ({error})")


def _why(lines: Sequence[str]) -> str:
    """Return why a look failed that printed these lines, and what helps."""
    said = [line for line in lines if line.strip()]
    if not said:
        return f"the login shell ended without a word; {_BY_HAND} whether it runs a command"
    if explained := explain_lines(said):
        return explained
    # A shell that does not know ours marks the place in its last line.
    words = next((line for line in reversed(said) if re.search(r"[A-Za-z]{3}", line)), said[-1])
    return (
        f"{shortened(words, _LONGEST_REASON)}; {_BY_HAND} whether it runs a command and sudo; for"
        " a sudo password run pyinfra with --same-sudo-password, without sudo declare"
        ' `privilege = "none"`'
    )


@contextmanager
def never_asking() -> Iterator[None]:
    """Keep pyinfra from asking the person at the terminal for anything, unseen.

    It asks for a password of sudo's by `getpass`, which opens the terminal itself, and for what a
    connection needs on standard input. Both end in EOFError here.
    """

    def refuse(prompt: str = "") -> str:
        raise EOFError(prompt)

    kept = connectors.getpass, sys.stdin
    with Path(os.devnull).open() as nothing:
        connectors.getpass, sys.stdin = refuse, nothing  # type: ignore[assignment]
        try:
            yield
        finally:
            connectors.getpass, sys.stdin = kept
