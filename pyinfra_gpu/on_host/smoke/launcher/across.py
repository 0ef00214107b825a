"""The step across hosts, as one host takes part in it: `smoke_test.pyz --across HOST ...`.

Every host's launcher starts at the same time, meets the others at the first host, runs its ranks
under torchrun's c10d rendezvous, and hears what all ranks of all hosts measured. So each judges
the whole step by itself and writes a verdict of its own; a pass is added to its host's stamp.
"""

from __future__ import annotations

import json
import time
import traceback
from pathlib import Path
from typing import Any

from .. import files, torch_location
from ..judge import metrics, verdict
from ..judge.check import Check, Expected
from ..judge.verdict import CheckResult
from ..options import GPU
from ..ranks import across_rank
from . import across_end, across_judge, across_plan
from .across_end import End
from .across_link import addresses
from .across_plan import Plan
from .across_run import Run
from .progress import Announcer
from .run import Interruption

SCHEMA_VERSION = 1
_LINES_SHOWN = 15


def main(arguments: list[str]) -> int:
    """Run what a command line that begins with `--across` asks for; return the exit code."""
    if arguments == [across_plan.FLAG, across_plan.ADDRESSES]:
        print(json.dumps(addresses()))
        return 0
    plan = across_plan.parse(arguments)
    announcer = Announcer(plan.mode)
    announcer.say(f"{plan.host}: one step on {', '.join(plan.hosts)}, {plan.ranks} ranks")
    try:
        return _Step(plan, Path(__file__).parents[2], announcer).run()
    except OSError as error:
        announcer.say(f"the step across hosts could not be run or recorded: {error}")
        return verdict.FAILED
    except Exception as error:  # an exit code of 1, Python's own, would mean "degraded"
        traceback.print_exc()
        announcer.say(f"the step across hosts has a defect: {type(error).__name__}: {error}")
        return verdict.FAILED


def worker(arguments: list[str]) -> int:
    """Run one rank; return the exit code for torchrun."""
    return across_rank.main(arguments)


