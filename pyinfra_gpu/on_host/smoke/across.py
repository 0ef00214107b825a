"""S6, a step across hosts: what each host tells of its ranks, and the judgement on all of them.

Pure: the launchers write what they know, the controller reads it and judges. The checks are those
of one host's ranks (`Check.across`), and some on what several hosts add.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

from . import group, ranks, verdict
from .check import Board, Check, Facts, Want, fail, pairs, status_of, unknown
from .document import VERSION, AcrossStamp, AcrossVerdict, Failed, Listens, Mode, Rank
from .group import Ending, Kind
from .journal import Journal
from .listening import ANYONE
from .options import GPU

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

    mode: Mode
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


@dataclass(frozen=True)
class End:
    """One host's end. `host` is whom it is about, which is not always who tells it.

    + kind: "done" is the good one
    + rank: the rank to look at; tail: the last lines that it printed
    """

    kind: Kind
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

    + host: whose it is; journals: rank -> what the rank wrote down
    + logs: rank -> the file there with what it printed; directory: of all files there
    + listens: who could connect to it; None where it did not come so far
    + run_id: of which run
    """

    host: str
    end: End
    directory: str = ""
    journals: Mapping[int, Journal] = field(default_factory=dict)
    logs: Mapping[int, str] = field(default_factory=dict)
    listens: Listens | None = None
    run_id: str = ""


def shortened(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the last lines, none of them long."""
    return tuple(str(line)[:300] for line in lines[-group.TAIL_LINES :])


def root(ends: Sequence[End]) -> End | None:
    """Return the end that explains the others, None if all are good."""
    bad = [end for end in ends if not end.good]
    return min(bad, key=lambda end: get_args(Kind).index(end.kind)) if bad else None


def of_ranks(host: str, ending: Ending, journals: Mapping[int, Journal]) -> End:
    """Return how a run of ranks ended as the end of a host.

    + journals: of its ranks, or of torchrun where none began
    """
    named = journals.get(-1 if ending.rank is None else ending.rank)
    kind = ending.kind
    if kind == "raised" and named and named.error and _PEER_LOST.search(named.error):
        kind = "peer"
    return End(kind, host, f"on {host}, {ending.sentence}", ending.rank)


# -- judged


def _finished(facts: Facts, want: Want) -> str:
    """All hosts did all their work: the fact is the end of one that did not, or else None."""
    end = facts[0]["end"]
    if end is not None and end.kind == "interrupted":
        unknown(end.sentence)
    if end is not None:
        fail(end.sentence, end.rank)
    return f"{len(want.hosts)} hosts, the first is {next(iter(want.hosts))}"


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


ON_RANKS = [replace(check, id=check.id.replace("S4", "S6")) for check in ranks.ACROSS]
"""Those that a single host's test has as well; a host's launcher decides what one rank's facts
show, and ends there."""
CHECKS = (
    Check("S6.hosts", ("identity",), _hosts),
    Check("S6.software", ("identity",), _software),
    *ON_RANKS,
    Check("S6.finished", ("end",), _finished),
)


def document(
    step: Step, parts: Mapping[str, Part], *, started: str, finished: str, seconds: float
) -> AcrossVerdict:
    """Judge a step by what all its hosts told; a host that told nothing has a part as well.

    Returns the verdict, the same for all of its hosts but for its `host`.

    + started, finished: when, in UTC; seconds: how long it took
    """
    journals, host_of = _merged(step, parts)
    end = _root(step, parts, journals, host_of)
    want = Want(step.world_size, step.allreduce_mib, step.mode, hosts=step.hosts)
    board = Board(CHECKS, want)
    board.update(CHECKS[:-1], journals, step.world_size, ended=True)
    if not board.failed:
        board.decide(CHECKS[-1:], {"end": end})
    status = status_of(board.results())
    listening = {name: parts[name].listens for name in step.hosts}
    return AcrossVerdict(
        schema_version=VERSION,
        mode=step.mode,
        label=step.label,
        status=status,
        proof=verdict.proves(status, step.mode),
        host=next(iter(step.hosts)),
        started=started,
        finished=finished,
        duration_s=round(seconds, 3),
        deadline_s=step.deadline,
        checks=tuple(board.results()),
        metrics=verdict.metrics(journals, step.world_size),
        logs=next((part.directory for part in parts.values() if part.directory), ""),
        hosts=dict(step.fingerprints),
        run_id=step.run_id,
        listens={name: each for name, each in listening.items() if each is not None},
        ranks=tuple(
            Rank(rank, host_of[rank], each.pid, None, each.finished, each.step, None)
            for rank, each in journals.items()
        ),
        failed=_failed(board, parts, host_of, end),
    )


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
    ending = group.least_far(journals, f"{step.deadline} s (the deadline)")
    if ending.rank is None:
        return replace(end, sentence=ending.sentence, rank=None)
    host = host_of[ending.rank]
    tail = parts[host].end.tail if parts[host].end.rank == ending.rank else ()
    return replace(of_ranks(host, ending, {}), tail=tail)


def _failed(
    board: Board, parts: Mapping[str, Part], host_of: Mapping[int, str], end: End | None
) -> Failed | None:
    result = board.failed
    if result is None:
        return None
    rank, sentence = result.rank, result.detail
    ends = end if result.id == CHECKS[-1].id else None
    host = ends.host if ends else host_of.get(-1 if rank is None else rank)
    if rank is not None and host and f" {host}" not in sentence:
        sentence = f"on {host}: {sentence}"
    part = parts.get(host or "")
    its_own = part.end.tail if part and part.end.rank == rank else ()
    return Failed(
        id=result.id,
        sentence=sentence,
        rank=rank,
        log=part.logs.get(rank) if part and rank is not None else None,
        tail=tuple(ends.tail if ends else its_own),
        host=host,
    )


def stamp(verdict: AcrossVerdict) -> AcrossStamp:
    """Return what a host's stamp remembers of a step that passed: with whom, which figures."""
    exact = [each for each in verdict.metrics.allreduce if each.kind == "float32"]
    return AcrossStamp(
        hosts=verdict.hosts,
        ranks=len(verdict.ranks),
        all_reduce=max(exact, key=lambda each: each.bytes, default=None),
        taylor_ratio=verdict.metrics.taylor_ratio,
        mode=verdict.mode,
        finished=verdict.finished,
        duration_s=verdict.duration_s,
        proof=verdict.proof,
        open_to_others={
            name: each.how for name, each in verdict.listens.items() if each.to == ANYONE
        },
    )
