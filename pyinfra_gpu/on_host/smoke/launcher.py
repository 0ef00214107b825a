"""The parent: runs alone in its directory, judges, writes the verdict and, on a pass, the stamp."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from . import environment, judge, metrics, torch_location, verdict
from .decisions import Decisions
from .options import REFUSED, Options
from .progress import Announcer
from .ranks import RankRun
from .verdict import CheckResult

_LOCK_POLL = 0.2
_LINES_SHOWN = 15
"""Of a failed rank's log; the verdict has more, the log all."""


class Interruption:
    """Remembers the first signal that asks this process to stop."""

    def __init__(self) -> None:
        self._name: str | None = None
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._note)

    def _note(self, number: int, _: FrameType | None) -> None:
        self._name = self._name or signal.Signals(number).name

    def __call__(self) -> str | None:
        """Return the signal's name, None as long as there was none."""
        return self._name


def run(options: Options, bundle: Path) -> int:
    """Run the whole smoke test as asked for; return the process's exit code."""
    announcer = Announcer(options.mode)
    interruption = Interruption()
    announcer.say(f"{options.host}: {verdict.LABELS[options.mode].partition(': ')[2]}")
    with _alone(options, announcer, interruption) as alone:
        if not alone:
            announcer.say(f"another smoke test still runs in {options.output.parent}; not started")
            return REFUSED
        try:
            return _Test(options, bundle, announcer, interruption).run()
        except OSError as error:
            announcer.say(f"the smoke test could not be run or recorded: {error}")
            return verdict.FAILED
        except Exception as error:  # an exit code of 1, Python's own, would mean "degraded"
            traceback.print_exc()
            announcer.say(f"the smoke test has a defect: {type(error).__name__}: {error}")
            return verdict.FAILED


@contextmanager
def _alone(options: Options, announcer: Announcer, interruption: Interruption) -> Iterator[bool]:
    """Hold the lock on the verdict's directory, waiting for at most one deadline.

    A test whose caller has lost its connection goes on to its own deadline; the next one waits
    for it. The kernel releases the lock with the process, so none is ever left behind.
    """
    directory = os.open(options.output.parent, os.O_RDONLY | os.O_DIRECTORY)
    limit = time.monotonic() + options.deadline
    try:
        locked = _try_lock(directory)
        if not locked:
            announcer.say("waiting for another smoke test on this host to end")
        while not locked and time.monotonic() < limit and not interruption():
            time.sleep(_LOCK_POLL)
            locked = _try_lock(directory)
        yield locked
    finally:
        os.close(directory)


