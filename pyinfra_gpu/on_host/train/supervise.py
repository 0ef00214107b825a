"""A run's supervisor, the main process of its unit: `train supervise RUN`.

It takes the GPUs, lays out the code, starts the program, writes the logs and what became of it.
systemd ends all that is left when it ends, or when somebody kills it, and starts it again where it
ends with `AGAIN`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..smoke.listening import interface_of
from . import checks, claims, code, host, presets, runs, units
from .host import Site, TrainError, now
from .metrics import MetricReader, Metrics
from .runs import Attempt, Run, tail_of, unstamped

if TYPE_CHECKING:
    from .why import Explanation

AGAIN = 75
"""Exit code after which the unit starts it again; EX_TEMPFAIL."""
MEETING_S = 60
"""Seconds that hosts wait for each other."""
_OLDER_LOGS = 2
_LONGEST_LINE = 16 << 10
_RESERVE = 1 << 20
_LOOK_S = 30.0
_LAST_LINES_S = 5.0  # for what a program has left in its pipes
_NOTIFY_S = 20.0
_LONGEST_WAIT_S = 3600.0
_RANKS_LOG = 'exec >"$0$LOCAL_RANK" 2>&1 && exec "$@"'
_FIRST = re.compile(
    r"Root Cause \(first observed failure\).*?\btime +: (\S+).*?\brank +: (\d+)", re.DOTALL
)


def supervise(site: Site, name: str) -> int:
    """Go through one attempt of a run; return 0 where its end was written down, or AGAIN."""
    run = runs.record(site.runs / name)
    try:
        return Supervisor(site, runs.whole(run)).work()
    except (TrainError, OSError) as error:
        print(error, file=sys.stderr)
        run.state, run.refused = "ended", str(error)
        with contextlib.suppress(OSError):
            if not run.damaged:
                run.save()
        return 1


class Log:
    """A log with a time before each line; two older files of it are kept."""

    def __init__(self, path: Path, mib: float) -> None:
        size = int(mib * (1 << 20))
        kept = {"maxBytes": size, "backupCount": _OLDER_LOGS}
        self._file = RotatingFileHandler(path, encoding="utf-8", **kept)  # type: ignore[arg-type]
        # What a full disk does not take stays in the file's buffer, and ends nothing.
        self._file.handleError = lambda record: None  # type: ignore[method-assign]

    def write(self, line: str) -> None:
        """Write a line."""
        self._file.handle(logging.makeLogRecord({"msg": f"{now()} {line}"}))


class Supervisor:
    """+ told: whoever started it was told that it is on, and waits no more."""

    def __init__(self, site: Site, run: Run) -> None:
        self.site, self.run, self.preset = site, run, run.settings
        self.stopping = self.told = False
        self.held = claims.Held()
        self.woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakes)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _stop(self, number: int, frame: object) -> None:
        del number, frame
        self.stopping = True

    def sleep(self, seconds: float) -> None:
        """Wait, until a child ends or somebody asks to stop at the latest."""
        if select.select([self.woken], [], [], max(0, seconds))[0]:
            os.read(self.woken, 512)

    def change(self, **changes: Any) -> None:
        """Write down what changed; a disk without room ends no run."""
        vars(self.run).update(changes)
        with contextlib.suppress(OSError):
            self.run.save()

    def on(self, what: str) -> None:
        """Have whoever started it wait no more."""
        units.notify(f"READY=1\nSTATUS={what}")
        self.told = True

    def work(self) -> int:
        """Wait where it has to, take the devices, and go through an attempt."""
        if self.run.waits:
            self._wait(host.moment(self.run.waits["until"]) or 0)
        self._claim()
        if not self.held.devices:
            self.change(state="ended", waits=None)
            return 0
        try:
            return self._attempt()
        finally:
            self.held.release()

    def _wait(self, until: float) -> None:
        """Wait after a failure, with nothing held, and go on from the newest checkpoint."""
        self.on("waits to begin again")
        while not self.stopping and time.time() < until:
            self.sleep(until - time.time())
        self.run.begin_from(self.site, self.run.resumable())

    def _claim(self) -> None:
        """Take the devices, in the run's turn; raise TrainError where it does not wait."""
        site, run = self.site, self.run
        place = claims.wait(site, run.run, run.devices) if run.queue or self.told else None
        try:
            while not self.stopping:
                got = claims.claim(site, run.run, run.devices, run.wants, place)
                if isinstance(got, claims.Held):
                    self.held = got
                    return
                if place is None:
                    who, remedy = ", ".join(got) or "other runs", checks.taken_remedy(got, run)
                    raise TrainError(f"what it needs is taken by {who}: {remedy}")
                if run.state != "queued":
                    self.change(state="queued")
                self.on(f"waits for {', '.join(got)}")
                self.sleep(1)
        finally:
            if place is not None:
                place.release()

    # -- one attempt

    def _attempt(self) -> int:
        run, number = self.run, len(self.run.attempts) + 1
        self.folder = run.attempt(number)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        code.lay_out(Path(self.site.checkout), run.folder / presets.WORKTREE, run.run, run.code)
        attempt = Attempt(number=number, started=now(), boot_id=host.boot_id())
        attempt.resumed_from = run.resumed_from
        changes = {"gpus": self.held.devices, "attempts": [*run.attempts, attempt]}
        self.change(state="running", waits=None, **changes)
        self.launcher = Log(self.folder / "launcher.log", self.site.log_mib)
        self.metrics = Metrics(run.folder / "metrics.jsonl", number)
        reserve = self.folder / ".reserve"
        with contextlib.suppress(OSError), reserve.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, _RESERVE)  # for the last words on a full disk
        if number > 1:
            self.tell("resumed")
        try:
            attempt.exit = self._program()
            attempt.outcome = "finished" if attempt.exit == 0 else "failed"
            if attempt.outcome == "failed" and not self.stopping:
                attempt.first_failed_rank, attempt.failed_at = self._first_failed()
        except (TrainError, OSError) as error:
            if not self.told:
                run.attempts.pop()  # whoever starts it is told, and nothing has run
                raise
            self.launcher.write(f"train: {error}")
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
        pipes = {name: os.pipe2(os.O_CLOEXEC) for name in names}
        links = {name: self.folder / f".{name}" for name in names}
        for name, (_, end) in pipes.items():
            links[name].unlink(missing_ok=True)
            links[name].symlink_to(f"/proc/{os.getpid()}/fd/{end}")
        process = self._start(pipes[names[0]][1])
        readers = []
        for name, (end, _) in pipes.items():
            readers.append(threading.Thread(target=self._read, args=(end, name), daemon=True))
            readers[-1].start()
        self.on("on")
        self._until_it_ends(process)
        for name, (_, end) in pipes.items():
            os.close(end)
            links[name].unlink()
        until = time.monotonic() + _LAST_LINES_S
        for reader in readers:
            reader.join(max(0, until - time.monotonic()))
        return process.returncode

    def _start(self, output: int) -> subprocess.Popen[bytes]:
        run, command, known = self.run, [*self.run.command], self.run.places
        own = {n: presets.filled(each, known) for n, each in self.preset.variables.items()}
        variables = {**host.plain_variables(), **host.declared_variables(self.site), **own}
        if run.part:
            at = command.index("--nproc-per-node")
            words, found = together(run.part, run.run, lambda: self.stopping)
            command[at:at], variables = words, {**found, **variables}
        if self.preset.launch == "torchrun":
            at = command.index("--no-python")
            ranks = ["--log-dir", f"{self.folder}/torchrun", "--no-python", "sh", "-c", _RANKS_LOG]
            command[at : at + 1] = [*ranks, f"{self.folder}/.rank"]
        return subprocess.Popen(
            command,
            cwd=run.folder / presets.WORKTREE,
            env={**variables, **presets.devices_variable(self.held.devices)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    def _read(self, source: int, name: str) -> None:
        """Write a log of what comes from a pipe, and read its steps; a bar's states are lines."""
        log, reader = self.launcher, MetricReader()
        if name != "launcher":
            log = Log(self.folder / f"{name}.log", self.site.log_mib)
        with open(source, encoding="utf-8", errors="replace") as stream:
            while line := stream.readline(_LONGEST_LINE):
                if line := line.rstrip("\n"):
                    log.write(line)
                    self.metrics.read(reader, line)

    def _until_it_ends(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for it; systemd asks it to end, and kills it where it does not."""
        stands = False
        while process.poll() is None:
            self.sleep(_LOOK_S)
            if self.stopping and self.run.state != "stopping":
                self.change(state="stopping")
            waited = self.metrics.history.stalled(time.time())
            if waited is not None and not stands:
                self.tell("stalled", stalled_seconds=round(waited))
            stands = waited is not None

    def _first_failed(self) -> tuple[int | None, float]:
        """Return which rank failed first and when, as torchrun's own summary says."""
        when = time.time()
        if self.preset.launch != "torchrun":
            return 0, when
        lines = tail_of(self.folder / "launcher.log", 64 << 10)
        found = _FIRST.search("\n".join(map(unstamped, lines)))
        if found is None:
            return None, when
        with contextlib.suppress(ValueError, OverflowError):
            when = time.mktime(time.strptime(found[1], "%Y-%m-%d_%H:%M:%S"))
        return int(found[2]), when

    def _ended(self, attempt: Attempt) -> int:
        """Write down how it ended; after a failure that mostly passes, it begins again."""
        run, found = self.run, None
        if attempt.outcome == "failed" and (found := self._explained()):
            attempt.cause = found.id
        again = found and found.passing and run.retried < run.retries
        waits = None
        if again:
            seconds = min(self.site.retry_wait_s * 2**run.retried, _LONGEST_WAIT_S)
            run.retried += 1
            why = f"retry {run.retried} of {run.retries}, after {attempt.cause}, which passes"
            waits = {"after": "failure", "for": why, "until": now(seconds)}
        self.change(state="waiting" if again else "ended", waits=waits)
        told = {"cause": found.id, "why": found.cause} if found else {}
        self.tell(str(attempt.outcome), **told)
        return AGAIN if again else 0

    def _explained(self) -> Explanation | None:
        from .why import explain

        try:
            return explain(self.site, self.run)
        except (TrainError, OSError, ValueError, KeyError, TypeError) as error:
            self.launcher.write(f"train: why it failed cannot be told: {error!r}")
            return None

    def tell(self, event: str, **more: Any) -> None:
        """Tell the declared command how the run goes, which never waits for it."""
        run, attempt, last = self.run, self.run.attempts[-1], self.metrics.history.last
        names = ("step", "steps", "loss", "not_finite", "tokens_per_second")
        resumed = attempt.resumed_from
        document = {
            "schema": 1,
            "event": event,
            "time": now(),
            **{name: getattr(run, name) for name in ("run", "host", "preset", "waits")},
            "attempt": attempt.number,
            "resumed_from": Path(resumed).name if resumed else None,
            "exit": attempt.exit,
            **{name: last.get(name) for name in names},
            **dict.fromkeys(("cause", "why", "stalled_seconds")),
            **more,
        }
        if self.site.notify:
            words = (self.site.notify, document, self.launcher.write)
            threading.Thread(target=tell, args=words).start()


def together(
    part: dict[str, Any], run: str, stopped: Callable[[], bool]
) -> tuple[list[str], dict[str, str]]:
    """Return torchrun's words and variables for a run that several hosts train together.

    + part: of this host, see `starting.part_of`; all meet at the first one's address

    Raises TrainError where that cannot be reached.
    """
    leads = part["host"] == part["hosts"][0]
    local = part["address"] if leads else _reached(part, stopped)
    conf = f"is_host={str(leads).lower()},join_timeout={MEETING_S},read_timeout={MEETING_S}"
    words = [
        *("--rdzv-id", run, "--rdzv-backend", "c10d", "--rdzv-conf", conf),
        *("--rdzv-endpoint", f"{part['address']}:{part['port']}", "--local-addr", local),
    ]
    name = interface_of(local)
    both = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    return words, dict.fromkeys(both, name) if name else {}


def _reached(part: dict[str, Any], stopped: Callable[[], bool]) -> str:
    """Return the address of this host from which it reaches the first one, as soon as it does."""
    until, why = time.monotonic() + MEETING_S, "no answer"
    while time.monotonic() < until and not stopped():
        try:
            with socket.create_connection((part["address"], part["port"]), timeout=3) as there:
                return str(there.getsockname()[0])
        except OSError as error:
            why = error.strerror or str(error)
        time.sleep(0.2)
    first = part["hosts"][0]
    at = f"{first} at {part['address']}:{part['port']}"
    what = f"{part['host']} could not reach {at} within {MEETING_S} s ({why})"
    remedy = f"let TCP through between the hosts, or declare smoke_across_address for {first}"
    raise TrainError(f"{what}: {remedy}")


def tell(command: Sequence[str], document: dict[str, Any], say: Callable[[str], object]) -> None:
    """Run the command of `training_notify` with a document; say what went wrong."""
    given = {"cwd": "/", "env": host.plain_variables(), "start_new_session": True}
    given |= {"capture_output": False, **dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)}
    text = f"{json.dumps(document)}\n"
    said = host.call(*command, input=text, seconds=_NOTIFY_S, **given)
    if said.returncode:
        why = said.stderr or f"ended with {said.returncode}"
        say(f"train: the command of training_notify {why}")
