"""One test, from the first look at the host to the verdict; it never imports torch."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import (
    environment,
    exchange,
    files,
    gpus,
    hang,
    host,
    libraries,
    links,
    listening,
    verdict,
)
from .check import Want, blame, complete, decide, first_failed
from .document import PASSED, VERSION, Failed, Gpu, Mode, Rank, Result, Software, Status, Verdict
from .options import GPU, REHEARSAL_1GPU, REHEARSAL_CPU, Options
from .ranks import Ending, Ranks, under_torchrun
from .table import COLLECTIVES, checks_of
from .verdict import Announcer
from .worker import measurements

_UNTIL = {"S1": 0.35, "S3": 0.60, "S4": 0.94}
"""The share of the whole deadline at which each stage must have ended: what one leaves unused is
there for the next, and their sum can never exceed the whole."""
_AFTER_FAILURE_S = 5.0
"""Seconds a run goes on after its first failed check: what follows often narrows the cause."""
_LADDER_S, _OWN_CHOICE_S = 60.0, 30.0
_WORST: tuple[Status, ...] = ("fail", "unknown", "warn", "pass")
_MEETING_SHARE = 0.6
"""Of the deadline, in which several hosts must have met; torchrun would wait for longer."""


def main(options: Options, bundle: Path) -> int:
    """Run the whole smoke test as asked for; return the process's exit code."""
    signals: list[str] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda came, _: signals.append(signal.Signals(came).name))
    try:
        return Test(options, bundle, signals).run()
    except OSError as error:
        Announcer(options.mode).say(f"the smoke test could not be run or recorded: {error}")
    except Exception as error:  # an exit code of 1, Python's own, would mean "degraded"
        traceback.print_exc()
        text = f"the smoke test has a defect: {type(error).__name__}: {error}"
        Announcer(options.mode).say(text)
    return verdict.FAILED


