"""One run at a time on a host: before its first write a run takes the host's lease.

The lease is a lock that a program on the host holds for as long as the run's connection stands; a
connection that breaks gives it back. Who does not get it is told who works there, and nobody waits.
A run that finds nothing to do, a plan and a check never ask for it. (`steps.step` has another lock:
that of a single command, which goes on where its run was cut off.)
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterator

import gevent  # type: ignore[import-untyped]  # it has none; pyinfra's own event loop
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.state import State

from pyinfra_gpu import on_host
from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.ask import Program, start
from pyinfra_gpu.engine.command_line import described
from pyinfra_gpu.engine.deadlines import within
from pyinfra_gpu.engine.meeting import executing
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.spec import HostSpec, system_files
from pyinfra_gpu.text import shortened

_KEY = "pyinfra_gpu_lease"  # in connector_data, pyinfra's scratch space of this host and run
_MARK = "pyinfra-gpu-lease"
_ALIVE_S = 10.0
_SILENT_S = 30
"""Seconds without a word from the run after which a host gives its lease to others."""
_ANSWER_S = 60.0
_LONGEST = 300  # characters of what a host says
_MOST = 1 << 16  # bytes of it; a greeting of sudo's comes to a hundredth


class LeaseError(Exception):
    """The lease could not be had: a clause that says who has it, and what to do."""


def ensure(state: State, host: Host, spec: HostSpec) -> None:
    """Have this host's lease, as an operation is about to write there. Raises LeaseError."""
    holding = host.connector_data.get(_KEY)
    if executing() and not (isinstance(holding, Program) and holding.stands):
        _take(state, host, spec)


def regain(state: State, host: Host, spec: HostSpec) -> None:
    """Take the lease again over a new connection, if this run had it. Raises LeaseError."""
    if host.connector_data.pop(_KEY, None) is not None:
        _take(state, host, spec)


def _take(state: State, host: Host, spec: HostSpec) -> None:
    file = system_files.LEASE if spec.privilege == "sudo" else spec.paths.lease
    text = on_host.program("lease.sh", file, str(_SILENT_S), who())
    holding = None
    try:
        holding = start(state, host, text, as_root(spec), seconds=deadlines.PLAIN, most=_MOST)
        if holding is None:  # nothing else than SSH and this machine stays connected
            return
        said = holding.lines()
        with within(_ANSWER_S, "its lease was not given"):
            refusal = _refusal(said)
    except (OSError, EOFError, PyinfraError) as error:
        refusal = f"its lease cannot be taken ({error}): run again"
    if refusal:
        if holding is not None:
            holding.close()
        raise LeaseError(refusal)
    host.connector_data[_KEY] = holding
    gevent.spawn(list, said)  # unread it would be kept
    gevent.spawn(_say_that_we_live, holding)


def who() -> str:
    """Name this run for whoever else wants the host: who, on which machine, with what command."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = "somebody"
    return shortened(f"{user}@{socket.gethostname()} ({described()})", _LONGEST)


def _refusal(lines: Iterator[str]) -> str:
    """Read what the host says until the lease is taken; return why it is not, empty if it is."""
    said = "it did not answer"
    for line in lines:
        mark, word, rest = [*line.split(" ", 2), "", ""][:3]
        if mark != _MARK:  # a greeting
            said = shortened(line, _LONGEST) or said
        elif word == "taken":
            return ""
        elif word == "busy":
            holder = shortened(rest, _LONGEST).replace(" since ", " has been working here since ")
            retry = f"run again when it has ended, or, if it was cut off, in {_SILENT_S} s"
            return f"{holder or 'another run has just begun to work here'}; {retry}"
        else:
            said = shortened(rest, _LONGEST) or said
            break
    return f"its lease cannot be taken ({said}): run again"


def _say_that_we_live(holding: Program) -> None:
    while holding.say(b"."):
        gevent.sleep(_ALIVE_S)
