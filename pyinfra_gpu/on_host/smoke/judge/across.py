"""The judgement of a step across hosts, on the facts of all ranks of all hosts.

The checks are those of one host's ranks (`Check.across`), and some on what several hosts add.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import files
from ..journal import Journal
from ..options import GPU
from ..torch_location import TorchLocation
from . import failure, metrics, ranks, verdict
from .check import Check, Expected, Facts, Finding, pairs
from .decisions import Decisions
from .ends import End, Part, root
from .listens import ANYONE

SCHEMA_VERSION = 1
STAGE = "S6"


@dataclass(frozen=True)
class Step:
    """One step as it was asked for; the first of `hosts` served torchrun's store.

    + hosts: host -> the number of its ranks; fingerprints: host -> what its own test passed with
    """

    mode: str
    hosts: Mapping[str, int]
    fingerprints: Mapping[str, str]
    run_id: str
    deadline: int
    allreduce_mib: int

    @property
    def world_size(self) -> int:
        """Return the number of ranks on all hosts."""
        return sum(self.hosts.values())

    @property
    def label(self) -> str:
        """Return what the step uses, and what it is no proof of."""
        across = f"across {len(self.hosts)} hosts"
        if self.mode == GPU:
            return f"{self.mode}: NCCL {across}"
        return f"{self.mode}: gloo on the CPU {across}; this is not proof of working GPU hosts"


def _came_to(fact: str) -> Callable[[Facts, Expected], Finding]:
    """Whether all hosts came so far: the fact is the end of one that did not, or else None."""

    def decide(facts: Facts, expected: Expected) -> Finding:
        end, hosts = facts[0][fact], list(expected.hosts)
        if end is not None:
            status = "unknown" if end.kind == "interrupted" else None
            return Finding(False, None, None, end.sentence, end.rank, status)
        return Finding(True, hosts, hosts, f"{len(hosts)} hosts, the first is {hosts[0]}")

    return decide


def _hosts(facts: Facts, expected: Expected) -> Finding:
    """Each declared host has its ranks, and no two names stand for one machine."""
    wanted = dict(expected.hosts)
    identities = [fact["identity"] for fact in facts.values()]
    found = {host: sum(each["host"] == host for each in identities) for host in wanted}
    if found != wanted:
        detail = f"ranks per host: {pairs(found)}; expected {pairs(wanted)}"
        return Finding(False, found, wanted, detail)
    for rank, identity in zip(facts, identities, strict=True):
        measured = [identity["rank"], identity["world_size"]]
        if measured != [rank, expected.ranks]:
            detail = f"rank {rank} takes itself for rank {measured[0]} of {measured[1]}"
            return Finding(False, measured, [rank, expected.ranks], detail, rank)
    boots: dict[str, str] = {}
    for each in identities:
        other = boots.setdefault(each["boot_id"], each["host"])
        if other != each["host"]:
            detail = f"{other} and {each['host']} are the same machine, by its boot id"
            return Finding(False, each["boot_id"], "one boot id a host", detail)
    return Finding(True, found, wanted, f"{len(identities)} ranks on {len(found)} hosts")


def _software(facts: Facts, _: Expected) -> Finding:
    """All ranks run the same torch: another one may reduce in another order, or not at all."""
    found: dict[str, str] = {}
    for fact in facts.values():
        found.setdefault(fact["identity"]["torch"], fact["identity"]["host"])
    same = len(found) == 1
    named = ", ".join(f"{host} has torch {version}" for version, host in found.items())
    return Finding(same, list(found), "one torch", f"torch {next(iter(found))}" if same else named)


MET = Check(f"{STAGE}.met", ("met",), _came_to("met"))
ON_RANKS: tuple[Check, ...] = tuple(
    replace(check, id=f"{STAGE}.{check.id.partition('.')[2]}")
    for check in ranks.CHECKS
    if check.across
)
"""Those that a single host's test has as well; a host's launcher decides what one rank's facts
show, and ends there."""
FINISHED = Check(f"{STAGE}.finished", ("finished",), _came_to("finished"))
CHECKS: tuple[Check, ...] = (
    MET,
    Check(f"{STAGE}.hosts", ("identity",), _hosts),
    Check(f"{STAGE}.software", ("identity",), _software),
    *ON_RANKS,
    FINISHED,
)


@dataclass(frozen=True)
class Judged:
    """A step as it was judged: its results, and the end that is to blame for a failure."""

    decisions: Decisions
    journals: Mapping[int, Journal]
    host_of: Mapping[int, str]
    end: End | None


def judge(step: Step, parts: Mapping[str, Part]) -> Judged:
    """Judge a step by what all its hosts told; a host that told nothing has a part as well."""
    journals, host_of = _merged(step, parts)
    nowhere = TorchLocation(None, None, "")
    expected = Expected(step.world_size, step.allreduce_mib, nowhere, [], hosts=step.hosts)
    decisions = Decisions(CHECKS, expected, lambda _: None)
    end = _root(step, parts, journals, host_of)
    # A host that said nothing at all was there if the others' ranks came so far without waiting.
    met = all(part.journals for part in parts.values() if part.directory)
    met = met and bool(journals)
    decisions.decide([MET], {"met": None if met else end})
    checks = CHECKS[1:-1]
    try:
        decisions.update(checks, journals, step.world_size)
        decisions.blame(checks, journals)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        said = f"what the ranks wrote down cannot be judged: {type(error).__name__}: {error}"
        decisions.close(checks, failure.Failure(said, None))
    if not decisions.stopped:
        decisions.decide([FINISHED], {"finished": end})
    decisions.skip(CHECKS)
    return Judged(decisions, journals, host_of, end)


def _merged(step: Step, parts: Mapping[str, Part]) -> tuple[dict[int, Journal], dict[int, str]]:
    """Return rank -> journal, and rank -> host; a rank that two hosts claim is the first one's."""
    journals: dict[int, Journal] = {}
    host_of: dict[int, str] = {}
    for host in step.hosts:
        for rank, journal in parts[host].journals.items():
            if rank not in journals and isinstance(journal.facts, dict):
                host_of[rank] = host
                journals[rank] = journal
                if isinstance(identity := journal.facts.get("identity"), dict):
                    identity["host"] = host
    return dict(sorted(journals.items())), host_of


