"""S6, a step across hosts: what each host tells of its ranks, and the judgement on all of them.

Pure: the launchers write what they know, the controller reads it and judges. The checks are those
of one host's ranks (`Check.across`), and some on what several hosts add.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from . import files, group, ranks, verdict
from .check import Board, Check, Facts, Want, fail, pairs, renamed, status_of, unknown
from .journal import Journal
from .listening import ANYONE, GROUP, ITSELF
from .options import GPU

SCHEMA_VERSION = 2
GONE = "gone"
"""The kind of end of a host that has left nothing: the controller says that of it."""
KINDS = (
    *("port", GONE, "unreached", "absent", "killed", "raised", "interrupted"),
    *("late", "peer", "stopped", "done"),
)
"""In this order one is the cause of the others: a machine that is gone takes its ranks along, a
rank that is killed makes those of other hosts lose a connection."""
_PEER_LOST = re.compile(
    r"connection (?:was )?(?:likely )?(?:closed|reset|refused)|broken pipe|timed? ?out|socket|"
    r"remote (?:process|rank|peer)|unhandled system error",
    re.IGNORECASE,
)


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

    def member(self, host: str) -> dict[str, Any]:
        """Return what the verdict says of one of the hosts."""
        return {"ranks": self.hosts[host], "fingerprint": self.fingerprints[host]}

    @property
    def label(self) -> str:
        """Return what the step uses, and what it is no proof of."""
        across = f"across {len(self.hosts)} hosts"
        if self.mode == GPU:
            return f"{self.mode}: NCCL {across}"
        return f"{self.mode}: gloo on the CPU {across}; this is not proof of working GPU hosts"


@dataclass(frozen=True)
class End:
    """One host's end. `host` is whom it is about, which is not always who tells it.

    + kind: one of KINDS; "done" is the good one
    + rank: the rank to look at; tail: the last lines that it printed
    """

    kind: str
    host: str
    sentence: str = ""
    rank: int | None = None
    tail: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Return whether this host's ranks did all their work."""
        return self.kind == "done"


@dataclass(frozen=True)
class Part:
    """What one host's launcher tells of its ranks.

    + host: whose it is; journals: rank -> what the rank wrote down; its times are counted from the
      launcher's start, since each host has a clock of its own
    + logs: rank -> the file there with what it printed; directory: of all files there
    + listens: who could connect to it; None where it did not come so far
    """

    host: str
    end: End
    directory: str = ""
    journals: Mapping[int, Journal] = field(default_factory=dict)
    logs: Mapping[int, str] = field(default_factory=dict)
    listens: Mapping[str, str] | None = None

    def as_json(self, run_id: str) -> dict[str, Any]:
        """Return what the launcher leaves for the controller, of the run `run_id`."""
        journals = [asdict(journal) for journal in self.journals.values()]
        logs = {str(rank): log for rank, log in self.logs.items()}
        return {**asdict(self), "run_id": run_id, "journals": journals, "logs": logs}


