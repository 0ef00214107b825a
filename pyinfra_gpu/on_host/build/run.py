"""The build from its first phase to its last, each left out that is done already."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from . import fetch, requirements, settings, tree
from . import wheel as wheels
from .checks import check
from .commands import Commands
from .compile import compile_all
from .configure import configure
from .errors import BuildError, StoppedError
from .files import read_json, remove, sync
from .place import Place
from .plan import Plan
from .prove import prove
from .state import DONE, FAILED, STOPPED, State

PERCENT = {
    "fetch": 0,
    "requirements": 5,
    "configure": 7,
    "check": 9,
    "compile": 10,
    "wheel": 95,
    "prove": 98,
}
"""The phases in their order, and how far the whole is at the beginning of each."""

LONGEST_LOG = 64 << 20
_RESERVE = 256 << 10


@contextmanager
def alone(place: Place) -> Iterator[bool]:
    """Yield whether this process may build: one builds in a folder at a time."""
    with place.lock.open("a") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        place.pid.write_text(f"{os.getpid()}\n")
        try:
            yield True
        finally:
            place.pid.unlink(missing_ok=True)


def build(place: Place, program: str) -> int:
    """Build what the plan says; return 0 where the wheel is there and proven."""
    with alone(place) as mine:
        if not mine:
            return 0
        try:
            plan = Plan.read(place.root)
        except BuildError as error:
            return _unplanned(place, error)
        state = State.begun(place, plan.fingerprint)
        with suppress(OSError):  # where there is none, the first program says so
            place.reserve.write_bytes(os.urandom(_RESERVE))
        _ready()
        _shorten(place)
        environment = settings.environment(plan, place, os.environ, shutil.which("ccache"))
        commands = Commands(place.log, environment)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: commands.stop())
        try:
            _phases(plan, place, commands, state, program)
        except StoppedError:
            sync(place.root)
            state.save(status=STOPPED, left_s=None)
            return 3
        except BuildError as error:
            _failed(place, state, error)
            return 1
        except Exception as error:  # whatever it is, whoever asks is to hear of it
            _failed(place, state, BuildError(f"the build broke: {type(error).__name__}: {error}"))
            raise
        place.reserve.unlink(missing_ok=True)
        state.progress(100)
        state.save(status=DONE, phase="prove", left_s=0)
        return 0


def _unplanned(place: Place, error: BuildError) -> int:
    """Say that the plan cannot be read, in the journal and to whoever follows; return 1.

    The state is no longer that of the build before.
    """
    sys.stderr.write(f"{error.sentence}\n")
    fingerprint = str(read_json(place.root / "plan.json").get("fingerprint"))
    _failed(place, State.begun(place, fingerprint if len(fingerprint) == 64 else "0" * 64), error)
    _ready()
    return 1


def _failed(place: Place, state: State, error: BuildError) -> None:
    place.reserve.unlink(missing_ok=True)
    lines = [line[:400] for line in error.lines[:12]]
    told = {"sentence": error.sentence[:1000], "lines": lines, "quoted": error.quoted[:400]}
    state.save(status=FAILED, left_s=None, error=told)


def _phases(plan: Plan, place: Place, run: Commands, state: State, program: str) -> None:
    unclean = bool(state.known["unclean"])
    if "prove" in state.known["done"] and not wheels.is_proven(place):
        state.save(done=[phase for phase in state.known["done"] if phase not in ("wheel", "prove")])
    work: dict[str, Callable[[], None]] = {
        "fetch": lambda: fetch.fetch(plan, place, run, unclean=unclean),
        "requirements": lambda: _tools(plan, place, run, unclean=unclean),
        "configure": lambda: configure(plan, place, run),
        "check": lambda: check(plan, place),
        "compile": lambda: compile_all(plan, place, run, state),
        "wheel": lambda: wheels.make(plan, place, run, int(state.known["jobs"]) or 1),
        "prove": lambda: prove(plan, place, run, program),
    }
    for phase, do in work.items():
        if phase in state.known["done"]:
            continue
        state.progress(PERCENT[phase])
        state.save(phase=phase, left_s=None)
        do()
        sync(place.root)
        if phase == "fetch":
            state.known["stand_in"] = tree.is_stand_in(place.source)
        state.save(done=[*state.known["done"], phase])


def _tools(plan: Plan, place: Place, run: Commands, *, unclean: bool) -> None:
    if unclean:
        remove(place.environment)
    requirements.install(plan, place, run)


def _ready() -> None:
    """Tell systemd that the state is this build's: who waits for the start may follow it now."""
    path = os.environ.pop("NOTIFY_SOCKET", None)
    if path is not None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.sendto(b"READY=1", path.replace("@", "\0", 1) if path[0] == "@" else path)


def _shorten(place: Place) -> None:
    """Begin the log anew before it fills the disk."""
    if place.log.exists() and place.log.stat().st_size > LONGEST_LOG:
        place.log.replace(place.log.with_suffix(".before.txt"))