def _root(
    step: Step,
    parts: Mapping[str, Part],
    journals: Mapping[int, Journal],
    host_of: Mapping[int, str],
) -> End | None:
    """Return the end that explains the others; of a hang, who of all ranks had come least far."""
    end = root([part.end for part in parts.values()])
    if end is None or end.kind != "late" or len(journals) < step.world_size:
        return end
    found = failure.at_deadline(journals, step.world_size, step.deadline)
    if found.rank is None:
        return replace(end, sentence=found.sentence, rank=None)
    host = host_of[found.rank]
    tail = parts[host].end.tail if parts[host].end.rank == found.rank else ()
    return End("late", host, f"on {host}, {found.sentence}", found.rank, tail)


def document(
    step: Step, parts: Mapping[str, Part], *, started: str, finished: str, seconds: float
) -> dict[str, Any]:
    """Return the verdict of a step, the same for all of its hosts but for its `host`.

    + started, finished: when, in UTC; seconds: how long it took
    """
    judged = judge(step, parts)
    checks = judged.decisions.results()
    status = verdict.status_of(checks)
    found = {
        "schema_version": SCHEMA_VERSION,
        "mode": step.mode,
        "label": step.label,
        "status": status,
        "proof": verdict.proves(status, step.mode),
        **_of_hosts(step, parts),
        "run_id": step.run_id,
        "started": started,
        "finished": finished,
        "duration_s": round(seconds, 3),
        "deadline_s": step.deadline,
        "ranks": [
            {
                "rank": rank,
                "host": judged.host_of[rank],
                "pid": journal.pid,
                "finished": journal.finished,
                "last_step": journal.step,
            }
            for rank, journal in judged.journals.items()
        ],
        "checks": verdict.as_json(checks),
        "metrics": metrics.collect(judged.journals, step.world_size, 0.0, step.label),
        "failed": _failed(judged, parts),
        "logs": next((part.directory for part in parts.values() if part.directory), ""),
    }
    return {name: files.finite(value) for name, value in found.items()}


def _of_hosts(step: Step, parts: Mapping[str, Part]) -> dict[str, Any]:
    listening = {name: parts[name].listens for name in step.hosts}
    return {
        "hosts": {
            name: {"ranks": count, "fingerprint": step.fingerprints[name]}
            for name, count in step.hosts.items()
        },
        "listens": {name: each.as_json() for name, each in listening.items() if each is not None},
    }


def _failed(judged: Judged, parts: Mapping[str, Part]) -> dict[str, Any] | None:
    check_id, rank = judged.decisions.failed, judged.decisions.failed_rank
    if check_id is None:
        return None
    end = judged.end if check_id in (MET.id, FINISHED.id) else None
    host = end.host if end else judged.host_of.get(-1 if rank is None else rank)
    results: Sequence[verdict.CheckResult] = judged.decisions.results()
    sentence = next(each.detail for each in results if each.id == check_id)
    if rank is not None and host and f" {host}" not in sentence:
        sentence = f"on {host}: {sentence}"
    part = parts.get(host or "")
    its_own = part.end.tail if part and part.end.rank == rank else ()
    return {
        "id": check_id,
        "sentence": sentence,
        "host": host,
        "rank": rank,
        "log": part.logs.get(rank) if part and rank is not None else None,
        "tail": list(end.tail if end else its_own),
    }


def stamp(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a host's stamp remembers of a step that passed: with whom, which figures."""
    figures = ("mode", "finished", "duration_s", "proof")
    return {
        "hosts": {name: host["fingerprint"] for name, host in document["hosts"].items()},
        "ranks": len(document["ranks"]),
        "all_reduce": _largest(document["metrics"]),
        "taylor_ratio": document["metrics"].get("taylor_ratio"),
        "open_to_others": {
            name: each["how"] for name, each in document["listens"].items() if each["to"] == ANYONE
        },
        **{name: document[name] for name in figures},
    }


def _largest(figures: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the all-reduce with the largest payload."""
    exact = [entry for entry in figures.get("allreduce") or [] if entry["kind"] == "float32"]
    return max(exact, key=lambda entry: int(entry["bytes"])) if exact else None
