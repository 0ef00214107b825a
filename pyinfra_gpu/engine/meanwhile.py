"""What is fetched on a host while other stages work on it, for as long as this run lasts.

It fills the installer's cache and nothing else: the stage that installs does all that it ever does,
and finds there what it would have fetched. What fails here is therefore said, and fails nothing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import gevent  # type: ignore[import-untyped]  # it has none; pyinfra's own event loop
from pyinfra import host as current_host
from pyinfra.api.command import FunctionCommand
from pyinfra.api.exceptions import PyinfraError

from pyinfra_gpu.drift.pytorch_lock import lock_of
from pyinfra_gpu.engine import deadlines, write
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.privilege import as_owner
from pyinfra_gpu.engine.steps import reason
from pyinfra_gpu.engine.uv import fetch_meanwhile
from pyinfra_gpu.engine.wire import as_run, start, within
from pyinfra_gpu.on_host import program
from pyinfra_gpu.text import shortened

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.engine.converge import Commands
    from pyinfra_gpu.engine.transport import LastingCommand
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

_KEY = "pyinfra_gpu_meanwhile"  # in connector_data, pyinfra's scratch space of this host and run
_MARK = "pyinfra-gpu-meanwhile "
_ALIVE_S = 15.0
_SILENT_S = 60
"""Seconds without a word after which each side counts the other as gone."""
_TOLD_S = 30.0
_LONGEST = 300  # characters of what a host says
_MOST_LINES = 2000  # of it; one every quarter of a minute until it ends


def begin(state: State, host: Host, spec: HostSpec, record: Record) -> str | None:
    """Begin to fetch what torch is installed from, as the owner; return why not, None if it began.

    The installer and the owner's cache have to be there. It ends with this run's connection.
    """
    place, run_as = _place(spec), as_owner(spec, record)
    lock, path = lock_of(spec, record), f"{place}.txt"
    if lock is not None:
        file = write.File(path=path, content=lock.requirements.encode())
        sent = write.sent(file)
        answer = ask(
            state, host, write.command(file, run_as), run_as, seconds=deadlines.PLAIN, _stdin=sent
        )
        if not answer.ok:
            return f"{path} cannot be written: {reason(answer.lines)}"
    fetch = fetch_meanwhile(spec, place, path if lock else None)
    job = program("pytorch/meanwhile_job.sh", place, str(int(deadlines.INSTALL)), fetch)
    text = program("pytorch/meanwhile.sh", place, str(_SILENT_S), job)
    try:
        running = start(host, as_run(state, host, text, run_as), seconds=deadlines.PLAIN)
    except (OSError, EOFError, PyinfraError) as error:
        return f"no program began ({error})"
    if running is None:  # nothing else than SSH and this machine stays connected
        return "this connection keeps no program beside others"
    host.connector_data[_KEY] = running
    gevent.spawn(_say_that_we_live, running)
    return None


def _place(spec: HostSpec) -> str:
    """Return the folder on the host that is fetched into; what belongs to it begins with that."""
    return f"{spec.paths.cache}/pyinfra-gpu-meanwhile"


def cleared(spec: HostSpec) -> str:
    """Return the shell command, the owner's, that removes what a host's end left of a fetch.

    Who begins to fetch removes it too; but the run after a power cut may have nothing to fetch
    beside. What is still at work is left alone.
    """
    return program("pytorch/meanwhile_left.sh", _place(spec))


def awaited(spec: HostSpec) -> Commands:
    """Yield the command that waits for what was begun; nothing where this run began nothing."""
    if current_host.connector_data.get(_KEY) is not None:
        yield FunctionCommand(wait, (spec,), {})


def wait(state: State, host: Host, spec: HostSpec) -> bool:
    """Wait until it has ended, however it did, and say how long it took and how long we waited.

    At once where this run began nothing. A reboot asks for it, too: of a file that had half come
    all would be fetched again.
    """
    del state
    running: LastingCommand | None = host.connector_data.pop(_KEY, None)
    if running is None:
        return True
    began = time.monotonic()
    try:
        with within(deadlines.INSTALL, "it did not come to an end"):
            told = _end(host, running)
    except OSError as error:
        told = f"failed {error}"
    finally:
        gevent.spawn(running.close)  # which may wait for a peer that never answers
    waited = time.monotonic() - began
    word, _, rest = told.partition(" ")
    what = f"torch {spec.pytorch.full_version}"
    if word == "done" and rest.isdecimal():
        saved = max(0, int(rest) - round(waited))
        host.log(f"{what} was fetched in {rest} s, {saved} s of them beside other work")
    else:
        host.log(f"{what} was not fetched beside other work ({rest}): it is fetched now")
    return True


def _end(host: Host, running: LastingCommand) -> str:
    """Return the last word of the program, "done SECONDS" or "failed WHY"."""
    said: list[str] = []
    began = told = heard = time.monotonic()
    lines = 0
    while lines < _MOST_LINES:
        line = running.line(1.0)
        now = time.monotonic()
        if line is None:
            return "failed the connection broke or it was ended"
        if line == "" and now - heard > _SILENT_S:
            return "failed the host says nothing any more"
        heard, lines = (now, lines + 1) if line else (heard, lines)
        word, _, rest = line.removeprefix(_MARK).partition(" ")
        if not line.startswith(_MARK):
            said += [shortened(line, _LONGEST)] if line else []
        elif word == "said":
            said.append(shortened(rest, _LONGEST))
        elif word == "done":
            return f"done {shortened(rest, _LONGEST)}"
        elif word == "failed":
            ended = f"it was ended after {rest} s" if rest.isdecimal() else rest
            return f"failed {reason(said) if said else shortened(ended, _LONGEST)}"
        if now - told >= _TOLD_S:
            told = now
            host.log(f"waiting for torch, which is being fetched: {now - began:.0f} s")
    return "failed it says too much"


def _say_that_we_live(running: LastingCommand) -> None:
    while running.say(b"."):
        gevent.sleep(_ALIVE_S)
