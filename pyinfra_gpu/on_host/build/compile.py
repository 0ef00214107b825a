"""Compiling: ninja, with its progress told, its memory watched and its results put on disk."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from . import ninja, settings, unclean
from .commands import Commands, failure, first_error
from .errors import BuildError
from .files import sync
from .memory import used_mib
from .place import Place
from .plan import Plan
from .state import State

_SYNC_EVERY_S = 30.0
_TELL_EVERY_S = 1.0
_FIRST, _LAST = 10, 95
"""Percent of the whole build at which compiling begins and ends."""

_KILLED = re.compile(
    r"(?i)killed signal terminated program|^killed$|\bcc1plus\b.*\bkilled\b"
    r"|signal 9|exit code 137|out of memory allocating|virtual memory exhausted"
    r"|nvcc error *: '\w+' died due to signal 9"
)


@dataclass
class Progress:
    """What ninja's lines come to, told at most once a second.

    + before: steps that earlier runs finished
    """

    state: State
    before: int
    total: int
    sync: Callable[[], None]
    clock: Callable[[], float] = time.monotonic
    _began: float = field(init=False)
    _told: float = field(init=False, default=0.0)
    _synced: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self._synced = self.clock()

    def hear(self, line: str) -> None:
        """Take in a line of ninja's."""
        step = ninja.step(line)
        now = self.clock()
        if now - self._synced >= _SYNC_EVERY_S:
            self._synced = now
            self.sync()
        if step is None:
            return
        last = step.done == step.total
        if now - self._told < _TELL_EVERY_S and not last:
            return
        self._told = now
        if self.total == 0:
            self.total = step.total
        self.before = max(self.before, self.total - step.total)
        total = max(self.total, self.before + step.total)
        done = self.before + step.done
        left = (now - self._began) / step.done * (step.total - step.done) if step.done else None
        self.state.progress(_FIRST + (_LAST - _FIRST) * done / total)
        left_s = None if left is None else round(left)
        memory = used_mib()
        self.state.save(steps_done=done, total=total, left_s=left_s, memory_mib=memory)


def compile_all(plan: Plan, place: Place, run: Commands, state: State) -> None:
    """Have everything compiled that ninja knows of.

    After a machine that went down what cannot be believed is made again. Where memory ran out, half
    as many compilers go on.
    """
    if state.known["unclean"]:
        gone = unclean.prune(place.build, float(state.known["synced"]))
        state.note(f"the machine went down meanwhile: {gone} outputs were deleted and made again")
        state.save(unclean=False, steps_done=0, total=0)  # ninja counts what is gone once more
    # Fewer than memory allows where it ran out before, until somebody declares another limit.
    same = state.known.get("limit_mib") == plan.memory_mib
    jobs = (int(state.known["jobs"]) if same else 0) or settings.jobs(plan, place.source)
    _manifest(place, run)
    while True:
        state.save(jobs=jobs, limit_mib=plan.memory_mib)
        status, lines = _ninja(place, run, state, jobs)
        if status == 0:
            state.save(steps_done=int(state.known["total"]))
            _synced(place, state)
            return
        if not any(_KILLED.search(line) for line in lines):
            raise _explained(status, lines)
        if jobs == 1:
            raise BuildError(
                f"one compiler alone needs more than the {plan.memory_mib} MiB that this build may"
                " use: raise pytorch_build_memory_gib, or build on a host with more memory",
                tuple(line for line in lines if _KILLED.search(line))[:3],
            )
        jobs //= 2
        state.note(f"memory ran out: the build goes on with {jobs} compilers side by side")


def _manifest(place: Place, run: Commands) -> None:
    """Have build.ninja up to date before progress is told.

    PyTorch's is made anew by its first run, whose "3 of 4" is not three quarters of the build.
    """
    words = ["ninja", "-C", str(place.build), "build.ninja"]
    status, lines = run.tried(words, more={"NINJA_STATUS": ninja.STATUS})
    if status != 0 and not any("unknown target" in line for line in lines):
        raise _explained(status, lines)


def _ninja(place: Place, run: Commands, state: State, jobs: int) -> tuple[int, list[str]]:
    known = state.known
    progress = Progress(
        state=state,
        before=int(known["steps_done"]) if known["total"] else 0,
        total=int(known["total"]),
        sync=lambda: _synced(place, state),
    )
    compiled = int(known["compiled"])
    finished = 0

    def hear(line: str) -> None:
        nonlocal compiled, finished
        step = ninja.step(line)
        if step is not None:
            if step.done < finished:  # it made build.ninja anew, and counts from the beginning
                compiled += finished
            finished = step.done
            state.known["compiled"] = compiled + finished
        progress.hear(line)

    try:
        return run.tried(command(place, str(jobs)), more={"NINJA_STATUS": ninja.STATUS}, hear=hear)
    finally:
        state.save(compiled=compiled + finished)


def command(place: Place, jobs: str) -> list[str]:
    """Return the words that compile everything."""
    return ["ninja", "-C", str(place.build), "-j", jobs]


def _synced(place: Place, state: State) -> None:
    """Put what is finished on disk, and note until when all is."""
    began = time.time()
    sync(place.build)
    state.save(synced=began)


def _explained(status: int, lines: list[str]) -> BuildError:
    """Return the first error of the step that failed first, with the step's name."""
    failed = next((n for n, line in enumerate(lines) if line.startswith("FAILED: ")), 0)
    error = failure("compiling", status, lines[failed:])
    if failed or (lines[:1] and lines[0].startswith("FAILED: ")):
        shown = (lines[failed], *lines[failed + first_error(lines[failed:]) :][:11])
        return BuildError(error.sentence, shown, error.quoted)
    return error
