"""The runs of a host: what `run.json` holds, what became of a run, and which one is meant.

Whether a run is on is asked in one place, `_with_states`: of `run.json`, and of systemd.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
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
NAME = re.compile(r"[0-9]{8}-[0-9]{6}-[a-z0-9][a-z0-9_-]{0,39}", re.ASCII)
WORKTREE = "code"
"""In a run's folder; there its program runs, so there a relative path begins."""
_LARGEST = 4 << 20
_REBOOT_WAIT_S = 86400.0  # in which a host is proven after a boot


@dataclass(kw_only=True)
class Attempt:
    """One start of a run's program; `outcome` is None as long as it is on."""

    number: int
    started: str | None = None
    ended: str | None = None
    resumed_from: str | None = None
    exit: int | None = None
    outcome: str | None = None  # finished, failed, stopped or lost
    first_failed_rank: int | None = None
    cause: str | None = None
    stopped_by: str | None = None


@dataclass(kw_only=True)
class Run:
    """A run, in the form in which `run.json` has it.

    + spec: its preset with all settings; + words: what stood behind `--`
    + code: [path, HEAD, commit] of the repository and its submodules
    + devices: those that it may have; + gpus: those that it has
    + part: of a run of several hosts, see `starting.Part`
    + waits: until when, and for what, after a failure that mostly passes
    + boot_id: of the boot on which it was started last
    + after_reboot: whether it goes on by itself after one that cut it off
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
    unproven: bool = False
    retries: int = 0
    trial: bool = False
    created: str = ""
    waits: str = ""
    attempts: list[Attempt] = field(default_factory=list)
    spec: dict[str, Any] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    code: list[list[str]] = field(default_factory=list)
    part: dict[str, Any] | None = None
    devices: list[str] = field(default_factory=list)
    ranks: int = 1
    queue: bool = False
    retried: int = 0
    after_reboot: bool = False
    boot_id: str = ""
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
    def goes_on(self) -> bool:
        """Whether it goes on by itself: a reboot cut it off, and the host is to be proven first."""
        cut_off = self.over and self.outcome in ("lost", "stopped", "not started")
        up = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
        return self.after_reboot and cut_off and self.boot_id != boot_id() and up < _REBOOT_WAIT_S

    # -- what it is made of

    @property
    def dirty(self) -> bool:
        """Whether its code is more than a commit of a person's."""
        return any(head != commit for _, head, commit in self.code)

    @property
    def across(self) -> list[str] | None:
        """The hosts that train it together."""
        return self.part["hosts"] if self.part else None

    @property
    def nproc(self) -> int:
        return 1 if self.settings.launch == "python" else self.ranks

    @property
    def world(self) -> int:
        """Ranks of all hosts together."""
        return self.nproc * len(self.across or "1")

    @property
    def wants(self) -> int:
        """How many of its devices it takes."""
        return 1 if self.devices == [CPU] else self.ranks

    @property
    def settings(self) -> presets.Preset:
        return presets.from_json(str(self.preset), self.spec)

    @property
    def places(self) -> dict[str, object]:
        """What `{...}` in a text of its preset stands for."""
        own = {"run": str(self.folder), "name": self.folder.name, "ranks": self.nproc}
        known = {**own, "home": str(Path.home())}
        arguments = {
            name: presets.filled(value, known) if isinstance(value, str) else value
            for name, value in self.settings.arguments.items()
            if value is not None
        }
        return {**arguments, **known}

    def begin_from(self, site: Site, point: Path | None) -> None:
        """Have the command begin at a checkpoint, or at the beginning."""
        preset, known = self.settings, self.places
        if point:
            known |= {"checkpoint": str(point), "step": step_of(point)}
        arguments = {**preset.arguments, **(preset.resume if point else {})}
        program = ["-m", preset.module] if preset.module else [str(preset.file)]
        program += presets.argument_words(arguments, known)
        program += [presets.filled(word, known) for word in preset.words]
        self.command = [site.python, "-u", *program, *self.words]
        self.resumed_from = str(point) if point else None
        if preset.launch == "torchrun":
            nodes = ["--nnodes", str(len(self.across))] if self.across else ["--standalone"]
            ranks = ["--nproc-per-node", str(self.ranks), "--no-python"]
            launcher = [site.python, "-m", "torch.distributed.run"]
            self.command = [*launcher, *nodes, *ranks, *self.command]

    def attempt(self, number: int | None = None) -> Path:
        """Return the folder of an attempt, the last one where none is said."""
        return self.folder / "attempts" / str(number or max(1, len(self.attempts)))

    def logs(self) -> list[Path]:
        """Return the logs of the last attempt's ranks, by rank."""
        return sorted(self.attempt().glob("rank*.log"), key=rank_of)

    # -- its checkpoints

    @property
    def pattern(self) -> str | None:
        """Where its checkpoints are, as a glob with an absolute path."""
        if (given := self.settings.checkpoints) is None:
            return None
        return os.path.normpath(self.folder / WORKTREE / presets.filled(given, self.places))

    @property
    def saves(self) -> Path | None:
        """The folder above the first part of the pattern that is no plain name."""
        return Path(re.split(r"[*?[]", self.pattern)[0] + "x").parent if self.pattern else None

    def checkpoints(self) -> list[Path]:
        """Return all that the pattern matches, the newest step last."""
        paths = map(Path, glob.glob(self.pattern or ""))  # noqa: PTH207 - it is an absolute one
        return sorted(paths, key=lambda path: (int(step_of(path) or 0), path))

    def newest(self) -> Path | None:
        """Return the newest complete checkpoint that it has written."""
        since = moment(self.created) or 0
        for each in reversed(self.checkpoints()):
            if each.stat().st_mtime >= since and self._complete(each):
                return each
        return None

    def resumable(self) -> Path | None:
        """Return the newest complete checkpoint, where its preset says how to go on from one."""
        return self.newest() if self.settings.resume else None

    def _complete(self, point: Path) -> bool:
        """Tell whether its files are there, of just so many ranks, and none is empty."""
        folder, own = (point, []) if point.is_dir() else (point.parent, [point.name])
        known = {**self.places, "checkpoint": str(point), "step": step_of(point) or "*"}

        def file(pattern: str, rank: int) -> Path:
            return folder / presets.filled(pattern, {**known, "rank": rank})

        for pattern in (*self.settings.complete, *own):
            ranked = "{rank}" in pattern
            paths = [file(pattern, rank) for rank in range(self.world if ranked else 1)]
            if not all(path.is_file() and path.stat().st_size for path in paths):
                return False
            if ranked and file(pattern, self.world).exists():
                return False  # it is of a run with more ranks
        return True