def _try_lock(directory: int) -> bool:
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _Test:
    """One test, from the first look at torch to the stamp."""

    def __init__(
        self, options: Options, bundle: Path, announcer: Announcer, interruption: Interruption
    ) -> None:
        self._options = options
        self._bundle = bundle
        self._announcer = announcer
        self._interruption = interruption
        self._began = time.monotonic()
        self._started = _now()
        self._torch = torch_location.locate()
        self._removed = environment.stray(os.environ)
        expected = judge.Expected(
            ranks=options.ranks,
            allreduce_mib=options.allreduce_mib,
            torch=self._torch,
            removed=list(self._removed),
        )
        self._decisions = Decisions(expected, announcer.check)
        directory = options.output.with_name(options.output.name + ".logs")
        self._ranks = RankRun(options, bundle, directory, self._began)

    def run(self) -> int:
        # From here on an earlier pass says nothing: if this test fails, or is cut off, no stamp
        # may be left that calls the host proven.
        self._options.stamp.unlink(missing_ok=True)
        if self._removed:
            self._announcer.say(f"removed for this run: {', '.join(self._removed)}")
        located = self._locate()
        self._decisions.add(located)
        if located.status == "pass":
            self._ranks.run(self._decisions, self._interruption)
        self._decisions.close(None)
        document = self._document()
        verdict.write(self._options.output, document)
        if document["status"] == "pass":
            verdict.write(self._options.stamp, verdict.stamp(document))
        self._summarise(document)
        return verdict.exit_code(document["status"], self._options.mode)

    def _locate(self) -> CheckResult:
        """Decide before any rank starts whether `import torch` would find this environment's."""
        torch = self._torch
        wanted = f"{torch.packages}/torch"
        detail = f"torch {torch.version}"
        if torch.found is None:
            detail = f"{sys.executable} finds no torch, expected it in {torch.packages}"
        elif not torch.own:
            blame = ", remove PYTHONPATH" if "PYTHONPATH" in self._removed else ""
            detail = f"import torch would take {torch.found}, expected {wanted}{blame}"
        seconds = time.monotonic() - self._began
        status = "pass" if torch.own else "fail"
        return CheckResult("S1.torch", status, torch.found, wanted, round(seconds, 4), detail)

    def _document(self) -> dict[str, Any]:
        options = self._options
        checks = self._decisions.results()
        status = verdict.status_of(checks)
        return {
            "schema_version": verdict.SCHEMA_VERSION,
            "mode": options.mode,
            "label": verdict.LABELS[options.mode],
            "status": status,
            "proof": verdict.proves(status, options.mode),
            "host": options.host,
            "fingerprint": options.fingerprint,
            "started": self._started,
            "finished": _now(),
            "duration_s": round(time.monotonic() - self._began, 3),
            "deadline_s": options.deadline,
            "software": self._software(),
            "environment": {"removed": self._removed},
            "gpus": [],
            "ranks": self._rank_records(),
            "checks": verdict.as_json(checks),
            "metrics": metrics.collect(
                self._ranks.journals, options.ranks, self._began, verdict.LABELS[options.mode]
            ),
            "failed": self._failed(checks),
            "logs": str(self._ranks.directory),
        }

    def _software(self) -> dict[str, str | None]:
        return {
            "smoke_test_sha256": hashlib.sha256(self._bundle.read_bytes()).hexdigest(),
            "python": platform.python_version(),
            "python_path": sys.executable,
            "torch": self._torch.version,
            "torch_path": self._torch.found,
            "kernel": platform.release(),
            "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        }

    def _rank_records(self) -> list[dict[str, Any]]:
        records = []
        for rank, journal in sorted(self._ranks.journals.items()):
            code = self._ranks.exit_codes.get(rank, 0 if journal.finished else None)
            log = self._ranks.log_of(rank)
            record = {
                "rank": rank,
                "pid": journal.pid,
                "exit": code if code is None or code >= 0 else None,
                "signal": -code if code is not None and code < 0 else None,
                "finished": journal.finished,
                "last_step": journal.step,
                "store": journal.facts.get("store"),
                "log": str(log) if log else None,
            }
            records.append(record)
        return records

    def _failed(self, checks: list[CheckResult]) -> dict[str, Any] | None:
        failed = next((check for check in checks if check.id == self._decisions.failed), None)
        if failed is None:
            return None
        rank = self._decisions.failed_rank
        log = self._ranks.log_of(rank) if rank is not None else None
        tail = self._ranks.tail(rank) if failed.status == "fail" else []
        return {
            "id": failed.id,
            "sentence": failed.detail,
            "rank": rank,
            "log": str(log) if log else None,
            "tail": tail,
        }

    def _summarise(self, document: dict[str, Any]) -> None:
        status = document["status"].upper()
        if failed := document["failed"]:
            for line in failed["tail"][-_LINES_SHOWN:]:
                self._announcer.quote(line)
            self._announcer.say(f"{status} {failed['id']}: {failed['sentence']}")
        else:
            proof = "" if document["proof"] else ", not proof of a GPU host"
            self._announcer.say(f"{status}{proof}, in {document['duration_s']:.1f} s")
        self._announcer.say(f"verdict: {self._options.output}")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
