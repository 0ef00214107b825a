"""One test, from the first look at the host to the verdict; it never imports torch."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import environment, files, gpus, hang, host, libraries, links, listening, verdict
from .check import Judged, Results, Want, complete, decide, first_failed
from .document import VERSION, Failed, Mode, Result, Status, Verdict
from .options import GPU, REHEARSAL_1GPU, REHEARSAL_CPU, Options
from .ranks import Ranks, under_torchrun
from .table import COLLECTIVES, checks_of
from .worker import measurements

_RANKS_SHARE = 0.94
"""Of the deadline, for the ranks; the rest is for what looks back, and the verdict."""
_AFTER_FAILURE_S = 5.0
"""Seconds a run goes on after its first failed check: what follows often narrows the cause."""
_LADDER_S, _OWN_CHOICE_S = 60.0, 30.0
_STATUSES: tuple[Status, ...] = ("fail", "unknown", "warn", "pass")


def main(options: Options, bundle: Path) -> int:
    """Run the whole smoke test as asked for; return the process's exit code."""
    try:
        return Test(options, bundle).run()
    except Exception as error:  # an exit code of 1, Python's own, would mean "degraded"
        traceback.print_exc()
        why = f"{type(error).__name__}: {error}"
        verdict.say(options, f"the smoke test could not be run or recorded: {why}")
    return verdict.FAILED


