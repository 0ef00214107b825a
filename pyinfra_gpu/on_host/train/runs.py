"""The runs of a host: what `run.json` holds, what became of a run, and which one is meant.

Whether a run is on is asked in one place, `_with_states`: of `run.json`, and of systemd.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..smoke import files
from ..terminal import some
from . import code, presets, units
from .host import CPU, NoRunError, Site, TrainError, boot_id, moment, now
from .metrics import History, history

SCHEMA = 1
NAME = re.compile(r"[0-9]{8}-[0-9]{6}-[a-z0-9][a-z0-9_-]{0,39}(-[0-9]+)?", re.ASCII)
_LARGEST = 4 << 20
_BEGINNING_S = 90  # between `run.json` and a unit that is on
_UNRESOLVED_S = 7 * 86400.0


@dataclass(kw_only=True)
class Attempt:
    """One start of a run's program; `outcome` is None as long as it is on."""

    number: int
    started: str | None = None
    ended: str | None = None
    boot_id: str = ""
    resumed_from: str | None = None
    exit: int | None = None
    outcome: str | None = None  # finished, failed, stopped or lost
    first_failed_rank: int | None = None
    failed_at: float | None = None
    cause: str | None = None
    stopped_by: str | None = None


@dataclass(kw_only=True)
class Run:
    """A run, in the form in which `run.json` has it.

    + spec: its preset with all settings; + words: what stood behind `--`
    + code: [path, HEAD, commit] of the repository and its submodules
    + devices: those that it may have; + gpus: those that it has
    + part: of a run of several hosts, see `several`
    + waits: {"after": "failure" or "reboot", "for": why, "until": time}
    + after_reboot: seconds after a boot in which it goes on by itself, where it asks to
    + refused: why its supervisor did not begin; + damaged: why there is no record, never written
    """

    folder: Path
    run: str
    state: str  # queued, starting, running, waiting, stopping, ended or damaged
    schema: int = SCHEMA
    host: str = ""
    preset: str | None = None
    overrides: dict[str, str] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    gpus: list[str] = field(default_factory=list)
    commit: str = ""
    dirty: bool = False
    versions: dict[str, str] = field(default_factory=dict)
    unproven: bool = False
    retries: int = 0
    like: str | None = None
    trial: bool = False
    created: str = ""
    waits: dict[str, str] | None = None
    attempts: list[Attempt] = field(default_factory=list)
    spec: dict[str, Any] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    code: list[list[str]] = field(default_factory=list)
    part: dict[str, Any] | None = None
    devices: list[str] = field(default_factory=list)
    ranks: int = 1
    queue: bool = False
    retried: int = 0
    after_reboot: float = 0
    resumed_from: str | None = None
    refused: str = ""
    damaged: str = ""

    def save(self) -> None:
        document = asdict(self)
        del document["folder"], document["damaged"]
        files.write(self.folder / "run.json", document)

    # -- what became of it

    @property
    def last(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def over(self) -> bool:
        return self.state in ("ended", "damaged")

    @cached_property
    def history(self) -> History:
        """What the last attempt's log says of its steps, and the curve of all attempts."""
        return history(self.folder / "metrics.jsonl", len(self.attempts))

    @cached_property
    def stalled(self) -> float | None:
        """For how many seconds it stands still, where it is on and does."""
        return self.history.stalled(time.time()) if self.state == "running" else None

    @property
    def outcome(self) -> str:
        """The word for what it does, or became."""
        if self.state != "ended":
            return "stalled" if self.stalled is not None else self.state
        return (self.last.outcome or "lost") if self.last else "not started"

    @property
    def failed(self) -> bool:
        """Whether its last attempt failed or was lost, also where it waits to go on."""
        on = self.state in ("queued", "starting")
        return self.last is not None and self.last.outcome in ("failed", "lost") and not on

    @property
    def wrong(self) -> bool:
        """Whether somebody should look at it."""
        odd = "not_finite" in self.history.last and self.outcome != "stopped"
        return odd or self.outcome in ("failed", "lost", "stalled", "damaged")

    @property
    def cut_off(self) -> bool:
        """Whether another boot of the host ended it."""
        last = self.last
        return last is not None and last.outcome == "lost" and last.boot_id != boot_id()

    @property
    def waits_for_boot(self) -> bool:
        return self.state == "waiting" and (self.waits or {}).get("after") == "reboot"

    # -- what it is made of

    @property
    def across(self) -> list[str] | None:
        """The hosts that train it together."""
        return self.part["hosts"] if self.part else None

    @property
    def nproc(self) -> int:
        return self.settings.processes(self.ranks)

    @property
    def world(self) -> int:
        """Ranks of all hosts together."""
        return self.nproc * len(self.across or "1")

    @property
    def wants(self) -> int:
        """How many of its devices it takes."""
        return 1 if self.devices == [CPU] else self.ranks

    @property
    def returns(self) -> bool:
        """Whether it goes on by itself after a boot."""
        return self.settings.resume_after_reboot and not self.across

    @property
    def settings(self) -> presets.Preset:
        return presets.from_json(str(self.preset), self.spec)

    @property
    def places(self) -> dict[str, object]:
        """What `{...}` in a text of its preset stands for."""
        return presets.values(self.settings, self.folder, self.ranks)

    @property
    def pattern(self) -> str | None:
        """Where its checkpoints are, as a glob with an absolute path."""
        return presets.pattern_of(self.settings, self.places)

    def begin_from(self, site: Site, point: presets.Checkpoint | None) -> None:
        """Have the command begin at a checkpoint, or at the beginning."""
        resumed = {"checkpoint": str(point.path), "step": point.step} if point else None
        given = (site.python, self.settings, self.places, self.ranks, self.words)
        self.command = presets.command(*given, hosts=len(self.across or "1"), resumed=resumed)
        self.resumed_from = str(point.path) if point else None

    def newest(self) -> presets.Checkpoint | None:
        """Return the newest complete checkpoint that it has presets."""
        return presets.newest(self.settings, self.places, self.world, moment(self.created) or 0)

    def resumable(self) -> presets.Checkpoint | None:
        """Return the newest complete checkpoint, where its preset says how to go on from one."""
        return self.newest() if self.settings.resume else None

    def attempt(self, number: int | None = None) -> Path:
        """Return the folder of an attempt, the last one where none is said."""
        return self.folder / "attempts" / str(number or max(1, len(self.attempts)))

    def logs(self) -> list[Path]:
        """Return the logs of the last attempt's ranks, by rank."""
        return sorted(self.attempt().glob("rank*.log"), key=rank_of)


def tail_of(path: Path, size: int) -> list[str]:
    """Return the lines of a file's end; none where it cannot be read."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - size))
        return file.read(size).decode("utf-8", "replace").splitlines()
    return []


def unstamped(line: str) -> str:
    """Return a line of a log without its time."""
    stamp, _, rest = line.partition(" ")
    return line if moment(stamp) is None else rest


def rank_of(log: Path) -> int:
    digits = re.match(r"rank(\d{1,5})\.", log.name)
    return int(digits[1]) if digits else 0


# -- reading them


def read(folder: Path) -> Run:
    """Return a run as it is now; nothing is written."""
    return _with_states([record(folder)])[0]


def all_of(site: Site) -> list[Run]:
    """Return all runs as they are now, the newest last."""
    return _with_states([record(site.runs / name) for name in names(site)])


def _with_states(known: list[Run]) -> list[Run]:
    """Return runs as they are: what no unit runs any more is lost, or waits for its time."""
    on = units.on() if any(run.state != "ended" for run in known) else set()
    for place, run in enumerate(known):
        if run.damaged:
            run.state = "running" if run.run in on else "damaged"
            continue
        if not (run.over or run.run in on or _begins(run)):
            run = known[place] = record(run.folder)  # it may have ended since
            if not run.over and run.last is not None and run.last.outcome is None:
                run.last.outcome, run.last.ended = "lost", _last_sign(run.folder)
            run.state, run.waits = "damaged" if run.damaged else "ended", None
        if left := _waits_s(run):
            what = {"after": "reboot", "for": "a smoke test that passes on this boot"}
            run.state, run.waits = "waiting", {**what, "until": now(left)}
    return known


def _begins(run: Run) -> bool:
    changed = (run.folder / "run.json").stat().st_mtime
    return run.state == "starting" and time.time() - changed < _BEGINNING_S


def _last_sign(folder: Path) -> str:
    """Return when something of a run was last written."""
    paths = (folder / "run.json", folder / "metrics.jsonl", *folder.glob("attempts/*/*.log"))
    return now(max(path.stat().st_mtime for path in paths if path.exists()) - time.time())


def _waits_s(run: Run) -> float:
    """Return for how long a run of an earlier boot still waits to go on by itself; 0 for others."""
    away = run.outcome in ("lost", "stopped", "not started")
    if not (run.after_reboot and run.state == "ended" and away):
        return 0
    up = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    if run.last is None:
        earlier = (moment(run.created) or 0) < time.time() - up
    else:
        earlier = run.last.boot_id != boot_id()
    return max(0, run.after_reboot - up) if earlier else 0


def record(folder: Path) -> Run:
    """Return a run as its record says."""
    path = folder / "run.json"
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(_LARGEST))
        if document["schema"] != SCHEMA:
            raise ValueError("it is of another version of this launcher")
        attempts = [Attempt(**each) for each in document["attempts"]]
        return Run(**{**document, "attempts": attempts, "folder": folder, "run": folder.name})
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        why = f"the record of run {folder.name} is damaged, {path} ({error})"
        text = f"{why}: its logs are in {folder / 'attempts'}; where they are not needed, remove"
        return Run(folder=folder, run=folder.name, state="damaged", damaged=f"{text} the folder")


def names(site: Site) -> list[str]:
    """Return the runs that there are, the newest last."""
    found = (path.parent.name for path in site.runs.glob("*/run.json"))
    return sorted(
        filter(NAME.fullmatch, found),
        key=lambda name: [
            int(part) if part.isdecimal() else part for part in re.split("([0-9]+)", name)
        ],
    )


def chosen(site: Site, name: str | None, *, going: bool = False, across: bool = False) -> Run:
    """Return the run that is meant, by its name, or the beginning or the end of that.

    + going: only one that is on; + across: of those without a name, only one of several hosts
    """
    if name is None:
        found = [run for run in all_of(site) if run.across or not across]
        found = [run for run in found if not run.over] if going else found[-1:]
    else:
        known = names(site)
        like = [each for each in known if each.startswith(name) or each.endswith(name)]
        found = _with_states(
            [record(site.runs / each) for each in ([name] if name in known else like)]
        )
        if going and len(found) > 1:
            found = [run for run in found if not run.over] or found
    if len(found) == 1:
        return found[0]
    if found:
        several = some([run.run for run in reversed(found)], 8)
        raise TrainError(f"{name or 'that'} may be {len(found)} runs ({several}): say which one")
    if name is not None:
        raise NoRunError(f"there is no run {name}: see `train list`")
    kind = "run of several hosts" if across else "run"
    what = f"no {kind} is running" if going else f"there is no {kind} yet"
    raise NoRunError(f"{what}: see `train list`, or {begin_one(site)}")


def whole(run: Run) -> Run:
    """Return a run that has a record; raise TrainError for a damaged one."""
    if run.damaged:
        raise TrainError(run.damaged)
    return run


def begin_one(site: Site) -> str:
    return f"begin one with `train start {next(iter(site.presets), 'PRESET')}`"


def new_name(preset: str) -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{preset}"


def make(site: Site, name: str, *, exactly: bool) -> Path:
    """Make the folder of a new run of that name, or of one that begins so."""
    if not NAME.fullmatch(name):
        raise TrainError(f"{name!r:.80} is no name of a run")
    site.runs.mkdir(mode=0o700, exist_ok=True)
    for end in ("", *([] if exactly else (f"-{number}" for number in range(2, 1000)))):
        folder = site.runs / f"{name}{end}"
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            return folder
    raise TrainError(f"there is a run {name} here already")


def unresolved(known: Sequence[Run]) -> set[str]:
    """Return those that went wrong in the last days, and whose preset was not begun again since."""
    begun = {run.preset: run.created for run in known if not (run.trial or run.damaged)}
    wrong = (run for run in known if run.state == "ended" and run.failed and not run.trial)
    ends = [(run, run.last.ended or "") for run in wrong if run.last]
    return {run.run for run, ended in ends if max(now(-_UNRESOLVED_S), begun[run.preset]) < ended}


def forget_old(site: Site) -> None:
    """Remove runs that ended long ago; checkpoints, and what it takes to go on from them, stay."""
    ended = [run for run in all_of(site) if run.over and not run.damaged]
    for run in ended[: -site.keep_runs] if site.keep_runs else []:
        with contextlib.suppress(OSError, TrainError, ValueError, TypeError, KeyError):
            _forget(site, run)


def _forget(site: Site, run: Run) -> None:
    folder, found = Path(os.path.realpath(run.folder)), presets.found(run.settings, run.places)
    kept = [Path(os.path.realpath(each.path)) for each in found]
    if not any(each.is_relative_to(folder) for each in kept):
        code.forget(Path(site.checkout), run.run, run.code)
        shutil.rmtree(folder)
        return
    for name in ("attempts", presets.WORKTREE):
        if not any(each.is_relative_to(folder / name) for each in kept):
            shutil.rmtree(folder / name, ignore_errors=True)
