"""A run's supervisor, the main process of its unit: `train supervise RUN`.

It takes the GPUs, lays out the code, starts the program, writes the logs and what became of it.
systemd ends all that is left when it ends, or when somebody kills it, and starts it again where it
ends with `AGAIN`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..smoke import files
from . import checks, claims, code, host, presets, runs, several, units
from .host import CPU, Site, TrainError, now
from .metrics import MetricReader, Metrics, stalled
from .runs import Attempt, Run
from .watch import tail_of, unstamped

AGAIN = 75
"""Exit code after which the unit starts it again; EX_TEMPFAIL."""
KEPT = 2
"""Older files of a log that was rotated."""
_LONGEST_LINE = 16 << 10
_PENDING = 64 << 10
_RESERVE = 1 << 20
_LOOK_S = 30.0
_NOTIFY_S = 20.0
_EXPLAINED_S = 60.0
_LONGEST_WAIT_S = 3600.0
_RANKS_LOG = 'exec >"$0$LOCAL_RANK" 2>&1 && exec "$@"'
_FIRST = re.compile(
    r"Root Cause \(first observed failure\).*?\btime +: (\S+).*?\brank +: (\d+)", re.DOTALL
)


def supervise(site: Site, name: str) -> int:
    """Go through one attempt of a run; return 0 where its end was written down, or AGAIN."""
    try:
        supervisor = Supervisor(site, runs.read(site.runs / name))
        busy = f"run {name} is on already: see `train watch {name}`"
        with supervisor.run.locked(".alive", 2.5, busy):
            return supervisor.work()
    except (TrainError, OSError) as error:
        print(error, file=sys.stderr)
        with contextlib.suppress(OSError):
            files.write_text(site.runs / name / "refusal", f"{error}\n")
        return 1


class Supervisor:
    """+ told: whoever started it was told that it is on, and waits no more."""

    def __init__(self, site: Site, run: Run) -> None:
        if run.damaged:
            raise TrainError(run.damaged)
        self.site, self.run, self.preset = site, run, run.settings()
        self.stopping = self.told = False
        self.held = claims.Held()
        self.telling: list[threading.Thread] = []
        self.woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakes)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _stop(self, number: int, frame: object) -> None:
        del number, frame
        self.stopping = True

    def _say(self, text: str) -> None:
        log = Log(self.run.attempt() / "launcher.log", self.site.log_mib << 20)
        log.feed(f"train: {text}\n".encode())
        log.close()

    def sleep(self, seconds: float) -> None:
        """Wait, until somebody asks to stop at the latest."""
        if select.select([self.woken], [], [], max(0, seconds))[0]:
            os.read(self.woken, 512)

    def change(self, **changes: Any) -> None:
        """Write down what changed; a disk without room ends no run."""
        if any(getattr(self.run, name) != each for name, each in changes.items()):
            for name, each in changes.items():
                setattr(self.run, name, each)
            with contextlib.suppress(OSError):
                self.run.save()

    def on(self, what: str) -> None:
        units.notify(f"READY=1\nSTATUS={what}")
        self.told = True

    def work(self) -> int:
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
            for each in self.telling:
                each.join()

    def _wait(self, until: float) -> None:
        """Wait after a failure, with nothing held, and go on from the newest checkpoint."""
        self.on("waits to begin again")
        while not self.stopping and time.time() < until:
            self.sleep(until - time.time())
        self.run.go_on_from_newest(self.site)

    def _claim(self) -> None:
        """Take the devices, in the run's turn; raise TrainError where it does not wait."""
        site, run = self.site, self.run
        count = 1 if run.devices == [CPU] else run.ranks
        place = claims.wait(site, run.run, run.devices) if run.queue or self.told else None
        try:
            while not self.stopping:
                got = claims.claim(site, run.run, run.devices, count, place)
                if isinstance(got, claims.Held):
                    self.held = got
                    return
                if place is None:
                    who, hosts = ", ".join(got) or "other runs", len(run.across or "1")
                    remedy = checks.taken_remedy(got, hosts)
                    raise TrainError(f"what it needs is taken by {who}: {remedy}")
                self.change(state="queued")
                self.on(f"waits for {', '.join(got)}")
                self.sleep(1)
        finally:
            if place is not None:
                place.release()

    def _attempt(self) -> int:
        """Go through one attempt, and write down how it ended."""
        run, number = self.run, len(self.run.attempts) + 1
        folder = run.attempt(number)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        code.lay_out(Path(self.site.checkout), run.folder / code.WORKTREE, run.run, run.code)
        attempt = Attempt(
            number=number, started=now(), boot_id=host.boot_id(), resumed_from=run.resumed_from
        )
        changes = {"gpus": self.held.devices, "attempts": [*run.attempts, attempt]}
        self.change(state="running", waits=None, **changes)
        program = Program(self, folder)
        if number > 1:
            program.tell("resumed")
        try:
            program.go_through(attempt)
        except (TrainError, OSError) as error:
            if not self.told:
                run.attempts.pop()  # whoever starts it is told, and nothing has run
                raise
            self._say(str(error))
            attempt.outcome = "stopped" if self.stopping else "failed"
        finally:
            program.close()
        attempt.ended = now()
        return self._ended(attempt, program)

    def _ended(self, attempt: Attempt, program: Program) -> int:
        run = self.run
        cause: dict[str, Any] = {"id": None, "cause": None, "passing": False}
        if attempt.outcome == "failed":
            with contextlib.suppress(OSError):
                run.save()
            cause = self._explained() or cause
            attempt.cause = cause["id"]
        again = cause["passing"] and run.retried < run.retries and not self.stopping
        if again:
            seconds = min(self.site.retry_wait_s * 2**run.retried, _LONGEST_WAIT_S)
            run.retried += 1
            why = f"retry {run.retried} of {run.retries}, after {attempt.cause}, which passes"
            run.waits = {"after": "failure", "for": why, "until": now(seconds)}
        run.state = "waiting" if again else "ended"
        with contextlib.suppress(OSError):
            run.save()
        program.tell(str(attempt.outcome), cause=cause["id"], why=cause["cause"])
        return AGAIN if again else 0

    def _explained(self) -> dict[str, Any] | None:
        """Return what `why` says; in a process of its own, since the catalogue is large."""
        words = [sys.argv[0], "why", self.run.run, "--json"]
        try:
            said = subprocess.run(
                words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_EXPLAINED_S
            )
            told = json.loads(said.stdout)
            return {name: told[name] for name in ("id", "cause", "passing")}
        except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
            return None

    def tell(self, document: dict[str, Any]) -> None:
        """Have the declared command told, which never keeps the run waiting."""
        if self.site.notify:
            words = [self.site.notify, document, self._say]
            self.telling.append(threading.Thread(target=tell, args=words))
            self.telling[-1].start()