class Test:
    """One test, from the first look at the host to the verdict."""

    def __init__(self, options: Options, bundle: Path) -> None:
        self._asked, self._bundle = options, bundle
        self._began, self._started = time.monotonic(), time.time()
        self._alone = not options.hosts
        self._gpus: dict[str, Any] = {}
        if options.mode == GPU and self._alone:
            self._gpus = gpus.read()
            declared = options.gpus or max(len(self._gpus["gpus"]), 1)
            mode: Mode = REHEARSAL_1GPU if declared == 1 else GPU
            options = replace(options, mode=mode, gpus=declared, ranks=declared)
        self._options = options
        self._want = Want(
            **vars(options),
            torch_path=libraries.home(),
            gpu_host=self._gpus,
            kinds=gpus.kinds() if self._gpus else (),
        )
        self._checks = checks_of(options.mode, across=not self._alone)
        self._results: Results = {}
        self._end: Judged | None = None
        self._failed_at: float | None = None
        self._remark = ""
        self._others_kept_out = listening.others_are_kept_out()
        shutil.rmtree(options.logs, ignore_errors=True)
        options.logs.mkdir()
        self._runs = [
            under_torchrun(options, bundle, options.logs, measurements(options), changes={})
        ]
        self._run, self._own = self._runs[0], self._runs[0].own

    def run(self) -> int:
        """Run all stages; a stage runs only if nothing failed before it. Return the exit code."""
        options = self._options
        across = f"{len(options.hosts)} hosts, " if options.hosts else ""
        verdict.say(options, f"{options.host}: {across}{verdict.LABELS[options.mode]}")
        if not self._others_kept_out:
            verdict.say(options, "others can connect to this test: no address limit is set")
        if self._alone:
            removed = environment.stray(os.environ, options.mode)
            facts = host.before(removed, options.mode)
            self._own.add({**facts, "gpu_host": self._gpus}, self._began)
            self._decide()
        if not self._failed:
            self._try_ranks()
            if self._alone:
                self._look_back()
            if self._end is None or self._end.status == "pass":
                self._decide(Judged("fail", "nothing was recorded of it"))
        shutil.rmtree(options.logs / "compiled", ignore_errors=True)
        return self._conclude()

    @property
    def _failed(self) -> Result | None:
        return first_failed(self._results)

    def _decide(self, end: Judged | None = None) -> None:
        """Decide what can be, by all that was written down, and print what is new."""
        self._end = end or self._end
        everyone = self._run.everyone()
        results = decide(self._checks, self._want, self._own, everyone, self._end)
        for name, each in results.items():
            if name not in self._results:
                verdict.show(self._options, each)
        self._results = results
        if self._failed and self._failed_at is None:
            self._failed_at = time.monotonic()

    # -- S1 to S4

    def _try_ranks(self) -> None:
        run, seconds = self._run, _RANKS_SHARE * self._options.deadline_s
        until = self._began + seconds

        def to_end(news: bool) -> Judged | None:
            if news:
                self._decide()
            if self._failed_at and time.monotonic() > self._failed_at + _AFTER_FAILURE_S:
                return Judged("fail", "the ranks were ended by a failed check")
            late = time.monotonic() > until
            return run.late(f"{seconds:.0f} s (the deadline)") if late else None

        run.run(to_end)
        if run.finished:
            self._own.add({"ended": run.code}, time.monotonic())
        self._decide(run.ending())
        if self._alone and (run.hung or any(map(run.ended_by_watchdog, run.journals))):
            verdict.say(self._options, "a hang; small all-reduces are tried to find out where")
            self._remark = hang.locate(
                () if self._options.mode == REHEARSAL_CPU else hang.LAYERS,
                lambda variables, until: self._try_again(variables, until)[0],
                time.monotonic() + hang.EXTRA_S,
            )
        elif self._gpus and not self._failed:
            self._after_ranks(until)

    def _after_ranks(self, until: float) -> None:
        """Read which way NCCL's data went, try its own choice and the number formats."""
        began = time.monotonic()
        result, run = self._try_again(hang.OWN_CHOICE, min(until, began + _OWN_CHOICE_S))
        ladder = self._again(["precision"], {}, min(until, time.monotonic() + _LADDER_S))
        own_choice = {
            "result": result,
            "interfaces": links.read_logs(run.directory)["interfaces"],
            "why": run.ending().detail,
        }
        written = {rank: journal.facts for rank, journal in ladder.journals.items()}
        formats = [written.get(rank, {}) for rank in range(self._want.ranks)]
        facts = {
            "transport": links.read_logs(self._options.logs),
            "own_choice": own_choice,
            "precision": {"formats": formats, "why": ladder.ending().detail},
        }
        self._own.add(facts, began)
        self._decide()

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
        small = replace(self._options, allreduce_mib=1)
        directory = self._options.logs / f"rerun{len(self._runs)}"
        run = under_torchrun(small, self._bundle, directory, measure, variables)
        self._runs.append(run)

        def to_end(_: bool) -> Judged | None:
            return run.late("its time") if time.monotonic() > until else None

        run.run(to_end)
        return run

    # -- S5 and the end

    def _look_back(self) -> None:
        """S5, whatever came before: what the test has left is there all the same."""
        began = time.monotonic()
        pids = {journal.pid for run in self._runs for journal in run.journals.values()}
        left = {pid for run in self._runs for pid in run.left}
        self._own.add(host.after(host.kernel_log_since(self._started), pids, left), began)
        self._decide()

    def _conclude(self) -> int:
        """Write verdict and evidence, and say how it went; return the exit code."""
        found, output = self._verdict(), Path(self._options.output)
        if wrong := found.having("fail", "unknown", "warn"):
            remarks = [*(f"{each.id}: {each.detail}" for each in wrong), self._remark]
            rank = found.failed.rank if found.failed else None
            kernel = self._own.facts.get("kernel", {}).get("lines") or []
            verdict.evidence(self._options.logs, self._runs, rank, kernel, remarks)
        files.write(output, found.as_json())
        for check in found.having("warn"):
            verdict.say(self._options, f"WARN {check.id}: {check.detail}")
        proof = "" if found.proof else ", not proof of a host with several GPUs"
        text = f"{proof}, in {found.duration_s:.1f} s"
        if found.failed:
            text = f" {found.failed.id}: {found.failed.sentence}"
        verdict.say(self._options, f"{found.status.upper()}{text}")
        verdict.say(self._options, f"verdict: {output}")
        return verdict.exit_code(found)

    def _verdict(self) -> Verdict:
        options, everyone = self._options, self._run.everyone()
        known = [each.facts["identity"] for each in everyone.values() if each.has(["identity"])]
        results = complete(self._checks, self._results)
        found = {result.status for result in results}
        status = next(each for each in _STATUSES if each in found)
        return Verdict(
            schema_version=VERSION,
            mode=options.mode,
            status=status,
            proof=status in ("pass", "warn") and options.mode == GPU,
            host=options.host,
            finished=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            duration_s=round(time.monotonic() - self._began, 3),
            ranks=options.ranks,
            checks=results,
            allreduce=verdict.rates(self._want, everyone),
            failed=self._failure(),
            logs=str(options.logs),
            fingerprint=options.fingerprint,
            torch=known[0]["torch"] if known else None,
            others_kept_out=self._others_kept_out,
            gpus=tuple(gpu["name"] or "unnamed GPU" for gpu in self._gpus.get("gpus", ())),
            rerun_command=self._rerun_command() if self._alone else "",  # one host cannot
            hosts=(*options.hosts,),
        )

    def _failure(self) -> Failed | None:
        """Return the check that failed first, with the end of the log to look at."""
        if (first := self._failed) is None:
            return None
        sentence = "; ".join(filter(None, (first.detail, self._remark)))
        tail = tuple(self._run.tail(first.rank)) if first.status == "fail" else ()
        return Failed(first.id, sentence, first.rank, tail)

    def _rerun_command(self) -> str:
        """Return the command that runs this test again by hand, with its verdict beside this."""
        output = Path(self._options.output)
        again = output.with_name(f"{output.stem}.by-hand{output.suffix}")
        asked = replace(self._asked, fingerprint=None, output=str(again))
        return shlex.join([sys.executable, str(self._bundle), asked.as_json()])
