"""One look per host and phase: the record every operation reads.

pyinfra 3 runs a fact's command each time it is asked. Our record is asked for by every operation,
so it is kept here, for one host and one phase (prepare or execute), and dropped as soon as one of
our operations hands pyinfra a command: what a command did must be seen, never assumed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyinfra import host, logger, state
from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS, pop_global_arguments
from pyinfra.api.exceptions import ConnectError
from pyinfra.connectors import util as connectors

from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.facts.probe import ProbeRequest, text_of
from pyinfra_gpu.facts.record import Record, RecordFact
from pyinfra_gpu.packages.needed import needed

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.spec import HostSpec

_KEY = "pyinfra_gpu_record"  # connector_data is pyinfra's own per-host scratch space
_WANTS_PASSWORD = "sudo asks for a password there: run with --same-sudo-password"  # noqa: S105 - none
# What pyinfra makes of an error while it connects: "Could not connect ([Errno 111] ...)".
_CONNECTING = re.compile(
    r"(?:Could not connect|Authentication error|SSH error) \((?:\[Errno \S+\] )?(.*)\)"
)


def look(spec: HostSpec) -> Record | None:
    """Return what this host looks like now, with at most one SSH channel per phase.

    + spec: says which paths and packages to look at

    None when the host did not answer; pyinfra has then logged why, and the caller must refuse.
    """
    phase = state.current_stage
    memo = host.connector_data.get(_KEY)
    if memo is not None and memo[0] == phase:
        record: Record = memo[1]
        return record
    try:
        fresh = host.get_fact(
            RecordFact, _stdin=_request(spec), _ignore_errors=True, **as_root(spec)
        )
    except EOFError:  # pyinfra asks for a sudo password, and there is no terminal to ask at
        host.log_styled("sudo asks for a password there", fg="red", log_func=logger.error)
        return None
    if fresh is not None:
        host.connector_data[_KEY] = (phase, fresh)
    return fresh


def _request(spec: HostSpec) -> str:
    return text_of(ProbeRequest.for_spec(spec, packages=needed(spec)))


def forget() -> None:
    """Drop this host's record; the next `look` asks the host again."""
    host.connector_data.pop(_KEY, None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Unanswered:
    """A look that was not answered: why, and whether the host was reached at all."""

    reason: str
    unreachable: bool = False


def answer(state: State, host: Host, spec: HostSpec) -> Record | Unanswered:
    """Connect to a host if need be, look at it once, and return what was seen or why nothing was.

    For those who are not an operation: nothing is logged, and nothing is kept.
    """
    try:
        if not host.connected:
            host.connect(show_errors=False, raise_exceptions=True)
        return _asked(state, host, spec)
    except ConnectError as error:
        text = str(error.args[0]) if error.args else repr(error)
        match = _CONNECTING.fullmatch(text)
        why = match[1] if match else text
        return Unanswered(reason=f"could not be reached: {why}", unreachable=True)
    except EOFError:  # it would have asked for a password
        return Unanswered(reason=f"could not be looked at: {_WANTS_PASSWORD}")
    except OSError as error:
        return Unanswered(reason=f"the connection was lost ({error})")


def _asked(state: State, host: Host, spec: HostSpec) -> Record | Unanswered:
    fact = RecordFact()
    arguments, _ = pop_global_arguments(state, host, {**as_root(spec), "_stdin": _request(spec)})
    known: dict[str, Any] = {key: arguments[key] for key in CONNECTOR_ARGUMENT_KEYS}  # type: ignore[literal-required]
    ok, output = host.run_shell_command(
        fact.command(), print_output=False, print_input=False, **known
    )
    if ok:
        return fact.process(output.stdout_lines)
    said = [line for line in (*output.stdout_lines, *output.stderr_lines) if line.strip()]
    why = " ".join(said[-1].split())[:200] if said else "the look ended without a word"
    return Unanswered(reason=f"could not be looked at: {why}")


@contextmanager
def never_asking() -> Iterator[None]:
    """Keep pyinfra from asking the person at the terminal for anything, unseen.

    It asks for a password of sudo's by `getpass`, which opens the terminal itself, and for what a
    connection needs on standard input. Both end in EOFError here.
    """

    def refuse(prompt: str = "") -> str:
        raise EOFError(prompt)

    before, kept = connectors.getpass, sys.stdin
    connectors.getpass = refuse  # type: ignore[assignment]
    with Path("/dev/null").open() as nothing:
        sys.stdin = nothing
        try:
            yield
        finally:
            connectors.getpass, sys.stdin = before, kept
