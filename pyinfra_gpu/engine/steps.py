"""Running one command of ours on the host, with progress, and one sentence when it fails."""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Sequence
from typing import Any

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from pyinfra_gpu.diagnosis.command import explain_lines
from pyinfra_gpu.engine import journal, privilege
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.look import last_seen
from pyinfra_gpu.on_host import program
from pyinfra_gpu.text import one_line, shortened, without_escapes

LOCK_WAIT_S = 900
"""How long a step waits for one that an earlier, interrupted run left working on the host."""

_HELD = "pyinfra-gpu-lock: "
_NOTE = "pyinfra-gpu-note: "

_GOES_ON = "what was begun may go on there, and the next run waits for it"
_TAIL = 12  # lines of a failed command's output that are shown
_LONGEST_LINE = 300  # characters of the last one, in the sentence


def step(
    stage: str,
    what: str,
    command: str,
    *,
    run_as: dict[str, Any],
    seconds: float,
    lock: str | None = None,
    stream: bool = False,
    success: tuple[int, ...] = (0,),
) -> PyinfraCommand:
    """Return a pyinfra command that runs a shell command on the host.

    + what: what it does, for the log: "install torch 2.14.1"; told now, and again every half minute
    + command: POSIX shell; every value in it must already be quoted (`quoted`)
    + run_as: pyinfra's global arguments from `pyinfra_gpu.engine.privilege`
    + seconds: after which it is given up, most often one of `pyinfra_gpu.engine.deadlines`; the
      wait for the lock comes on top
    + lock: path of a lock file on the host. A command of a run that was cut off goes on working
      there, so the next run waits for it, up to `LOCK_WAIT_S` seconds, instead of racing it
    + stream: show the command's output while it works
    + success: exit codes that are not failures

    A line that begins with "pyinfra-gpu-note: " is for the report, also where the command fails
    later: what was put elsewhere, and where. Only the host knows whether it was.
    """
    given = {**run_as, "_success_exit_codes": list(success)}
    text = locked(command, lock, privilege.guard(run_as)) if lock else command
    seconds += LOCK_WAIT_S if lock else 0

    def run(state: State, host: Host) -> bool:
        answer = ask(state, host, text, given, seconds=seconds, what=what, show=stream)
        lines = _noted(host, stage, [line for line in answer.lines if line.strip()])
        if answer.ok:
            return True
        if answer.lost:
            return failed(host, stage, f"{host.name}: {what}: {answer.lost}; {_GOES_ON}")
        if not stream:
            for line in lines[-_TAIL:]:
                host.log(line, log_func=logger.error)
        return failed(host, stage, f"{host.name}: {what} failed: {reason(lines)}")

    return FunctionCommand(run, (), {})


def locked(command: str, lock: str, guard: str = "", seconds: int = LOCK_WAIT_S) -> str:
    """Return `command` such that it waits for whoever holds the lock file; see `step`.

    + guard: what `pyinfra_gpu.engine.privilege.guard` returns for who runs it
    """
    uses = ("files/root_only.sh",) if guard else ()
    return program("files/locked.sh", lock, str(seconds), guard, command, uses=uses)


def quoted(*words: str) -> str:
    """Return the words as one shell command line, each quoted."""
    return shlex.join(words)


def _noted(host: Host, stage: str, lines: list[str]) -> list[str]:
    """Say and note what a command has to tell a person; return its other lines."""
    for line in lines:
        if line.startswith(_NOTE):
            sentence = one_line(line.removeprefix(_NOTE))
            journal.warn(stage, f"{host.name}: {sentence}")
            host.log(sentence)
    return [line for line in lines if not line.startswith(_NOTE)]


def reason(lines: Sequence[str], *, said_by: str = "") -> str:
    """Return why a command failed that printed these lines, in one clause.

    The cause, the line that shows it and what to do; the last line where no cause is known.

    + said_by: who printed them, where a person would not see that from the line
    """
    if not lines:
        return "it printed nothing; try the command by hand (-vv)"
    # uv ends with a hint, behind the cause.
    said = [line for line in lines if line.strip() and not line.startswith("hint: ")]
    last = (said or lines)[-1].strip().removeprefix("cause: ").removeprefix(_HELD)
    last = shortened(last, _LONGEST_LINE)
    explained = explain_lines(lines, said_by=said_by, record=last_seen())
    return explained or (f"{said_by} says: {last}" if said_by else last)


def broken(state: State, host: str, stage: str, error: Exception) -> str:
    """Return the sentence for a host at which a program of ours broke; with -v also where.

    Whatever a host told us, or did not, no other host's run may end by it.
    """
    if state.print_noop_info:
        logger.error(without_escapes("".join(traceback.format_exception(error))))
    what = shortened(f"{type(error).__name__}: {error}", _LONGEST_LINE)
    return (
        f"{host}: {stage}: this could not be judged ({what}): this is a bug in pyinfra-gpu, please"
        " report it with the output of -v"
    )


def failed(host: Host, stage: str, sentence: str) -> bool:
    """Say and note why this host cannot go on; return the False that makes pyinfra fail it."""
    sentence = one_line(sentence)
    journal.problem(stage, sentence)
    host.log_styled(sentence, fg="red", log_func=logger.error)
    return False