class Test:
    """One test, from the first look at the host to the verdict.

    + signals: the names of those that came, to end it
    """

    def __init__(self, options: Options, bundle: Path, signals: Sequence[str]) -> None:
        self._options, self._bundle, self._signals = options, bundle, signals
        self._began = time.monotonic()
        self._started = time.time()
        self._alone = options.across is None
        hosts = options.across.hosts if options.across else {}
        self._gpus = gpus.read() if options.mode == GPU and self._alone else None
        declared = options.gpus or max(len(self._gpus["gpus"]) if self._gpus else 0, 1)
        one = self._gpus is not None and declared == 1
        self._mode: Mode = REHEARSAL_1GPU if one else options.mode
        self._say = Announcer(self._mode)
        ranks = (options.ranks or 2) if self._gpus is None else declared
        self._want = Want(
            ranks=sum(hosts.values()) or ranks,
            allreduce_mib=options.allreduce_mib,
            mode=self._mode,
            torch_path=libraries.home(),
            gpus=declared if self._gpus else 0,
            gpu_host=self._gpus or {},
            kinds=gpus.kinds() if self._gpus else (),
            compile=options.compile,
            hosts=hosts,
        )
        self._checks = checks_of(self._mode, across=not self._alone)
        self._results: dict[str, Result] = {}
        self._failed_at: float | None = None
        self._remark = ""
        self._listens = listening.to_whom(listening.ITSELF if self._alone else listening.GROUP)
        shutil.rmtree(options.logs, ignore_errors=True)
        options.logs.mkdir()
        wanted = measurements(self._mode) if self._alone else exchange.MEASURE
        self._run = self._ranks(options.logs, options.allreduce_mib, wanted, {})
        self._own, self._tries = self._run.own, list[Ranks]()

    def run(self) -> int:
        """Run all stages; a stage runs only if nothing failed before it. Return the exit code."""
        across = f"{len(self._want.hosts)} hosts, " if self._want.hosts else ""
        self._say.say(f"{self._options.host}: {across}{verdict.LABELS[self._mode]}")
        if self._listens.to == listening.ANYONE:
            self._say.say(f"others can connect to this test: {self._listens.how}")
        if self._alone:
            removed = environment.stray(os.environ, self._mode)
            facts = host.before(removed, self._mode)
            self._own.add({**facts, "gpu_host": self._gpus}, self._began)
            self._decide()
        if not self._failed:
            self._try_ranks()
            if self._alone:
                self._look_back()
            self._blame()  # what nobody measured has not passed
        shutil.rmtree(self._options.logs / "compiled", ignore_errors=True)
        return self._conclude()

    @property
    def _failed(self) -> Result | None:
        return first_failed(self._results)

    def _decide(self, *, ended: bool = False) -> None:
        """Decide what can be, by all that was written down, and print what is new."""
        found = decide(self._checks, self._want, self._own, self._run.journals, ended=ended)
        self._take({**self._results, **found})

    def _take(self, results: dict[str, Result]) -> None:
        new = [each for name, each in results.items() if name not in self._results]
        self._results = results
        for each in new:
            self._say.check(each)
        if self._failed and self._failed_at is None:
            self._failed_at = time.monotonic()

    def _blame(self, *why: Any, **how: Any) -> None:
        results = dict(self._results)
        blame(self._checks, results, *why, **how)
        self._take(results)

    # -- S1 to S4

    def _limit(self) -> tuple[float, str]:
        """Return until when the present stage may run, and how that is called."""
        undecided = (each.id[:2] for each in self._checks if each.id not in self._results)
        stage = min(next(undecided, "S4"), "S4")
        share, name = _UNTIL[stage], f"{stage}'s deadline"
        if not self._alone:
            share, name = 1.0 if self._run.journals else _MEETING_SHARE, "the deadline"
        seconds = share * self._options.deadline
        return self._began + seconds, f"{seconds:.0f} s ({name})"

    def _interrupted(self) -> Ending | None:
        for name in self._signals:
            return Ending(f"the test was interrupted by {name}", known=False)
        return None

    def _try_ranks(self) -> None:
        run = self._run

        def to_end(news: bool) -> Ending | None:
            if news:
                self._decide()
            if ending := self._interrupted():
                return ending
            if self._failed_at:
                late = time.monotonic() > self._failed_at + _AFTER_FAILURE_S
                return Ending("the ranks were ended by a failed check") if late else None
            until, name = self._limit()
            return run.late(name) if time.monotonic() > until else None

        run.run(to_end)
        if run.finished:
            self._own.add({"ended": run.code}, time.monotonic())
        self._decide(ended=True)
        ending = run.ending()
        if not run.finished:
            self._blame(ending.sentence, ending.rank, known=ending.known)
        if self._alone and (ending.hung or any(map(run.ended_by_watchdog, run.journals))):
            self._look_for_the_layer()
        elif self._gpus is not None and not self._failed:
            self._after_ranks(self._began + _UNTIL["S4"] * self._options.deadline)

    def _ranks(
        self, directory: Path, mib: int, measure: Sequence[str], changes: Mapping[str, str | None]
    ) -> Ranks:
        options, count = replace(self._options, allreduce_mib=mib), self._want.ranks
        return under_torchrun(options, self._mode, count, self._bundle, directory, measure, changes)

    def _after_ranks(self, until: float) -> None:
        """Read which way NCCL's data went, try its own choice and the number formats."""
        began = time.monotonic()
        result, run = self._try_again(hang.OWN_CHOICE, min(until, began + _OWN_CHOICE_S))
        ladder = self._again(["precision"], {}, min(until, time.monotonic() + _LADDER_S))
        own_choice = {
            "result": result,
            "interfaces": links.read_logs(run.directory)["interfaces"],
            "why": run.ending().sentence,
        }
        written = {rank: journal.facts for rank, journal in ladder.journals.items()}
        formats = [written.get(rank, {}) for rank in range(ladder.count)]
        facts = {
            "transport": links.read_logs(self._options.logs),
            "own_choice": own_choice,
            "precision": {"formats": formats, "why": ladder.ending().sentence},
        }
        self._own.add(facts, began)
        self._decide()

    def _look_for_the_layer(self) -> None:
        """Repeat the all-reduce alone, with one thing changed each time."""
        self._say.say("a hang; small all-reduces are tried to find out where")
        self._remark = hang.locate(
            () if self._mode == REHEARSAL_CPU else hang.LAYERS,
            lambda variables, until: self._try_again(variables, until)[0],
            time.monotonic() + hang.EXTRA_S,
            lambda: bool(self._signals),
        )

    def _try_again(self, variables: hang.Variables, until: float) -> tuple[hang.Result, Ranks]:
        """Return how a small all-reduce ends with `variables`, and what ran."""
        run = self._again(["collectives"], variables, until)
        want = replace(self._want, allreduce_mib=1)
        found = decide([COLLECTIVES], want, run.own, run.journals).get(COLLECTIVES.id)
        if run.finished and found and found.status == "pass":
            return "passed", run
        begun = [journal for journal in run.journals.values() if "init" in journal.steps]
        return ("hung" if len(begun) == self._want.ranks else "not reached"), run

    def _again(self, measure: Sequence[str], variables: hang.Variables, until: float) -> Ranks:
        """Return a run of ranks beside the test's own, which has ended."""
        directory = self._options.logs / f"rerun{len(self._tries) + 1}"
        run = self._ranks(directory, 1, measure, variables)
        self._tries.append(run)

        def to_end(_: bool) -> Ending | None:
            late = time.monotonic() > until
            return self._interrupted() or (run.late("its time") if late else None)

        run.run(to_end)
        return run

    # -- S5 and the end

    def _look_back(self) -> None:
        """S5, whatever came before: what the test has left is there all the same."""
        began = time.monotonic()
        runs = [self._run, *self._tries]
        pids = {journal.pid for run in runs for journal in run.journals.values()}
        left = {pid for run in runs for pid in run.left}
        self._own.add(host.after(host.kernel_log_since(self._started), pids, left), began)
        self._decide()

    def _conclude(self) -> int:
        """Write verdict and evidence, and say how it went; return the exit code."""
        found = self._verdict()
        files.write(self._options.output, found.as_json())
        for check in found.having("warn"):
            self._say.say(f"WARN {check.id}: {check.detail}")
        status = found.status.upper()
        if found.failed:
            self._say.quote(found.failed.tail)
            self._say.say(f"{status} {found.failed.id}: {found.failed.sentence}")
        else:
            proof = "" if found.proof else ", not proof of a host with several GPUs"
            self._say.say(f"{status}{proof}, in {found.duration_s:.1f} s")
        self._say.say(f"verdict: {self._options.output}")
        return verdict.exit_code(found.status, self._mode)

    def _evidence(self) -> str | None:
        """Keep what explains a result that is no pass; a verdict without it is better than none."""
        wrong = [each for each in self._results.values() if each.status not in ("pass", "skip")]
        if not wrong:
            return None
        remarks = [*(f"{each.id}: {each.detail}" for each in wrong), self._remark]
        rank = self._failed.rank if self._failed else None
        kernel = self._own.facts.get("kernel", {}).get("lines") or []
        runs = [self._run, *self._tries]
        try:
            return str(verdict.evidence(self._options.logs, runs, rank, kernel, remarks))
        except OSError as error:
            self._say.say(f"the evidence could not be kept: {error}")
            return None

    def _verdict(self) -> Verdict:
        options, own, run, want = self._options, self._own.facts, self._run, self._want
        results = complete(self._checks, self._results)
        found = {result.status for result in results}
        status = next(each for each in _WORST if each in found)
        listed = self._gpus["gpus"] if self._gpus else []
        torch: Mapping[str, Any] = own.get("identity", {})
        software = torch.get("torch"), torch.get("torch_path"), platform.release()
        return Verdict(
            schema_version=VERSION,
            mode=self._mode,
            status=status,
            proof=status in PASSED and want.mode == GPU,
            host=options.host,
            finished=verdict.now(),
            duration_s=round(time.monotonic() - self._began, 3),
            ranks=tuple(
                Rank(rank, run.host_of(rank), each.finished, each.step, run.log_of(rank))
                for rank, each in sorted(run.journals.items())
            ),
            checks=results,
            metrics=verdict.metrics(want, run.journals),
            failed=self._failure(),
            logs=str(options.logs),
            fingerprint=options.fingerprint,
            software=Software(platform.python_version(), *software),
            listens=self._listens,
            gpus=tuple(Gpu(**{key: gpu[key] for key in Gpu.__annotations__}) for gpu in listed),
            evidence=self._evidence(),
            rerun_command=self._rerun_command() if self._alone else "",  # one host cannot
            hosts=(*want.hosts,),
        )

    def _failure(self) -> Failed | None:
        """Return the check that failed first, with the end of the log to look at."""
        if (first := self._failed) is None:
            return None
        run, rank = self._run, first.rank
        where = self._options.host if self._alone else None
        sentence = "; ".join(filter(None, (first.detail, self._remark)))
        if rank in run.journals:
            where = run.host_of(rank)
            if not self._alone and f"on {where}" not in sentence:
                sentence = f"on {where}: {sentence}"
        tail = tuple(run.tail(rank)) if first.status == "fail" else ()
        return Failed(first.id, sentence, rank, run.log_of(rank), tail, where)

    def _rerun_command(self) -> str:
        """Return the command that runs this test again by hand, with its verdict beside this."""
        output, given = self._options.output, sys.argv[1:]
        for name in ("--fingerprint", "--output"):
            if name in given:
                del given[given.index(name) : given.index(name) + 2]
        again = output.with_name(f"{output.stem}.by-hand{output.suffix}")
        return shlex.join([sys.executable, str(self._bundle), *given, "--output", str(again)])
