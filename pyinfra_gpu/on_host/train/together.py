"""What `why` says of a run of several hosts: who failed first, and what they do not share."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path

from . import calling, rundir
from .record import Run, moment, rank_of, tail_of
from .running import failure

_TAIL = 256 << 10  # bytes of one log
_LAST_WORDS = 40  # lines, in which an error that ended a rank stands
_MUCH = 20  # characters
_MISSING = re.compile(r"No such file or directory: '([^'\n]{1,300})'")


def not_shared(run: Run, logs: Mapping[str, str]) -> str | None:
    """Return, in words of ours, which file of a checkpoint another host's rank left only there.

    None where the ends of the logs tell of no such file.
    """
    if not run.across or not run.checkpoints:
        return None
    ends = ("\n".join(text.splitlines()[-_LAST_WORDS:]) for text in logs.values())
    missing = (found for end in ends for found in _MISSING.findall(end))
    inside = (name for name in missing if _below(Path(name), run.checkpoints))
    if (first := next(inside, None)) is None:
        return None
    return f"train: {first} of a checkpoint is not on this host, which trains with others"


def _below(path: Path, pattern: str) -> bool:
    return any(fnmatch(str(each), pattern) for each in (path, *path.parents))


def on_all_hosts(run: Run, step: str) -> str:
    """Return a step with its commands as they are typed for all hosts of the run."""
    if not run.across:
        return step
    group = rundir.group(rundir.Run(run.folder))
    for words in (("stop", run.name), ("resume", run.name), ("start", "--like", run.name)):
        alone = f"`{' '.join(['train', *words])}`"
        step = step.replace(alone, calling.together(words[0], group, *words[1:]))
    return step


def failed_at(run: Run, evidence: Sequence[str]) -> float | None:
    """Return when a rank of this host failed, in seconds since 1970; None where no log tells.

    The attempt's own end comes later, and on a host that only lost its peers often earlier than on
    the one where the cause is.

    + evidence: the lines that show the cause
    """
    if run.last is None or not run.over:
        return None
    folder = run.folder / "attempts" / str(run.last.number)
    if (written := failure.first_time(folder)) is not None:
        return written
    first = run.last.first_failed_rank
    logs = sorted(run.logs(), key=lambda log: rank_of(log) != first)
    for log in (*logs, folder / "launcher.log"):
        for line in reversed(tail_of(log, _TAIL)):
            stamp, _, text = line.partition(" ")
            if any(_shows(each.strip(), text.strip()) for each in evidence):
                return moment(stamp)
    return None


def _shows(evidence: str, line: str) -> bool:
    """Tell whether a line is the evidence, or of a message of several lines one that says much."""
    return bool(evidence) and (evidence in line or (len(line) >= _MUCH and line in evidence))