def tell(command: Sequence[str], document: dict[str, Any], say: Callable[[str], object]) -> None:
    """Run the command of `training_notify` with a document; say what went wrong."""
    try:
        said = subprocess.run(
            command,
            input=f"{json.dumps(document)}\n".encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=host.plain_variables(),
            start_new_session=True,
            timeout=_NOTIFY_S,
            check=False,
        )
        why = f"ended with {said.returncode}" if said.returncode else ""
    except subprocess.TimeoutExpired:
        why = f"took over {_NOTIFY_S:.0f} s"
    except (OSError, ValueError) as error:
        why = f"cannot be run: {error}"
    if why:
        say(f"the command of training_notify {why}")


class Program:
    """The program of one attempt, and where its output goes: a pipe and a log for each rank."""

    def __init__(self, whole: Supervisor, folder: Path) -> None:
        self.whole, self.folder, run = whole, folder, whole.run
        largest = whole.site.log_mib << 20
        self.torchrun = whole.preset.launch == "torchrun"
        self.metrics = Metrics(run.folder / "metrics.jsonl", len(run.attempts))
        self.launcher = Log(folder / "launcher.log", largest)
        ranks = range(whole.preset.processes(run.ranks))
        self.logs = [Log(folder / f"rank{n}.log", largest, self._reader()) for n in ranks]
        self.sources: dict[int, Log] = {}
        self.stands = False  # whether it was told that it stands still
        self._reserve = folder / ".reserve"
        with contextlib.suppress(OSError), self._reserve.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, _RESERVE)  # for the last words on a full disk

    def _reader(self) -> Callable[[str], None]:
        reader = MetricReader()
        return lambda line: self.metrics.read(reader, line)

    def go_through(self, attempt: Attempt) -> None:
        own, output = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(own, False)
        self.sources[own] = self.launcher if self.torchrun else self.logs[0]
        process = self._start(output)
        os.close(output)
        self.whole.on("on")
        attempt.exit = self._follow(process)
        attempt.outcome = "finished" if attempt.exit == 0 else "failed"
        if self.whole.stopping:
            attempt.outcome = "stopped"
        elif attempt.exit != 0:
            attempt.first_failed_rank, attempt.failed_at = self._first_failed()

    def _first_failed(self) -> tuple[int | None, float]:
        """Return which rank failed first and when, as torchrun's own summary says."""
        if not self.torchrun:
            return 0, time.time()
        found = _FIRST.search("\n".join(map(unstamped, tail_of(self.launcher.path, 64 << 10))))
        when = time.time()
        if found is None:
            return None, when
        with contextlib.suppress(ValueError, OverflowError):
            when = time.mktime(time.strptime(found[1], "%Y-%m-%d_%H:%M:%S"))
        return int(found[2]), when

    def _start(self, output: int) -> subprocess.Popen[bytes]:
        whole, run, command = self.whole, self.whole.run, [*self.whole.run.command]
        known = presets.values(whole.preset, run.folder, run.ranks)
        own = {n: presets.filled(each, known) for n, each in whole.preset.variables.items()}
        declared = {**host.declared_variables(whole.site), **own}
        if run.part:
            command, found = several.with_rendezvous(
                run.part, run.run, command, lambda: whole.stopping
            )
            declared = {**found, **declared}
        if self.torchrun:
            at = command.index("--no-python")
            ranks = ["--log-dir", f"{self.folder}/torchrun", "--no-python", "sh", "-c", _RANKS_LOG]
            command[at : at + 1] = [*ranks, f"{self.folder}/.pipe"]
            for rank, log in enumerate(self.logs):
                path = self.folder / f".pipe{rank}"
                path.unlink(missing_ok=True)
                os.mkfifo(path, 0o600)
                flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
                self.sources[os.open(path, flags)] = log
        devices = presets.devices_variable(whole.held.devices)
        return subprocess.Popen(
            command,
            cwd=run.folder / code.WORKTREE,
            env={**host.plain_variables(), **declared, **devices},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    def _follow(self, process: subprocess.Popen[bytes]) -> int:
        """Write its logs until it ends; systemd asks it to, and ends it where it does not."""
        whole, ends = self.whole, os.pidfd_open(process.pid)
        try:
            while True:
                ready = select.select([*self.sources, ends, whole.woken], [], [], _LOOK_S)[0]
                self._read([each for each in ready if each in self.sources])
                if whole.woken in ready:
                    os.read(whole.woken, 512)
                if whole.stopping:
                    whole.change(state="stopping")
                if ends in ready:
                    code_ = process.wait()
                    while ready := select.select([*self.sources], [], [], 0)[0]:
                        if not self._read(ready):
                            break
                    return code_
                self._look()
        finally:
            os.close(ends)

    def _read(self, descriptors: Sequence[int]) -> bool:
        read = False
        for descriptor in descriptors:
            with contextlib.suppress(BlockingIOError):
                chunk = os.read(descriptor, 64 << 10)
                if chunk:
                    self.sources[descriptor].feed(chunk)
                    read = True
                else:
                    os.close(descriptor)
                    del self.sources[descriptor]
        return read

    def _look(self) -> None:
        waited = stalled(self.metrics.times, time.time())
        if waited is not None and not self.stands:
            self.tell("stalled", stalled_seconds=round(waited))
        self.stands = waited is not None

    def tell(self, event: str, **more: Any) -> None:
        """Tell the declared command how the run goes; docs/train.md has the form."""
        run, attempt, last = self.whole.run, self.whole.run.attempts[-1], self.metrics.last
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
        self.whole.tell(document)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._reserve.unlink()
        for log in (*self.logs, self.launcher):
            log.close()
        self.metrics.close()
        for descriptor in self.sources:
            os.close(descriptor)
        for path in self.folder.glob(".pipe*"):
            path.unlink()


class Log:
    """A log with a time before each line, rotated when it is large.

    + told: called with each line; what has no room is kept in memory, the last of it
    """

    def __init__(
        self, path: Path, largest: int, told: Callable[[str], object] = lambda line: None
    ) -> None:
        self.path, self.largest, self.told = path, largest, told
        self._rest, self._pending = b"", b""
        self._descriptor = self._opened()

    def feed(self, chunk: bytes) -> None:
        *lines, rest = (self._rest + chunk.replace(b"\r", b"\n")).split(b"\n")
        self._rest = rest[:_LONGEST_LINE]
        stamp = f"{now()} ".encode()
        for line in filter(None, lines):
            self._pending += stamp + line[:_LONGEST_LINE] + b"\n"
            self.told(line[:_LONGEST_LINE].decode("utf-8", "replace"))
        self._write()

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            size = os.fstat(self._descriptor).st_size
            if size and size + len(self._pending) > self.largest:
                self._rotate()
            while self._pending:
                self._pending = self._pending[os.write(self._descriptor, self._pending) :]
        self._pending = self._pending[-_PENDING:]

    def _rotate(self) -> None:
        older = [self.path, *(Path(f"{self.path}.{number + 1}") for number in range(KEPT))]
        for new, old in zip(older[:0:-1], older[-2::-1], strict=True):
            if old.exists():
                old.replace(new)
        os.close(self._descriptor)
        self._descriptor = self._opened()

    def _opened(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self.path, flags, 0o600)

    def close(self) -> None:
        if self._rest:
            self.feed(b"\n")
        self._write()
        os.close(self._descriptor)


# -- after a boot


def again(site: Site) -> int:
    """Let runs go on that a reboot cut off, as soon as the host is proven; others wait no more.

    What one of them meets, such as a full disk, is no matter of the others'.
    """
    until = now(site.reboot_wait_s)
    waiting = [run for run in runs.all_of(site) if _goes_on(run)]
    for run in waiting:
        _wait(run, "the first look at this host", until)
    while waiting and now() < until:
        waiting = [run for run in waiting if _still_waits(site, run, until)]
        if waiting:
            time.sleep(10)
    for run in waiting:
        run.state, run.after_reboot = "ended", False
        with contextlib.suppress(OSError):
            run.save()
    return 0


def _goes_on(run: Run) -> bool:
    """Tell whether an earlier boot cut a run off that asks to go on."""
    if run.damaged or not run.after_reboot:
        return False
    if run.last is not None:
        earlier = run.last.boot_id != host.boot_id()
    else:
        uptime = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
        earlier = (host.moment(run.created) or 0) < time.time() - uptime
    cut_off = run.outcome in ("lost", "stopped", "not started") and earlier
    return run.waits_for_boot or cut_off


def _wait(run: Run, why: str, until: str) -> None:
    waits = {"after": "reboot", "for": " ".join(why.split())[:400], "until": until}
    if (run.state, run.waits) != ("waiting", waits):
        run.state, run.waits = "waiting", waits
        with contextlib.suppress(OSError):
            run.save()


def _still_waits(site: Site, run: Run, until: str) -> bool:
    from . import starting

    try:
        with run.locked(".going-on", 0, "it is being resumed"):
            vars(run).update(vars(runs.read(run.folder)))
            if not _goes_on(run):
                return False  # it was stopped, or resumed by hand
            if not run.unproven and (why := host.unproven(site)):
                _wait(run, f"{why}: run `pyinfra INVENTORY tasks/smoke.py` for this host", until)
                return True
            try:
                starting.go_on(site, run)
            except (TrainError, OSError, ValueError, KeyError, TypeError) as error:
                _wait(run, f"{error}", until)
                return True
            return False
    except (TrainError, OSError):
        return True
