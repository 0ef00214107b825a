"""A run's supervisor, the main process of its unit: `train supervise RUN`.

It takes the GPUs, lays out the code, starts the program, writes the logs and what became of it.
systemd ends all that is left when it ends, or when somebody kills it, and starts it again after a
while where it ends with `AGAIN`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from ..diagnosis import causes, explain  # noqa: F401 - see `supervise`
from ..smoke.listening import interface_of, seen_by
from . import claims, code, host, presets, runs, starting, units, views
from .host import Site, TrainError, now
from .metrics import Metrics, formats
from .runs import Attempt, Run, tail_of

Log = Callable[[str], object]
AGAIN = 75
"""Exit code after which the unit starts it again; EX_TEMPFAIL."""
MEETING_S = 60
"""Seconds that hosts wait for each other."""
_LONGEST_LINE = 16 << 10
_RESERVE = 1 << 20  # for the last words on a full disk
_LOOK_S = 30.0
_LAST_LINES_S = 5.0  # for what a program has left in its pipes
_NOTIFY_S = 20.0
_RANKS_LOG = 'exec >"$0$LOCAL_RANK" 2>&1 && exec "$@"'
_FIRST = re.compile(r"Root Cause \(first observed failure\).*?\brank +: (\d+)", re.DOTALL)


def supervise(site: Site, name: str) -> int:
    """Go through one attempt of a run; return 0 where its end was written down, or AGAIN."""
    run = runs.record(site.runs / name)
    # All that it will need is read now: a deploy may replace the program while the run is on.
    formats()
    causes.carried()
    try:
        return Supervisor(site, runs.whole(run)).work()
    except (TrainError, OSError) as error:
        print(error, file=sys.stderr)
        run.state, run.refused = "ended", str(error)
        with contextlib.suppress(OSError):
            if not run.damaged:
                run.save()
        return 1


def log_to(path: Path, mib: float) -> Log:
    """Return what writes a line with its time to a log, of which two older files are kept."""
    size = int(mib * (1 << 20))
    file = RotatingFileHandler(path, maxBytes=size, backupCount=2, encoding="utf-8", delay=True)
    # What a full disk does not take stays in the file's buffer, and ends nothing.
    file.handleError = lambda record: None  # type: ignore[method-assign]
    return lambda line: file.handle(logging.makeLogRecord({"msg": f"{now()} {line}"}))


class Supervisor:
    """Takes a run through an attempt, and writes down what it does in `run.json`."""

    def __init__(self, site: Site, run: Run) -> None:
        self.site, self.run, self.preset = site, run, run.settings
        self.stopping = False
        self.woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakes)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _stop(self, *_: object) -> None:
        self.stopping = True

    def sleep(self, seconds: float) -> None:
        """Wait, until a child ends or somebody asks to stop at the latest."""
        if select.select([self.woken], [], [], seconds)[0]:
            os.read(self.woken, 512)

    def change(self, **changes: Any) -> None:
        """Write down what changed; a disk without room ends no run."""
        vars(self.run).update(changes)
        with contextlib.suppress(OSError):
            self.run.save()

    def work(self) -> int:
        """Take the devices, and go through an attempt."""
        if self.run.retried:
            self.run.begin_from(self.site, self.run.resumable())
        if (held := self._claim()) is None:
            self.change(state="ended", waits="")
            return 0
        try:
            return self._attempt(held.devices)
        finally:
            held.release()

    def _claim(self) -> claims.Held | None:
        """Take the devices, in the run's turn; raise TrainError where it does not wait."""
        site, run = self.site, self.run
        waits = run.queue or run.retried > 0
        place = claims.wait(site, run.run, run.devices) if waits else claims.Held()
        try:
            while not self.stopping:
                got = claims.claim(site, run.run, run.devices, run.wants, place)
                if isinstance(got, claims.Held):
                    return got
                if not waits:
                    who, remedy = ", ".join(got) or "other runs", starting.taken_remedy(got, run)
                    raise TrainError(f"what it needs is taken by {who}: {remedy}")
                if run.state != "queued":
                    self.change(state="queued")
                    units.ready()
                self.sleep(1)
        finally:
            place.release()
        return None

    # -- one attempt

    def _attempt(self, devices: list[str]) -> int:
        run, number = self.run, len(self.run.attempts) + 1
        self.folder = run.attempt(number)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        code.lay_out(Path(self.site.checkout), run.folder / runs.WORKTREE, run.run, run.code)
        attempt = Attempt(number=number, started=now(), resumed_from=run.resumed_from)
        changes = {"gpus": devices, "attempts": [*run.attempts, attempt]}
        self.change(state="running", waits="", **changes)
        units.ready()
        self.launcher = log_to(self.folder / "launcher.log", self.site.log_mib)
        self.metrics = Metrics(run.folder / "metrics.jsonl", number)
        reserve = self.folder / ".reserve"
        with contextlib.suppress(OSError), reserve.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, _RESERVE)
        if number > 1:
            self.notify("resumed")
        try:
            attempt.exit = self._program()
            attempt.outcome = "finished" if attempt.exit == 0 else "failed"
            if attempt.outcome == "failed" and not self.stopping:
                attempt.first_failed_rank = self._first_failed()
        except (TrainError, OSError) as error:
            self.launcher(f"train: {error}")
            attempt.outcome = "failed"
        finally:
            reserve.unlink(missing_ok=True)
        attempt.outcome = "stopped" if self.stopping else attempt.outcome
        attempt.ended = now()
        return self._ended(attempt)

    def _program(self) -> int:
        """Run the program to its end, with its logs; return its exit code."""
        names = [f"rank{rank}" for rank in range(self.run.nproc)]
        names[:0] = ["launcher"] if self.preset.launch == "torchrun" else []
        pipes = [self.folder / f".{name}" for name in names]
        readers = []
        for name, pipe in zip(names, pipes, strict=True):
            pipe.unlink(missing_ok=True)
            os.mkfifo(pipe, 0o600)
            readers.append(threading.Thread(target=self._read, args=(pipe, name), daemon=True))
            readers[-1].start()
        with pipes[0].open("wb") as output:
            process = self._start(output)
        self._until_it_ends(process)
        for pipe in pipes:
            with contextlib.suppress(OSError):  # a rank that never was lets its reader wait
                os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
            pipe.unlink()
        until = time.monotonic() + _LAST_LINES_S
        for reader in readers:
            reader.join(max(0, until - time.monotonic()))
        return process.returncode

    def _start(self, output: Any) -> subprocess.Popen[bytes]:
        run, command, known = self.run, [*self.run.command], self.run.places
        # Of the environment file, which the unit has read.
        declared = {n: os.environ[n] for n in self.site.env_names if n in os.environ}
        variables = {**host.plain_variables(), **declared}
        if run.part:
            at = command.index("--nproc-per-node")
            command[at:at], found = rendezvous(run.part, run.run)
            variables = {**found, **variables}
        gpus = [each for each in run.gpus if each != host.CPU]
        variables |= {n: presets.filled(each, known) for n, each in self.preset.variables.items()}
        if self.preset.launch == "torchrun":
            at = command.index("--no-python")
            ranks = ["--log-dir", f"{self.folder}/torchrun", "--no-python", "sh", "-c", _RANKS_LOG]
            command[at : at + 1] = [*ranks, f"{self.folder}/.rank"]
        return subprocess.Popen(
            command,
            cwd=run.folder / runs.WORKTREE,
            env={**variables, "CUDA_VISIBLE_DEVICES": ",".join(gpus)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    def _read(self, pipe: Path, name: str) -> None:
        """Write a log of what comes from a pipe, and read its steps; a bar's states are lines."""
        log = self.launcher
        if name != "launcher":
            log = log_to(self.folder / f"{name}.log", self.site.log_mib)
        with pipe.open(encoding="utf-8", errors="replace") as stream:
            while line := stream.readline(_LONGEST_LINE):
                if line := line.rstrip("\n"):
                    log(line)
                    if name == "rank0":
                        self.metrics.read(line)

    def _until_it_ends(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for it; systemd asks it to end, and kills it where it does not."""
        stands = False
        while process.poll() is None:
            self.sleep(_LOOK_S)
            if self.stopping and self.run.state != "stopping":
                self.change(state="stopping")
            waited = self.metrics.history.stalled(time.time())
            if waited is not None and not stands:
                self.notify("stalled")
            stands = waited is not None

    def _first_failed(self) -> int | None:
        """Return which rank failed first, as torchrun's own summary says."""
        if self.preset.launch != "torchrun":
            return 0
        found = _FIRST.search("\n".join(tail_of(self.folder / "launcher.log", 64 << 10)))
        return int(found[1]) if found else None

    def _ended(self, attempt: Attempt) -> int:
        """Write down how it ended; after a failure that mostly passes, it begins again."""
        run, found, waits = self.run, None, ""
        if attempt.outcome == "failed":
            try:
                found = views.explain(self.site, run)
                attempt.cause = found.id
            except (TrainError, OSError, ValueError, KeyError, TypeError) as error:
                self.launcher(f"train: why it failed is not known: {error!r}")
        if found and found.passing and run.retried < run.retries:
            run.retried += 1
            waits = f"until {now(self.site.retry_wait_s)}, for retry {run.retried} of {run.retries}"
            waits += f" after {attempt.cause}, which mostly passes"
        self.change(state="waiting" if waits else "ended", waits=waits)
        self.notify(str(attempt.outcome), found.cause if found else None)
        return AGAIN if waits else 0

    def notify(self, event: str, why: str | None = None) -> None:
        """Tell the declared command how the run goes, which never waits for it."""
        if self.site.notify:
            known = views.document(replace(self.run))  # with what its log says by now
            document = {"schema": 1, "event": event, "time": now(), "why": why, **known}
            words = (self.site.notify, document, self.launcher)
            threading.Thread(target=notified, args=words).start()


def rendezvous(part: dict[str, Any], run: str) -> tuple[list[str], dict[str, str]]:
    """Return torchrun's words and variables for a run that several hosts train together.

    + part: of this host, see `starting.part_of`; all meet at the first one's address
    """
    leads, local = part["host"] == part["hosts"][0], seen_by(part["address"])
    conf = f"is_host={str(leads).lower()},join_timeout={MEETING_S},read_timeout={MEETING_S}"
    words = [
        *("--rdzv-id", run, "--rdzv-backend", "c10d", "--rdzv-conf", conf),
        *("--rdzv-endpoint", f"{part['address']}:{part['port']}", "--local-addr", local),
    ]
    name = interface_of(local)
    both = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    return words, dict.fromkeys(both, name) if name else {}


def notified(command: list[str], document: dict[str, Any], log: Log) -> None:
    """Run the command of `training_notify` with a document; log what went wrong."""
    given = {"cwd": "/", "env": host.plain_variables(), "start_new_session": True}
    given |= dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
    said = host.call(*command, input=f"{json.dumps(document)}\n", seconds=_NOTIFY_S, **given)
    if said.returncode:
        why = said.stderr or f"ended with {said.returncode}"
        log(f"train: the command of training_notify {why}")
