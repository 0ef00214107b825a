"""`run FOLDER` builds, `inside` tries the torch of its own Python."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from . import prove, steps
from .plan import FAILED, PRINTED, BuildError, Plan

BUILDING = "building"
"""A file in FOLDER, locked by the program as long as it is at work: which build, which phase."""


def main() -> int:
    """Do what the first word says."""
    words = sys.argv[1:]
    os.umask(0o022)
    if words == ["inside"]:
        return prove.inside()
    if len(words) == 2 and words[0] == "run":
        return build(Path(words[1]), str(Path(sys.argv[0]).absolute()))
    sys.stderr.write("usage: build.pyz run FOLDER\n")
    return 2


def build(folder: Path, program: str) -> int:
    """Build what the plan says; return 0 where the wheel is there and proven.

    + program: path of this program, which the proof runs in an environment of its own

    Why it failed is what it says last.
    """
    steps.say(phase := "plan")
    try:
        plan = Plan.read(folder / "plan.json")
        of = steps.Build(plan, folder)
        with os.fdopen(os.open(folder / BUILDING, os.O_WRONLY | os.O_CREAT, 0o644), "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            for phase, work in _phases(of, program):
                # In place, always as long: whoever reads it meanwhile reads the one or the other.
                os.pwrite(held.fileno(), f"{plan.fingerprint} {phase:<12}\n".encode(), 0)
                steps.say(f"{phase} (stand-in)" if of.is_stand_in else phase)
                work()
    except Exception as error:  # whatever it is, whoever asks is to hear of it
        if not isinstance(error, BuildError):
            error = BuildError(f"the build cannot go on: {type(error).__name__}: {error}")
        steps.say(f"{FAILED}{phase}: {error.sentence}"[:1000])
        for line in error.lines[:12]:
            steps.say(f"{PRINTED}{line[:400]}")
        return 1
    return 0


def _phases(of: steps.Build, program: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield what is to be done, by name; each is asked for when the one before it is done."""
    if prove.is_proven(of):
        return
    if shutil.which("ccache", path=of.environment["PATH"]) is None:
        raise BuildError("ccache is missing, without which nothing is built: install it")
    yield "fetch", of.fetch
    if not of.is_configured:
        yield "requirements", of.install_tools
        yield "configure", of.configure
    yield "compile", of.compile_all
    yield "wheel", of.make_wheel
    yield "prove", lambda: prove.prove(of, program)
