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
from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.state import State

from pyinfra_gpu import on_host
from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.command_line import described
from pyinfra_gpu.engine.deadlines import within
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import failed
from pyinfra_gpu.engine.together import executing, together
from pyinfra_gpu.engine.wire import Program, start
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.spec import HostSpec, system_files
from pyinfra_gpu.text import shortened

_KEY = "pyinfra_gpu_lease"  # in connector_data, pyinfra's scratch space of this host and run
_MARK = "pyinfra-gpu-lease "
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


def command(stage: str, spec: HostSpec) -> PyinfraCommand:
    """Return a command that takes the lease, or fails the host."""

    def take(state: State, host: Host) -> bool:
        try:
            ensure(state, host, spec)
        except LeaseError as error:
            return failed(host, stage, f"{host.name}: {error}")
        return True

    return FunctionCommand(take, (), {})


def regain(state: State, host: Host, spec: HostSpec) -> None:
    """Take the lease again over a new connection, if this run had it. Raises LeaseError."""
    if host.connector_data.pop(_KEY, None) is not None:
        _take(state, host, spec)


def other_name(host: Host, record: Record) -> str | None:
    """Note which machine a host is; say so, a clause, where the run has it by another name too."""
    machine = (record.system.boot_id, record.system.hostname)
    if any(isinstance(each, Unknown) for each in machine):
        return None
    known = together().said("machine")
    known[host.name] = machine
    same = [name for name, each in known.items() if each == machine and name != host.name]
    if not same:
        return None
    return f"is the same machine as {same[0]} (boot {machine[0]}): declare it by one name"


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
            refusal = _answer(said)
        if not refusal:
            host.connector_data[_KEY] = holding
    except (OSError, EOFError, PyinfraError) as error:
        refusal = f"its lease cannot be taken ({error}): run again"
    finally:
        if holding is not None and host.connector_data.get(_KEY) is not holding:
            holding.close()
    if refusal:
        raise LeaseError(refusal)
    gevent.spawn(list, said)  # unread it would be kept
    gevent.spawn(_say_that_we_live, holding)


def who() -> str:
    """Name this run for whoever else wants the host: who, on which machine, with what command."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = "somebody"
    return shortened(f"{user}@{socket.gethostname()} ({described()})", _LONGEST)


def _answer(lines: Iterator[str]) -> str:
    """Read what the host says until the lease is taken; return why it is not, empty if it is."""
    said = "it did not answer"
    for line in lines:
        word, _, rest = line.removeprefix(_MARK).partition(" ")
        if not line.startswith(_MARK):
            said = shortened(line, _LONGEST) or said
        elif word == "taken":
            return ""
        elif word == "busy":
            name, _, since = shortened(rest, _LONGEST).rpartition(" since ")
            told = f"{name or 'another run'} has been working here since {since or 'just now'}"
            return f"{told}; run again when it has ended, or, if it was cut off, in {_SILENT_S} s"
        else:
            said = shortened(rest, _LONGEST) or said
            break
    return f"its lease cannot be taken ({said}): run again"


def _say_that_we_live(holding: Program) -> None:
    while holding.say(b"."):
        gevent.sleep(_ALIVE_S)
