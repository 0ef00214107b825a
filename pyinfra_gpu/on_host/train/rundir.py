"""A run's directory: its document, which is always whole, and whether somebody works on it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ..smoke import files
from ..terminal import some
from . import calling, units, unwritten
from .errors import BusyError, DamagedError, TrainError
from .site import Site

SCHEMA = 1
NAME = re.compile(r"[0-9]{8}-[0-9]{6}-[a-z0-9][a-z0-9_-]{0,39}(-[0-9]+)?", re.ASCII)
_LARGEST = 4 << 20  # bytes of a run.json that are read
_NAMED = 8  # runs that a sentence names, the newest
_BEGINNING_S = 90  # that a start may take until its supervisor is there

STATES = ("queued", "starting", "running", "waiting", "stopping", "ended")

Document = dict[str, Any]


def now() -> str:
    """Return the time as documents have it."""
    return later(0)


def later(seconds: float) -> str:
    """Return the time that it will be then, as documents have it."""
    when = datetime.now(UTC) + timedelta(seconds=seconds)
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")[:-4] + "Z"


def boot_id() -> str:
    """Return the kernel's name for this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


class Run:
    """One run, by its directory."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, folder.name

    @property
    def _path(self) -> Path:
        return self.folder / "run.json"

    def read(self) -> Document:
        """Return its document; raises DamagedError where there is none that is whole."""
        try:
            with self._path.open("rb") as file:
                document = json.loads(file.read(_LARGEST))
        except (OSError, ValueError, RecursionError) as error:
            why = "too deep" if isinstance(error, RecursionError) else error
            raise self._damaged(f"it cannot be read: {why}") from None
        if isinstance(document, dict) and document.get("schema") not in (SCHEMA, None):
            raise TrainError(f"{self._path} is of another version of this launcher")
        if not isinstance(document, dict) or not _is_record(document):
            raise self._damaged("it holds no record of a run")
        return document

    def _damaged(self, why: str) -> DamagedError:
        return DamagedError(
            f"the record of run {self.name} is damaged, {self._path} ({why}): its logs are in"
            f" {self.folder / 'attempts'}, `train start --like {self.name}` repeats it, and where"
            " neither is needed the folder may be removed"
        )

    def write(self, document: Document) -> None:
        """Replace its document, whole or not at all."""
        files.write(self._path, document)

    def request(self) -> Document:
        """Return what the supervisor is asked to do; see `commands.start`."""
        path = self.folder / "request.json"
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise TrainError(
                f"{path}, by which run {self.name} goes on, cannot be read ({error}): start another"
                " one with `train start`"
            ) from None
        if not isinstance(document, dict):
            raise TrainError(f"{path} is no orders of a run: start another one with `train start`")
        return document

    def ask(self, request: Document) -> None:
        """Write down what the supervisor is to do."""
        files.write(self.folder / "request.json", request)

    def attempt(self, number: int) -> Path:
        """Return the folder of one attempt's logs."""
        return self.folder / "attempts" / str(number)

    def refuse(self, why: str) -> None:
        """Leave for whoever waits for the start why it cannot be."""
        files.write_text(self.folder / "refusal", why + "\n")

    def refusal(self) -> str | None:
        """Return why the supervisor did not start, None where it did."""
        try:
            return (self.folder / "refusal").read_text().strip()
        except OSError:
            return None

    @contextmanager
    def supervised(self) -> Iterator[None]:
        """Be the run's one supervisor for as long as this process lives; raises TrainError."""
        descriptor = os.open(self.folder / ".alive", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            for _ in range(50):  # a reader holds it for a moment
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    time.sleep(0.05)
            else:
                raise TrainError(f"run {self.name} is on already: see `train watch {self.name}`")
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Be alone in having it go on, from the look at it until it is on; raises BusyError."""
        descriptor = os.open(
            self.folder / ".going-on", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise BusyError(
                f"run {self.name} is being resumed already: see `train watch {self.name}`"
            ) from None
        try:
            yield
        finally:
            os.close(descriptor)

    def alive(self) -> bool:
        """Tell whether a supervisor works on it: the kernel knows, after any kind of death.

        Where the lock does not say so systemd is asked for the unit: on a disk that is full, or
        that the kernel made read-only, the file of the lock may be missing while the run goes on.
        """
        return self._locked() or units.active(self.name)

    def _locked(self) -> bool:
        try:
            descriptor = os.open(self.folder / ".alive", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        else:
            return False
        finally:
            os.close(descriptor)

    def settled(self) -> Document:
        """Return its document, with the end that nobody lived to write down.

        A power cut, a reboot, or a supervisor that was killed: then the last attempt is "lost".
        """
        document = self._with_its_end(self.read())
        if document["state"] == "ended" or self.alive() or waits_for_boot(document):
            return document
        age = time.time() - self._path.stat().st_mtime
        begun = bool(document["attempts"]) and document["attempts"][-1]["outcome"] is None
        if not begun and age < _BEGINNING_S and document["state"] == "starting":
            return document
        document = self.read()  # it may have ended in good order meanwhile
        if document["state"] != "ended" and not self.alive():
            if begun:
                document["attempts"][-1] |= {"ended": now(), "outcome": "lost"}
            document["state"] = "ended"
            with contextlib.suppress(OSError):  # on a full disk it is told all the same
                self.write(document)
        return document

    def _with_its_end(self, document: Document) -> Document:
        """Return its document with the end that the disk had no room for, written where it has."""
        if document["state"] == "ended" or not (attempts := unwritten.kept(self.folder)):
            return document
        if len(attempts) < len(document["attempts"]):
            return document  # another attempt has begun since
        document = {**document, "state": "ended", "waits": None, "attempts": attempts}
        with contextlib.suppress(OSError):
            self.write(document)
            unwritten.drop(self.folder)
        return document


def _is_record(document: Document) -> bool:
    """Tell whether a document has what everything here takes for granted of a run."""
    attempts, waits = document.get("attempts"), document.get("waits")
    return (
        document.get("schema") == SCHEMA
        and document.get("state") in STATES
        and isinstance(attempts, list)
        and all(isinstance(each, dict) and {"number", "outcome"} <= {*each} for each in attempts)
        and (waits is None or (isinstance(waits, dict) and {"after", "until"} <= {*waits}))
    )


def waits_for_boot(document: Document) -> bool:
    """Tell whether a run is to go on by itself after a reboot, which another process sees to."""
    waits = document.get("waits") if document["state"] == "waiting" else None
    return waits is not None and waits["after"] == "reboot" and waits["until"] > now()


def group(run: Run) -> str:
    """Return the group whose hosts train a run together, as the controller was told it."""
    with contextlib.suppress(TrainError, AttributeError):
        return str((run.request().get("across") or {}).get("group") or "")
    return ""


def outcome(document: Document) -> str:
    """Return what became of a run in a word: of one that goes on its state, else its last end."""
    if document["state"] != "ended":
        return str(document["state"])
    attempts = document["attempts"]
    return str(attempts[-1]["outcome"] or "lost") if attempts else "not started"


def all_runs(site: Site) -> list[Run]:
    """Return all runs, the oldest first."""
    try:
        known = (each.name for each in site.runs.iterdir() if NAME.fullmatch(each.name))
        names = sorted(known, key=_order)
    except FileNotFoundError:
        return []
    return [Run(site.runs / name) for name in names if (site.runs / name / "run.json").exists()]


def _order(name: str) -> list[str | int]:
    """Return what runs are ordered by: of one second the tenth comes behind the ninth."""
    return [int(part) if part.isdecimal() else part for part in re.split("([0-9]+)", name)]


def chosen(site: Site, name: str | None, *, going: bool = False, across: bool = False) -> Run:
    """Return the run of that name, or whose name alone begins or ends so; the newest for None.

    + going: one that goes on is meant; one that has ended only where its name says so
    + across: and only one of several hosts

    Raises TrainError.
    """
    runs = all_runs(site)
    if name is None:
        if going or across:
            documents = {run: _known(run) for run in runs}
            runs = [run for run in runs if not going or documents[run]["state"] != "ended"]
            runs = [run for run in runs if documents[run].get("across") or not across]
            if going and len(runs) > 1:
                names = some([run.name for run in reversed(runs)], _NAMED)
                raise TrainError(f"{len(runs)} runs are on ({names}): say which one")
        if not runs:
            what = "no run is on" if going else "there is no run yet"
            if across:
                what = f"{'no' if going else 'there is no'} run of several hosts"
                what += " is on" if going else " yet"
            raise TrainError(f"{what}: see `train list`, or {begin_one(site, across=across)}")
        return runs[-1]
    exact = [run for run in runs if run.name == name]
    if not name:
        raise TrainError(
            "an empty name is no run's: leave it out for the newest, or see `train list`"
        )
    found = exact or [run for run in runs if run.name.startswith(name) or run.name.endswith(name)]
    if going and len(found) > 1:
        found = [run for run in found if _known(run)["state"] != "ended"] or found
    if len(found) == 1:
        return found[0]
    if not found:
        raise TrainError(f"there is no run {name}: see `train list`")
    names = some([run.name for run in reversed(found)], _NAMED)
    raise TrainError(f"{name} may be {len(found)} runs ({names}): give more of the name")


def begin_one(site: Site, *, across: bool = False) -> str:
    """Return how a run is begun, with a preset that there is."""
    preset = next(iter(site.presets), "PRESET")
    if across:
        return f"begin one with {calling.together('start', '', preset)}"
    return f"begin one with `train start {preset}`"


def _known(run: Run) -> Document:
    """Return a run's document; of one that is damaged only whether it goes on."""
    try:
        return run.settled()
    except DamagedError:
        return {"state": "running" if run.alive() else "ended"}


def make(site: Site, preset: str, name: str | None = None) -> Run:
    """Make the directory of a new run, the owner's alone; raises TrainError.

    + name: that it is to have, None for one by the time
    """
    if name is not None and not NAME.fullmatch(name):
        raise TrainError(f"{name!r:.80} is no name of a run")
    stem = name or f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{preset}"
    site.runs.mkdir(mode=0o700, exist_ok=True)
    for number in range(1, 1000 if name is None else 2):
        folder = site.runs / (stem if number == 1 else f"{stem}-{number}")
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            continue
        return Run(folder)
    if name is not None:
        raise TrainError(f"there is a run {name} here already")
    raise TrainError(f"{site.runs} has a thousand runs of this very second")