class _Step:
    """One host's part, from the first look at the stamp to the verdict."""

    def __init__(self, plan: Plan, bundle: Path, announcer: Announcer) -> None:
        self._plan = plan
        self._announcer = announcer
        self._began = time.monotonic()
        self._started = _now()
        self._checks = across_judge.checks({name: h.ranks for name, h in plan.hosts.items()})
        self._expected = Expected(
            ranks=plan.ranks,
            allreduce_mib=plan.allreduce_mib,
            torch=torch_location.locate(),
            removed=[],
        )
        self._results: dict[str, CheckResult] = {}
        self._failed: tuple[str, int | None] | None = None
        directory = plan.output.with_name(plan.output.name + ".logs")
        self._run = Run(plan, bundle, directory, Interruption())

    def run(self) -> int:
        # As with the test of one host: what is not finished must not look proven.
        _restamp(self._plan.stamp, None)
        met = self._run.run(self._news)
        self._close(met)
        document = self._document()
        files.write(self._plan.output, document)
        if document["status"] == "pass":
            _restamp(self._plan.stamp, self._stamp(document))
        self._summarise(document)
        return verdict.exit_code(document["status"], self._plan.mode)

    def _news(self) -> bool:
        """Decide what can be decided by now; return whether a check has failed."""
        for result, rank in across_judge.decide(
            self._undecided(), self._run.journals, self._expected
        ):
            self._add(result, rank)
        return self._failed is not None

    def _undecided(self) -> tuple[Check, ...]:
        return tuple(check for check in self._checks if check.id not in self._results)

    def _add(self, result: CheckResult, rank: int | None = None) -> None:
        self._results[result.id] = result
        if result.status in ("fail", "unknown") and self._failed is None:
            self._failed = (result.id, rank)
        self._announcer.check(result)

    def _close(self, met: bool) -> None:
        """Give the run's end to the check it belongs to; the others were not reached."""
        end = across_end.root(list(self._run.ends.values()))
        hosts = list(self._plan.hosts)
        if met:
            together = f"{len(hosts)} hosts at {self._plan.first}"
            self._results[across_judge.MET] = CheckResult(
                across_judge.MET, "pass", hosts, hosts, detail=together
            )
        last = across_judge.FINISHED if met else across_judge.MET
        if end is not None and self._failed is None:
            status = "unknown" if end.kind == "interrupted" else "fail"
            self._add(CheckResult(last, status, detail=end.sentence), end.rank)
        elif self._failed is None:
            self._add(CheckResult(last, "pass", hosts, hosts, detail="all hosts, exit code 0"))
        for check_id in across_judge.order(self._checks):
            if check_id not in self._results:
                failed = self._failed[0] if self._failed else last
                detail = f"not reached, {failed} failed"
                self._results[check_id] = CheckResult(check_id, "skip", detail=detail)

    # -- what is written

    def _document(self) -> dict[str, Any]:
        plan, run = self._plan, self._run
        checks = [self._results[check_id] for check_id in across_judge.order(self._checks)]
        status = verdict.status_of(checks)
        label = _label(plan)
        return {
            "schema_version": SCHEMA_VERSION,
            "mode": plan.mode,
            "label": label,
            "status": status,
            "proof": verdict.proves(status, plan.mode),
            "host": plan.host,
            "hosts": {
                name: {"ranks": host.ranks, "fingerprint": host.fingerprint}
                for name, host in plan.hosts.items()
            },
            "run_id": plan.run_id,
            "started": self._started,
            "finished": _now(),
            "duration_s": round(time.monotonic() - self._began, 3),
            "deadline_s": plan.deadline,
            "ranks": self._ranks(),
            "checks": verdict.as_json(checks),
            "metrics": metrics.collect(self._own_first(), plan.ranks, self._began, label),
            "failed": self._failure(),
            "logs": str(run.directory),
        }

    def _own_first(self) -> dict[int, Any]:
        """The journals for the figures; start times are comparable on one host alone."""
        for rank, journal in self._run.journals.items():
            if self._run.host_of[rank] != self._plan.host:
                journal.started = None
        return self._run.journals

    def _ranks(self) -> list[dict[str, Any]]:
        return [
            {
                "rank": rank,
                "host": self._run.host_of[rank],
                "pid": journal.pid,
                "finished": journal.finished,
                "last_step": journal.step,
            }
            for rank, journal in sorted(self._run.journals.items())
        ]

    def _failure(self) -> dict[str, Any] | None:
        if self._failed is None:
            return None
        check_id, rank = self._failed
        by_end = check_id in (across_judge.FINISHED, across_judge.MET)
        end = across_end.root(list(self._run.ends.values())) if by_end else None
        host = end.host if end else self._run.host_of.get(-1 if rank is None else rank)
        sentence = self._results[check_id].detail
        if rank is not None and host and f" {host}" not in sentence:
            sentence = f"on {host}: {sentence}"
        return {
            "id": check_id,
            "sentence": sentence,
            "host": host,
            "rank": rank,
            "log": self._log(rank),
            "tail": self._tail(end, rank),
        }

    def _log(self, rank: int | None) -> str | None:
        path = self._run.log_of(rank) if rank is not None else None
        return str(path) if path else None

    def _tail(self, end: End | None, rank: int | None) -> list[str]:
        """Return the last lines of whoever failed; those of another host's rank came with it."""
        if end is not None:
            return list(end.tail)
        mine = rank is not None and self._run.host_of.get(rank) == self._plan.host
        return list(across_end.shortened(self._run.tail(rank))) if mine else []

    def _stamp(self, document: dict[str, Any]) -> dict[str, Any]:
        """What is remembered of a pass: with whom, with which figures."""
        figures = ("mode", "finished", "duration_s", "proof")
        return {
            "hosts": {name: host.fingerprint for name, host in self._plan.hosts.items()},
            "ranks": self._plan.ranks,
            "all_reduce": _largest(document["metrics"]),
            "taylor_ratio": document["metrics"].get("taylor_ratio"),
            **{name: document[name] for name in figures},
        }

    def _summarise(self, document: dict[str, Any]) -> None:
        status = str(document["status"]).upper()
        if failed := document["failed"]:
            for line in failed["tail"][-_LINES_SHOWN:]:
                self._announcer.quote(line)
            self._announcer.say(f"{status} {failed['id']}: {failed['sentence']}")
        else:
            proof = "" if document["proof"] else ", not proof of GPU hosts"
            self._announcer.say(f"{status}{proof}, in {document['duration_s']:.1f} s")


def _largest(figures: dict[str, Any]) -> dict[str, Any] | None:
    """Return the all-reduce with the largest payload."""
    entries = figures.get("allreduce") or []
    exact = [entry for entry in entries if entry["kind"] == "float32"]
    return max(exact, key=lambda entry: int(entry["bytes"])) if exact else None


def _label(plan: Plan) -> str:
    across = f"across {len(plan.hosts)} hosts"
    if plan.mode == GPU:
        return f"{plan.mode}: NCCL {across}"
    return f"{plan.mode}: gloo on the CPU {across}; this is not proof of working GPU hosts"


def _restamp(stamp: Path, across: dict[str, Any] | None) -> None:
    """Put the result into the stamp of the host's own test, or take an earlier one out.

    A host that has no stamp of its own stays without one: this step alone proves too little.
    """
    try:
        content = json.loads(stamp.read_text())
    except (OSError, ValueError):
        return
    if not isinstance(content, dict) or (across is None and "across" not in content):
        return
    content.pop("across", None)
    files.write(stamp, content if across is None else {**content, "across": across})


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
