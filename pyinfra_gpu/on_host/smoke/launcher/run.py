"""The parent: runs alone in its directory, judges, and writes the verdict."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from .. import environment, files, torch_location
from ..checks import after, host_checks, kernel_log
from ..journal import Journal
from ..judge import metrics, ranks, verdict
from ..judge.check import Check, Expected
from ..judge.decisions import Decisions
from ..judge.listens import ANYONE, Listens
from ..judge.single import SINGLE_FINISHED
from ..options import GPU, REFUSED, REHEARSAL_CPU, Across, Options
from . import evidence, hang, network, rendezvous, stages, verdict_parts
from .group import Group, Limit
from .part import HostPart
from .progress import Announcer
from .site import Site

if TYPE_CHECKING:
    from .gpu_side import GpuSide

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
    if options.across is None:
        announcer.say(f"{options.host}: {verdict.LABELS[options.mode].partition(': ')[2]}")
    with _alone(options, announcer, interruption) as alone:
        if not alone:
            announcer.say(f"another smoke test still runs in {options.output.parent}; not started")
            return REFUSED
        try:
            if options.across is not None:
                return _across(options, options.across, bundle, announcer, interruption)
            return _Test(options, bundle, announcer, interruption).run()
        except OSError as error:
            announcer.say(f"the smoke test could not be run or recorded: {error}")
            return verdict.FAILED
        except Exception as error:  # an exit code of 1, Python's own, would mean "degraded"
            traceback.print_exc()
            announcer.say(f"the smoke test has a defect: {type(error).__name__}: {error}")
            return verdict.FAILED


def _across(
    options: Options,
    asked: Across,
    bundle: Path,
    announcer: Announcer,
    interruption: Interruption,
) -> int:
    token = rendezvous.read_token(sys.stdin.fileno())
    if token is None:
        announcer.say("a step across hosts takes its token, the same on all, on standard input")
        return REFUSED
    return HostPart(options, asked, bundle, announcer, interruption, token).run()


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
    """One test, from the first look at the host to the verdict."""

    def __init__(
        self, options: Options, bundle: Path, announcer: Announcer, interruption: Interruption
    ) -> None:
        self._options = options
        self._bundle = bundle
        self._interruption = interruption
        self._began = time.monotonic()
        self._started = _now()
        self._clock = stages.Clock(self._began, options.deadline)
        self._gpu = _gpu_side(options)
        self._mode = self._gpu.mode if self._gpu else options.mode
        self._announcer = announcer if self._mode == options.mode else Announcer(self._mode)
        self._torch = torch_location.locate()
        self._removed = environment.stray(os.environ, self._mode)
        self._checks = stages.checks_of(self._mode)
        self._site = Site(options, self._mode, self._ranks_wanted(), bundle, _logs(options))
        every = [check for checks in self._checks.values() for check in checks]
        self._decisions = Decisions(every, self._expected(), self._announcer.check)
        self._groups: list[Group] = []
        self._ranks: Group | None = None
        self._reruns: list[dict[str, Any]] = []
        self._remark: str | None = None
        self._cursor = kernel_log.mark()
        self._kernel: list[str] | None = None
        self._shared = after.shared_files()
        self._listens = self._limited()

    def _ranks_wanted(self) -> int:
        if self._gpu is not None and self._mode == GPU:
            return self._gpu.declared
        return self._options.ranks or 2

    def _limited(self) -> Listens:
        """Keep others out of what the test will listen at, as far as that is possible and asked."""
        if not self._options.limit_network:
            return Listens(ANYONE, "smoke_limit_network is False")
        return network.alone(self._mode)

    def _expected(self) -> Expected:
        gpu = self._gpu
        return Expected(
            ranks=self._site.ranks,
            allreduce_mib=self._options.allreduce_mib,
            torch=self._torch,
            removed=list(self._removed),
            mode=self._mode,
            devices=self._site.ranks if self._mode == GPU else 1,
            gpus=gpu.declared if gpu else 0,
            gpu_host=gpu.before if gpu else None,
            gpu_kinds=gpu.kinds if gpu else (),
            compile=self._options.compile,
        )

    def run(self) -> int:
        shutil.rmtree(self._site.directory, ignore_errors=True)
        self._site.directory.mkdir()
        if self._mode != self._options.mode:
            self._announcer.say(verdict.LABELS[self._mode])
        if self._listens.to == ANYONE:
            self._announcer.say(f"others can connect to this test: {self._listens.how}")
        for stage in (self._try_host, self._try_devices, self._try_ranks):
            if not self._decisions.stopped:
                stage()
        if self._groups:
            self._look_back()
        self._clock.stop()
        for checks in self._checks.values():
            self._decisions.skip(checks)
        shutil.rmtree(self._site.directory / "compiled", ignore_errors=True)
        return self._conclude()

    def _try_host(self) -> None:
        """S0."""
        self._clock.start("S0")
        began = time.monotonic()
        facts = host_checks.read(self._site.directory, self._bundle, self._removed, self._mode)
        if self._gpu is not None:
            facts["gpu_host"] = self._gpu.before
        self._decisions.decide(self._checks["S0"], facts, time.monotonic() - began)

    def _try_devices(self) -> None:
        """S1 to S3, after a look at which torch would be imported."""
        self._clock.start("S1")
        location = {**asdict(self._torch), "python": sys.executable}
        location["by_pythonpath"] = "PYTHONPATH" in self._removed
        self._decisions.decide(self._checks["S1"], {"torch_location": location})
        if self._decisions.stopped:
            return
        checks = [check for stage in stages.SINGLE for check in self._checks[stage]]
        wanted = [check for check in checks if check != SINGLE_FINISHED]
        group = Group(self._site.singles(self._decisions.expected.devices, wanted))
        self._groups.append(group)

        def limit() -> Limit:
            undecided = self._decisions.undecided(wanted)
            return self._limit(undecided[0].id.partition(".")[0] if undecided else "S3")

        group.run(self._decisions, limit, self._interruption)

    def _try_ranks(self) -> None:
        """S4."""
        until = self._clock.start("S4")
        wanted = [check for check in self._checks["S4"] if check not in self._after_ranks()]
        compiled = self._decisions.status("S3.compile") == "pass"
        group = self._ranks = Group(self._site.all_ranks(wanted, compiled))
        self._groups.append(group)
        group.run(self._decisions, lambda: self._limit("S4"), self._interruption)
        if group.hung or any(hang.watchdog_spoke(group.tail(rank)) for rank in group.journals):
            self._clock.stop()
            self._look_for_the_layer()
        elif self._gpu is not None and not self._decisions.stopped:
            site = self._site
            facts = self._gpu.after_ranks(site.directory, self._bundle, site.environment, until)
            self._decisions.decide(self._after_ranks(), facts)

    def _after_ranks(self) -> Sequence[Check]:
        """Return the checks of S4 that are not decided by the ranks."""
        return [
            check
            for check in self._checks["S4"]
            if check == ranks.FINISHED or check.needs in (("transport",), ("precision",))
        ]

    def _limit(self, stage: str) -> Limit:
        return Limit(self._clock.start(stage), self._clock.limit(stage), f"{stage}'s deadline")

    def _look_for_the_layer(self) -> None:
        """Repeat the all-reduce alone, with one thing changed each time."""
        self._announcer.say("a hang; small all-reduces are tried to find out where")
        tries = hang.variants(self._mode)
        until = time.monotonic() + hang.EXTRA_S

        def stopped() -> bool:
            return self._interruption() is not None

        self._reruns, self._remark = hang.locate(tries, self._try_again, until, stopped)

    def _try_again(self, variant: hang.Variant, until: float) -> str:
        """Return how a small all-reduce ends with `variant`."""
        directory = self._site.directory / f"rerun{len(list(self._site.directory.glob('rerun*')))}"
        directory.mkdir()
        checks = [check for check in ranks.CHECKS if check.id in ranks.ALL_REDUCES]
        expected = replace(self._decisions.expected, allreduce_mib=1)
        decisions = Decisions([*checks, ranks.FINISHED], expected, lambda _: None)
        group = Group(self._site.rerun(directory, checks, variant.variables))
        limit = Limit(until, round(until - time.monotonic()), "the try's deadline")
        group.run(decisions, lambda: limit, self._interruption)
        if not decisions.stopped:
            return hang.PASSED
        begun = [journal for journal in group.journals.values() if "init" in journal.steps]
        return hang.HUNG if len(begun) == self._site.ranks else hang.UNREACHED

    def _look_back(self) -> None:
        """S5, whatever came before: what the test has left is there all the same."""
        self._clock.start("S5")
        began = time.monotonic()
        pids = {journal.pid for group in self._groups for journal in group.journals.values()}
        reason = self._cursor.reason
        self._kernel = kernel_log.since(self._cursor)
        facts: dict[str, Any] = {
            "kernel": after.kernel_fact(self._kernel, reason, pids),
            "processes": sorted({pid for group in self._groups for pid in group.left}),
            "shared_files": after.abandoned(self._shared),
        }
        if self._gpu is not None:
            facts |= self._gpu.after(self._kernel, pids, self._rank_journals())
        self._decisions.decide(self._checks["S5"], facts, time.monotonic() - began)

    def _rank_journals(self) -> dict[int, Journal]:
        return self._ranks.journals if self._ranks else {}

    def _conclude(self) -> int:
        """Write verdict and evidence, and say how it went; return the exit code."""
        options, document = self._options, self._document()
        if document["status"] != "pass":
            document["evidence"] = self._write_evidence()
        files.write(options.output, document)
        self._summarise(document)
        return verdict.exit_code(document["status"], self._mode)

    def _write_evidence(self) -> str | None:
        """Keep what explains the result; a verdict without it is better than none."""
        remarks = [
            f"{check.id}: {check.detail}"
            for check in self._decisions.results()
            if check.status in ("fail", "unknown", "warn")
        ]
        remarks += filter(None, [self._remark])
        rank = self._decisions.failed_rank
        entries = evidence.collect(self._groups, rank, self._kernel, remarks)
        try:
            return str(evidence.write(self._site.directory, entries))
        except OSError as error:
            self._announcer.say(f"the evidence could not be kept: {error}")
            return None

    def _document(self) -> dict[str, Any]:
        options = self._options
        checks = self._decisions.results()
        status = verdict.status_of(checks)
        return {
            "schema_version": verdict.SCHEMA_VERSION,
            "mode": self._mode,
            "label": verdict.LABELS[self._mode],
            "status": status,
            "proof": verdict.proves(status, self._mode),
            "host": options.host,
            "fingerprint": options.fingerprint,
            "started": self._started,
            "finished": _now(),
            "duration_s": round(time.monotonic() - self._began, 3),
            "deadline_s": options.deadline,
            "deadline_extra_s": hang.EXTRA_S if self._reruns else 0,
            "stages": self._clock.as_json(checks),
            "software": verdict_parts.software(self._torch, self._bundle),
            "environment": {"removed": self._removed},
            "listens": self._listens.as_json(),
            "gpus": self._gpu.records(self._rank_journals()) if self._gpu else [],
            "ranks": verdict_parts.rank_records(self._ranks),
            "checks": verdict.as_json(checks),
            "metrics": self._metrics(),
            "xids_new": self._gpu.xids if self._gpu else [],
            "failed": verdict_parts.failed(self._decisions, self._groups, self._remark),
            "reruns": self._reruns,
            "evidence": None,
            "rerun_command": verdict_parts.rerun_command(options, self._bundle),
            "logs": str(self._site.directory),
        }

    def _metrics(self) -> dict[str, Any]:
        journals, label = self._rank_journals(), verdict.LABELS[self._mode]
        found = metrics.collect(journals, self._site.ranks, self._began, label)
        if self._gpu is None or not self._groups:
            return found
        return {**found, **self._gpu.figures(self._groups[0].journals, journals)}

    def _summarise(self, document: dict[str, Any]) -> None:
        status = document["status"].upper()
        for check in document["checks"]:
            if check["status"] == "warn":
                self._announcer.say(f"WARN {check['id']}: {check['detail']}")
        if failed := document["failed"]:
            for line in failed["tail"][-_LINES_SHOWN:]:
                self._announcer.quote(line)
            self._announcer.say(f"{status} {failed['id']}: {failed['sentence']}")
        else:
            proof = "" if document["proof"] else ", not proof of a GPU host"
            self._announcer.say(f"{status}{proof}, in {document['duration_s']:.1f} s")
        self._announcer.say(f"verdict: {self._options.output}")


def _gpu_side(options: Options) -> GpuSide | None:
    if options.mode == REHEARSAL_CPU:
        return None
    from .gpu_side import GpuSide

    return GpuSide(options)


def _logs(options: Options) -> Path:
    return options.output.with_name(options.output.name + ".logs")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
