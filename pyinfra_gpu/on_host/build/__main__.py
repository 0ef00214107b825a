"""`run FOLDER` builds, `inside` tries the torch of its own Python."""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import prove, steps
from .plan import BuildError, Place, Plan, environment

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_RESERVE = 64 << 10


def main() -> int:
    """Do what the first word says."""
    words = sys.argv[1:]
    os.umask(0o022)
    if words == ["inside"]:
        return prove.inside()
    if len(words) == 2 and words[0] == "run":
        return build(Place(Path(words[1])), str(Path(sys.argv[0]).absolute()))
    sys.stderr.write("usage: build.pyz run FOLDER\n")
    return 2


class State:
    """How far the build is, for whoever asks: state.json, always whole."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.known: dict[str, Any] = {"fingerprint": "0" * 64, "boot": steps.text_of(_BOOT_ID)}

    def save(self, phase: str, error: BuildError | None = None) -> None:
        """Write down the phase, and why it failed. Raises OSError."""
        told = None
        if error is not None:
            lines = [line[:400] for line in error.lines[:12]]
            told = {"sentence": error.sentence[:1000], "lines": lines}
        self.known.update(phase=phase, error=told)
        steps.write_whole(self._place.state, json.dumps(self.known) + "\n")


def build(place: Place, program: str) -> int:
    """Build what the plan says; return 0 where the wheel is there and proven.

    + program: path of this program, which the proof runs in an environment of its own
    """
    state = State(place)
    try:
        os.chdir(place.root)
        place.pid.write_text(f"{os.getpid()}\n")
        state.save("plan")
        # Some room of the disk, so that a full one can be told.
        place.reserve.write_bytes(os.urandom(_RESERVE))
        plan = Plan.read(place.root)
        state.known["fingerprint"] = plan.fingerprint
        _phases(plan, place, state, program)
    except Exception as error:  # whatever it is, whoever asks is to hear of it
        if not isinstance(error, BuildError):
            error = BuildError(f"the build cannot go on: {type(error).__name__}: {error}")
        sys.stderr.write(": ".join([error.sentence, *error.lines[:1]]) + "\n")
        place.reserve.unlink(missing_ok=True)
        with suppress(OSError):
            state.save(state.known.get("phase", "plan"), error)
        return 1
    finally:
        for each in (place.pid, place.reserve):
            each.unlink(missing_ok=True)
    return 0


def _phases(plan: Plan, place: Place, state: State, program: str) -> None:
    if prove.is_proven(plan, place):
        state.save("prove")
        return
    run = steps.Programs(environment(plan, place))
    if shutil.which("ccache", path=run.environment["PATH"]) is None:
        raise BuildError("ccache is missing, without which nothing is built: install it")
    if steps.text_of(place.boot) != state.known["boot"]:
        # What a power cut leaves may be empty or half, whatever its time says, and ninja would link
        # it. What is compiled is in ccache, which compares a digest before it gives anything.
        steps.remove(place.configured if place.fetched.exists() else place.source)
        steps.write_whole(place.boot, state.known["boot"])
    for phase, step in (
        ("fetch", steps.fetch),
        ("requirements", steps.tools),
        ("configure", steps.configure),
        ("compile", steps.compile_all),
        ("wheel", steps.make_wheel),
    ):
        if phase == "configure" and steps.text_of(place.configured) == plan.fingerprint:
            continue
        state.save(phase)
        steps.say(f"{phase} (stand-in)" if steps.is_stand_in(place.source) else phase)
        step(plan, place, run)
    state.save("prove")
    steps.say("prove")
    prove.prove(plan, place, run, program)