def read(text: str, run_id: str) -> Part | None:
    """Return the part in a host's file; None where it is of another run, or not a part."""
    try:
        told = json.loads(text)
        if told["run_id"] != run_id:
            return None
        end, listens = told["end"], told["listens"]
        kind = end["kind"] if end["kind"] in KINDS else GONE
        rank = end["rank"] if isinstance(end["rank"], int) else None
        if listens is not None:
            to = listens["to"] if listens["to"] in (ITSELF, GROUP) else ANYONE
            listens = {"to": to, "how": str(listens["how"])[:300] or "it does not say why"}
        journals = [Journal(**each) for each in told["journals"]]
        return Part(
            host=str(told["host"]),
            end=End(
                kind, str(end["host"]), str(end["sentence"])[:2000], rank, shortened(end["tail"])
            ),
            directory=str(told["directory"]),
            journals={int(each.rank): each for each in journals},
            logs={int(number): str(log) for number, log in told["logs"].items()},
            listens=listens,
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        return None


def shortened(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the last lines, none of them long."""
    return tuple(str(line)[:300] for line in lines[-group.TAIL_LINES :])


def root(ends: Sequence[End]) -> End | None:
    """Return the end that explains the others, None if all are good."""
    bad = [end for end in ends if not end.good]
    return min(bad, key=lambda end: KINDS.index(end.kind)) if bad else None


def of_ranks(host: str, sentence: str, rank: int | None, journals: Mapping[int, Journal]) -> End:
    """Return the end of a host whose torchrun ended before the work was done.

    + sentence: how; rank: who is to blame on this host
    """
    error = journals[rank].error if rank is not None and rank in journals else None
    kind = "killed" if error is None else "raised"
    if error is not None and _PEER_LOST.search(error):
        kind = "peer"
    return End(kind, host, f"on {host}, {sentence}", rank)


# -- judged


def _came(fact: str) -> Check:
    """All hosts came so far: the fact is the end of one that did not, or else None."""

    def judge(facts: Facts, want: Want) -> str:
        end = facts[0][fact]
        if end is not None and end.kind == "interrupted":
            unknown(end.sentence)
        if end is not None:
            fail(end.sentence, end.rank)
        return f"{len(want.hosts)} hosts, the first is {next(iter(want.hosts))}"

    return Check(f"S6.{fact}", (fact,), judge)


def _hosts(facts: Facts, want: Want) -> str:
    """Each declared host has its ranks, and no two names stand for one machine."""
    identities = [fact["identity"] for fact in facts.values()]
    found = {host: sum(each["host"] == host for each in identities) for host in want.hosts}
    if found != dict(want.hosts):
        fail(f"ranks per host: {pairs(found)}; expected {pairs(want.hosts)}")
    for rank, each in zip(facts, identities, strict=True):
        if [each["rank"], each["world_size"]] != [rank, want.ranks]:
            taken = f"rank {each['rank']} of {each['world_size']}"
            fail(f"rank {rank} takes itself for {taken}", rank)
    boots: dict[str, str] = {}
    for each in identities:
        other = boots.setdefault(each["boot_id"], each["host"])
        if other != each["host"]:
            fail(f"{other} and {each['host']} are the same machine, by its boot id")
    return f"{len(identities)} ranks on {len(found)} hosts"


def _software(facts: Facts, _: Want) -> str:
    """All ranks run the same torch: another one may reduce in another order, or not at all."""
    found = {fact["identity"]["torch"]: fact["identity"]["host"] for fact in facts.values()}
    if len(found) > 1:
        fail(", ".join(f"{host} has torch {version}" for version, host in found.items()))
    return f"torch {next(iter(found))}"


_MET, _FINISHED = _came("met"), _came("finished")
ON_RANKS = renamed(ranks.ACROSS, "S6")
"""Those that a single host's test has as well; a host's launcher decides what one rank's facts
show, and ends there."""
CHECKS = (
    _MET,
    Check("S6.hosts", ("identity",), _hosts),
    Check("S6.software", ("identity",), _software),
    *ON_RANKS,
    _FINISHED,
)


def document(
    step: Step, parts: Mapping[str, Part], *, started: str, finished: str, seconds: float
) -> dict[str, Any]:
    """Judge a step by what all its hosts told; a host that told nothing has a part as well.

    Returns the verdict, the same for all of its hosts but for its `host`.

    + started, finished: when, in UTC; seconds: how long it took
    """
    journals, host_of = _merged(step, parts)
    end = _root(step, parts, journals, host_of)
    board = _judged(step, parts, journals, end)
    status = status_of(board.results())
    listening = {name: parts[name].listens for name in step.hosts}
    found = {
        "schema_version": SCHEMA_VERSION,
        "mode": step.mode,
        "label": step.label,
        "status": status,
        "proof": verdict.proves(status, step.mode),
        "hosts": {name: step.member(name) for name in step.hosts},
        "listens": {name: each for name, each in listening.items() if each is not None},
        "run_id": step.run_id,
        "started": started,
        "finished": finished,
        "duration_s": round(seconds, 3),
        "deadline_s": step.deadline,
        "ranks": [
            {
                "rank": rank,
                "host": host_of[rank],
                "pid": journal.pid,
                "finished": journal.finished,
                "last_step": journal.step,
            }
            for rank, journal in journals.items()
        ],
        "checks": [each.as_json() for each in board.results()],
        "metrics": verdict.metrics(journals, step.world_size, 0.0, step.label),
        "failed": _failed(board, parts, host_of, end),
        "logs": next((part.directory for part in parts.values() if part.directory), ""),
    }
    return {name: files.finite(value) for name, value in found.items()}


def _merged(step: Step, parts: Mapping[str, Part]) -> tuple[dict[int, Journal], dict[int, str]]:
    """Return rank -> journal, and rank -> host; a rank that two hosts claim is the first one's."""
    journals: dict[int, Journal] = {}
    host_of: dict[int, str] = {}
    for host in step.hosts:
        for rank, journal in parts[host].journals.items():
            if rank not in journals and isinstance(journal.facts, dict):
                host_of[rank], journals[rank] = host, journal
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
    sentence, rank = group.least_far(journals, f"{step.deadline} s (the deadline)")
    if rank is None:
        return replace(end, sentence=sentence, rank=None)
    host = host_of[rank]
    tail = parts[host].end.tail if parts[host].end.rank == rank else ()
    return End("late", host, f"on {host}, {sentence}", rank, tail)


def _judged(
    step: Step, parts: Mapping[str, Part], journals: Mapping[int, Journal], end: End | None
) -> Board:
    want = Want(step.world_size, step.allreduce_mib, step.mode, hosts=step.hosts)
    board = Board(CHECKS, want, lambda _: None)
    # A host that said nothing at all was there if the others' ranks came so far without waiting.
    met = journals and all(part.journals for part in parts.values() if part.directory)
    board.decide([_MET], {"met": None if met else end})
    try:
        board.update(CHECKS[1:-1], journals, step.world_size, ended=True)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        said = f"what the ranks wrote down cannot be judged: {type(error).__name__}: {error}"
        board.close(CHECKS[1:-1], said, None)
    if not board.failed:
        board.decide([_FINISHED], {"finished": end})
    return board


def _failed(
    board: Board, parts: Mapping[str, Part], host_of: Mapping[int, str], end: End | None
) -> dict[str, Any] | None:
    result = board.failed
    if result is None:
        return None
    rank, sentence = result.rank, result.detail
    ends = end if result.id in (_MET.id, _FINISHED.id) else None
    host = ends.host if ends else host_of.get(-1 if rank is None else rank)
    if rank is not None and host and f" {host}" not in sentence:
        sentence = f"on {host}: {sentence}"
    part = parts.get(host or "")
    its_own = part.end.tail if part and part.end.rank == rank else ()
    return {
        "id": result.id,
        "sentence": sentence,
        "host": host,
        "rank": rank,
        "log": part.logs.get(rank) if part and rank is not None else None,
        "tail": list(ends.tail if ends else its_own),
    }


def stamp(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a host's stamp remembers of a step that passed: with whom, which figures."""
    exact = [
        entry for entry in document["metrics"].get("allreduce") or [] if entry["kind"] == "float32"
    ]
    return {
        "hosts": {name: host["fingerprint"] for name, host in document["hosts"].items()},
        "ranks": len(document["ranks"]),
        "all_reduce": max(exact, key=lambda entry: int(entry["bytes"])) if exact else None,
        "taylor_ratio": document["metrics"].get("taylor_ratio"),
        "open_to_others": {
            name: each["how"] for name, each in document["listens"].items() if each["to"] == ANYONE
        },
        **{name: document[name] for name in ("mode", "finished", "duration_s", "proof")},
    }
