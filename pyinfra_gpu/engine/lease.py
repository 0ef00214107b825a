"""One run at a time on a host: before its first write a run takes the host's lease.

The lease is a lock that a program on the host holds for as long as the run's connection stands; a
connection that breaks gives it back. A run that finds nothing to do, a plan and a check never ask
for it. (`steps.step` has another lock: that of a single command, which goes on where its run was
cut off.)
"""

from __future__ import annotations

import getpass
import socket
import time
from typing import TYPE_CHECKING

import gevent  # type: ignore[import-untyped]  # it has none; pyinfra's own event loop
from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.exceptions import PyinfraError

from pyinfra_gpu import on_host
from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.command_line import described
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import failed
from pyinfra_gpu.engine.together import executing, together
from pyinfra_gpu.engine.transport import LastingCommand
from pyinfra_gpu.engine.wire import as_run, start, within
from pyinfra_gpu.spec import system_files
from pyinfra_gpu.text import shortened

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.spec import HostSpec

_KEY = "pyinfra_gpu_lease"  # in connector_data, pyinfra's scratch space of this host and run
_MARK = "pyinfra-gpu-lease "
_ALIVE_S = 15.0
_SILENT_S = 60
"""Seconds without a word from the run after which a host gives its lease to others."""
_TOLD_S = 30.0
_PEERS_S = 10.0
_ANSWER_S = 60.0
_LONGEST = 300  # characters of what a host says
_MOST_LINES = 200  # of it; a greeting of sudo's comes to ten


class LeaseError(Exception):
    """The lease could not be had: a clause that says who has it, and what to do."""


def ensure(
    state: State, host: Host, spec: HostSpec, *, wanted: bool, moment: str = "before"
) -> bool:
    """Have this host's lease, if an operation is about to write there; at once where it is held.

    + wanted: whether this operation writes on this host
    + moment: of the operation, where it asks more than once

    Returns whether another run had it meanwhile: then what was seen of the host is of yesterday.
    Waits up to ``lease_wait_s`` seconds, and says for whom. Raises LeaseError.

    Of the hosts that need it in one operation each waits for those before it by name. So do all
    runs, and none waits for another that waits for it.
    """
    if not executing():
        return False
    wanted = wanted and not _held(host)
    topic = f"lease {host.executing_op_hash} {moment}"
    meeting = together()
    meeting.say(topic, host.name, wanted)
    if not wanted:
        return False
    try:
        before = _before(state, host)
        wanting = meeting.hear(topic, before, _PEERS_S, over=_over(host))
        needing = [name for name, wants in wanting.items() if wants]
        meeting.hear(f"{topic} done", needing, spec.lease_wait_s + _ANSWER_S)
        return _take(state, host, spec)
    finally:
        meeting.say(f"{topic} done", host.name, True)


def over(host: Host) -> None:
    """Tell the other hosts that this one asks no more in the operation that it goes through."""
    if executing():
        together().say(_over(host), host.name, True)


def _over(host: Host) -> str:
    return f"lease {host.executing_op_hash} over"


def command(stage: str, spec: HostSpec) -> PyinfraCommand:
    """Return a command that takes the lease, or fails the host; for what cannot look once more."""
    return FunctionCommand(_command, (stage, spec), {})


def _command(state: State, host: Host, stage: str, spec: HostSpec) -> bool:
    try:
        ensure(state, host, spec, wanted=True, moment="within")
    except LeaseError as error:
        return failed(host, stage, f"{host.name}: {error}")
    return True


def regain(state: State, host: Host, spec: HostSpec) -> None:
    """Take the lease again over a new connection, if this run had it. Raises LeaseError."""
    if host.connector_data.pop(_KEY, None) is not None:
        _take(state, host, spec)


def _before(state: State, host: Host) -> list[str]:
    """Return the hosts that run this operation too, and come before this one by name."""
    this = host.executing_op_hash
    running = set(state.active_hosts) - set(state.failed_hosts)
    return [each.name for each in running if each.name < host.name and this in state.ops[each]]


def _held(host: Host) -> bool:
    holding = host.connector_data.get(_KEY)
    return isinstance(holding, LastingCommand) and holding.stands


def _take(state: State, host: Host, spec: HostSpec) -> bool:
    try:
        holding = start(host, _command_line(state, host, spec), seconds=deadlines.PLAIN)
    except (OSError, EOFError, PyinfraError) as error:
        raise LeaseError(f"its lease cannot be asked for ({error}): run again") from error
    if holding is None:  # nothing else than SSH and this machine stays connected
        return False
    try:
        with within(_ANSWER_S + spec.lease_wait_s + _TOLD_S, "it did not come to an end"):
            waited = _settled(host, spec, holding)
    except BaseException as error:
        gevent.spawn(holding.close)  # which may wait for a peer that never answers
        if isinstance(error, OSError):
            raise LeaseError(f"its lease cannot be taken ({error}): run again") from error
        raise
    host.connector_data[_KEY] = holding
    gevent.spawn(_say_that_we_live, holding)
    return waited


def _command_line(state: State, host: Host, spec: HostSpec) -> str:
    file = system_files.LEASE if spec.privilege == "sudo" else spec.paths.lease
    text = on_host.program("lease.sh", file, str(spec.lease_wait_s), str(_SILENT_S), who())
    return as_run(state, host, text, as_root(spec))


def who() -> str:
    """Name this run for whoever else wants the host: who, on which machine, with what command."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = "somebody"
    return shortened(f"{user}@{socket.gethostname()} ({described()})", _LONGEST)


def _settled(host: Host, spec: HostSpec, holding: LastingCommand) -> bool:
    """Follow what the host says until the lease is taken; return whether it was waited for."""
    holder, said, lines = None, "it did not answer", 0
    began = told = time.monotonic()
    limit = _ANSWER_S
    while lines < _MOST_LINES and (now := time.monotonic()) - began < limit:
        line = holding.line(_TOLD_S)
        if line is None:
            break
        lines += bool(line)
        word, _, rest = line.removeprefix(_MARK).partition(" ")
        if not line.startswith(_MARK):
            said = shortened(line, _LONGEST) or said
        elif word == "taken":
            return holder is not None
        elif word == "busy" and holder is None:
            holder = shortened(rest, _LONGEST) or "another run, which does not say whose,"
            limit += spec.lease_wait_s
            host.log(f"{holder} works here: waiting up to {spec.lease_wait_s} s")
        else:
            said = shortened(rest, _LONGEST) or said
            break
        if holder and now - told >= _TOLD_S:
            told = now
            host.log(f"waiting for {holder}: {now - began:.0f} s")
    if holder:
        raise LeaseError(
            f"{holder} works on it: let that run end, then run again, or wait longer with"
            " `lease_wait_s`"
        )
    raise LeaseError(f"its lease cannot be taken ({said}): run again")


def _say_that_we_live(holding: LastingCommand) -> None:
    while holding.say(b"."):
        gevent.sleep(_ALIVE_S)