def step_of(point: Path) -> str:
    """Return the step of a checkpoint: the last digits in its name, as they stand there."""
    numbers: list[str] = re.findall("[0-9]+", point.name)
    return numbers[-1] if numbers else ""


def tail_of(path: Path, size: int) -> Iterator[str]:
    """Yield the lines of a log's end without their times; none where it cannot be read."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - size))
        for line in file.read(size).decode("utf-8", "replace").splitlines():
            stamp, _, rest = line.partition(" ")
            yield line if moment(stamp) is None else rest


def rank_of(log: Path) -> int:
    return int(log.stem.removeprefix("rank"))


# -- reading them


def read(folder: Path) -> Run:
    """Return a run as it is now; nothing is written."""
    return _with_states([record(folder)])[0]


def all_of(site: Site) -> list[Run]:
    """Return all runs as they are now, the newest last."""
    return _with_states([record(site.runs / name) for name in names(site)])


def _with_states(known: list[Run]) -> list[Run]:
    """Return runs as they are: what no unit runs any more is lost."""
    on = units.on() if any(run.state != "ended" for run in known) else set()
    for place, run in enumerate(known):
        if run.damaged:
            run.state = "running" if run.run in on else "damaged"
            continue
        if not (run.over or run.run in on):
            run = known[place] = record(run.folder)  # it may have ended since
            if not run.over and run.last is not None and run.last.outcome is None:
                run.last.outcome, run.last.ended = "lost", _last_sign(run.folder)
            run.state, run.waits = "damaged" if run.damaged else "ended", ""
    return known


def _last_sign(folder: Path) -> str:
    """Return when something of a run was last written."""
    paths = (folder / "run.json", folder / "metrics.jsonl", *folder.glob("attempts/*/*.log"))
    return now(max(path.stat().st_mtime for path in paths if path.exists()) - time.time())


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
    return sorted(filter(NAME.fullmatch, found))


def chosen(site: Site, name: str | None, *, going: bool = False, across: bool = False) -> Run:
    """Return the run that is meant, by its name, or the beginning or the end of that.

    + going: only one that is on; + across: of those without a name, only one of several hosts
    """
    found = [run for run in all_of(site) if name is not None or run.across or not across]
    if name is not None:
        like = [run for run in found if run.run.startswith(name) or run.run.endswith(name)]
        found = [run for run in found if run.run == name] or like
    if going:
        found = [run for run in found if not run.over] or (found if name else [])
    elif name is None:
        found = found[-1:]
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


def make(site: Site, preset: str, name: str | None) -> Path:
    """Make the folder of a new run: of that name, or of one that nobody has."""
    if name is not None and not NAME.fullmatch(name):
        raise TrainError(f"{name!r:.80} is no name of a run")
    site.runs.mkdir(mode=0o700, exist_ok=True)
    while True:
        folder = site.runs / (name or new_name(preset))
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            return folder
        if name:
            raise TrainError(f"there is a run {name} here already")
        time.sleep(0.1)  # a name is of a second


def unresolved(known: Sequence[Run]) -> set[str]:
    """Return those that went wrong, and whose preset was not begun again since."""
    begun = {run.preset: run.created for run in known if not (run.trial or run.damaged)}
    wrong = [run for run in known if run.state == "ended" and run.failed and not run.trial]
    return {run.run for run in wrong if run.last and begun[run.preset] < (run.last.ended or "")}


def forget_old(site: Site) -> None:
    """Remove runs that ended long ago; checkpoints, and what it takes to go on from them, stay."""
    ended = [run for run in all_of(site) if run.over and not run.damaged]
    for run in ended[: -site.keep_runs] if site.keep_runs else []:
        with contextlib.suppress(OSError, TrainError, ValueError, TypeError, KeyError):
            folder, kept = run.folder.resolve(), [each.resolve() for each in run.checkpoints()]
            for path in (folder / "attempts", folder / WORKTREE, folder):
                if not any(each.is_relative_to(path) for each in kept):
                    shutil.rmtree(path, ignore_errors=True)
            if not folder.exists():
                code.forget(Path(site.checkout), run.run, run.code)
