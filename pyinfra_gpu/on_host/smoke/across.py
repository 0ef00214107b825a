"""S6, a step across hosts: each host runs its ranks and tells of them; the controller judges.

A host's part (`take_part`) is its ranks under the rendezvous that all share, and a file with what
they wrote down. The controller judges the ranks of all hosts by the checks of one host's
(`Check.across`), and by some on what several hosts add (`document`).
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import get_args

from . import files, listening, verdict
from .check import (
    Check,
    Facts,
    Results,
    Want,
    blame,
    complete,
    decide,
    fail,
    first_failed,
    pairs,
)
from .document import AcrossStamp, AcrossVerdict, Failed, Listens, Mode
from .journal import HOST, STARTING, Journal
from .options import GPU, Across, Options
from .ranks import DEADLINE, STOPPED, TAIL_LINES, Ending, Kind, Ranks, least_far, under_torchrun
from .table import CHECKS
from .verdict import Announcer, Where

_MEETING_S = 60
"""Seconds, in which torchrun is to find the other hosts."""
_MEETING_SHARE = 0.6
"""Of the deadline, in which it must have found them."""
_MEASURE = ("all_reduce", "others", "step")
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
    def label(self) -> str:
        """Return what the step uses, and what it is no proof of."""
        across = f"across {len(self.hosts)} hosts"
        if self.mode == GPU:
            return f"{self.mode}: NCCL {across}"
        return f"{self.mode}: gloo on the CPU {across}; this is not proof of working GPU hosts"


@dataclass(frozen=True)
class Part:
    """What one host's launcher tells of its ranks.

    + host: whose it is; journals: rank -> what the rank wrote down
    + logs: rank -> the file there with what it printed; directory: of all files there
    + listens: who could connect to it; None where it did not come so far
    + run_id: of which run
    """

    host: str
    end: Ending
    directory: str = ""
    journals: Mapping[int, Journal] = field(default_factory=dict)
    logs: Mapping[int, str] = field(default_factory=dict)
    listens: Listens | None = None
    run_id: str = ""


# -- a host's part


def take_part(
    options: Options,
    asked: Across,
    bundle: Path,
    say: Announcer,
    interruption: Callable[[], str | None],
) -> int:
    """Meet the other hosts, run the ranks, leave the part; return the exit code.

    It is left at the verdict's path with ".part"; where the controller has written the id of this
    run to that with ".end", the ranks are ended.
    """
    host, began = options.host, time.monotonic()
    left, ended = (options.output.with_name(f"{options.output.name}.{x}") for x in ("part", "end"))
    listens = listening.to_whom(listening.GROUP)
    say.say(f"{host}: one step on {', '.join(asked.hosts)}")
    if listens.to == listening.ANYONE:
        say.say(f"others than these hosts can connect: {listens.how}")
    left.unlink(missing_ok=True)
    ended.unlink(missing_ok=True)
    shutil.rmtree(options.logs, ignore_errors=True)
    options.logs.mkdir()
    run = _ranks(options, asked, bundle)

    def to_end(_: bool) -> str | None:
        """Torchrun tries for long to find the others, which must leave time for the step."""
        limit = options.deadline * (1.0 if run.journals else _MEETING_SHARE)
        late = time.monotonic() > began + limit
        asked_to = ended.exists() and ended.read_text().strip() == asked.run_id
        return interruption() or (STOPPED if asked_to else DEADLINE if late else None)

    run.run(to_end)
    end = _end(run, options, asked, listens)
    logs = {rank: log for rank in run.journals if (log := run.log_of(rank))}
    part = Part(host, end, str(options.logs), run.journals, logs, listens, asked.run_id)
    files.write(left, asdict(part))
    say.quote(end.tail)
    done = f"the ranks of {host} are done, in {time.monotonic() - began:.1f} s"
    say.say(done if end.kind == "done" else end.sentence)
    return verdict.exit_code("pass" if end.kind == "done" else "fail", options.mode)


def _ranks(options: Options, asked: Across, bundle: Path) -> Ranks:
    is_host = options.host == asked.hosts[0]
    local = asked.address if is_host else listening.seen_by(asked.address)
    interface = listening.interface_of(local)
    shown = f"[{asked.address}]" if ":" in asked.address else asked.address
    seconds = min(_MEETING_S, options.deadline // 3)
    rendezvous = (
        *("--nnodes", str(len(asked.hosts)), "--rdzv-id", asked.run_id),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"{shown}:{asked.port}"),
        *("--local-addr", local, "--rdzv-conf"),
        f"is_host={is_host},join_timeout={seconds},read_timeout={seconds}",
    )
    by = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
    logs, count = options.logs, options.ranks or 2
    return under_torchrun(options, options.mode, count, bundle, logs, _MEASURE, by, rendezvous)


def _end(run: Ranks, options: Options, asked: Across, listens: Listens) -> Ending:
    """Return how a host's ranks ended."""
    ending = run.ending(f"{options.deadline} s (the deadline)")
    met = run.journals or run.own.step != STARTING
    if ending.kind in ("raised", "late") and not met:
        error = (run.own.error or "no answer").splitlines()[0]
        return _unmet(options.host, asked, listens, error)
    quiet = ending.kind in ("done", "stopped", "interrupted")
    tail = () if quiet else shortened(run.tail(ending.rank))
    return replace(of_ranks(options.host, ending, run.journals or {HOST: run.own}), tail=tail)


def _unmet(host: str, asked: Across, listens: Listens, error: str) -> Ending:
    """Return the end of a host whose torchrun did not find the others'."""
    first, *others = asked.hosts
    if host == first and "listen" in error:
        sentence = f"port {asked.port} cannot be listened at on {host}: {error}"
        return Ending("port", sentence, host=host)
    if host == first:
        sentence = f"not all of {' and '.join(others)} came in time"
        return Ending("absent", sentence, host=others[0])
    whom = first
    if listens.to == listening.GROUP:
        whom += f", and for {host} if others see it under an address of no interface"
    at = f"{host} could not reach {first} at {asked.address} port {asked.port} ({error})"
    what = f"let TCP through between the hosts, or declare smoke_across_address for {whom}"
    return Ending("unreached", f"{at}: {what}", host=first)


def of_ranks(host: str, ending: Ending, journals: Mapping[int, Journal]) -> Ending:
    """Return how a run of ranks ended as the end of a host: whoever only lost a peer did not fail.

    + journals: of its ranks, or of torchrun where none began
    """
    named = journals.get(HOST if ending.rank is None else ending.rank)
    lost = ending.kind == "raised" and named and named.error and _PEER_LOST.search(named.error)
    kind: Kind = "peer" if lost else ending.kind
    return replace(ending, kind=kind, host=host, sentence=f"on {host}, {ending.sentence}")


def shortened(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the last lines, none of them long."""
    return tuple(str(line)[:300] for line in lines[-TAIL_LINES:])


# -- judged


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


def _finished(_: Facts, want: Want) -> str:
    return f"{len(want.hosts)} hosts, the first is {next(iter(want.hosts))}"


_OF_SEVERAL = (
    Check("S6.hosts", _hosts, ("identity",), each=False),
    Check("S6.software", _software, ("identity",), each=False),
    *(replace(each, id=each.id.replace("S4", "S6")) for each in CHECKS if each.across),
    Check("S6.finished", _finished, ("ended",), of="host"),
)


def document(step: Step, parts: Mapping[str, Part], *, started: str, began: float) -> AcrossVerdict:
    """Judge a step by what all its hosts told; a host that told nothing has a part as well.

    Returns the verdict, the same for all of its hosts but for its `host`.

    + started, began: when, in UTC and on the monotonic clock
    """
    journals, where = _merged(step, parts)
    want = Want(sum(step.hosts.values()), step.allreduce_mib, step.mode, hosts=step.hosts)
    end, own = _root(step, parts, journals, where), Journal(HOST)
    if end is None:
        own.facts["ended"] = True
    results = decide(_OF_SEVERAL, want, own, journals, ended=True)
    if end is not None:
        known = end.kind != "interrupted"
        blame(_OF_SEVERAL[-1:], results, end.sentence, end.rank, known=known)
    blame(_OF_SEVERAL, results)  # what nobody measured has not passed
    checks = complete(_OF_SEVERAL, results)
    return AcrossVerdict(
        **verdict.tested(want, checks, began, journals, where, {}),
        label=step.label,
        host=next(iter(step.hosts)),
        started=started,
        deadline_s=step.deadline,
        logs=next((part.directory for part in parts.values() if part.directory), ""),
        hosts=dict(step.fingerprints),
        run_id=step.run_id,
        listens={name: each for name in step.hosts if (each := parts[name].listens)},
        failed=_failed(results, parts, where, end),
    )


def _merged(step: Step, parts: Mapping[str, Part]) -> tuple[dict[int, Journal], Where]:
    """Return rank -> journal, and where; a rank that two hosts claim is the first one's."""
    journals: dict[int, Journal] = {}
    where: dict[int, tuple[str, str | None]] = {}
    for host in step.hosts:
        for rank, journal in parts[host].journals.items():
            if rank not in journals:
                where[rank], journals[rank] = (host, parts[host].logs.get(rank)), journal
                if isinstance(identity := journal.facts.get("identity"), dict):
                    identity["host"] = host
    return dict(sorted(journals.items())), where


def root(ends: Sequence[Ending]) -> Ending | None:
    """Return the end that explains the others, None if all are good."""
    first = min(ends, key=lambda end: get_args(Kind).index(end.kind))
    return None if first.kind == "done" else first


def _root(
    step: Step, parts: Mapping[str, Part], journals: Mapping[int, Journal], where: Where
) -> Ending | None:
    """Return the end that explains the others; of a hang, who of all ranks had come least far."""
    end = root([part.end for part in parts.values()])
    if end is None or end.kind != "late" or len(journals) < sum(step.hosts.values()):
        return end
    ending = least_far(journals, f"{step.deadline} s (the deadline)")
    if ending.rank is None:
        return replace(end, sentence=ending.sentence, rank=None)
    host = where[ending.rank][0]
    tail = parts[host].end.tail if parts[host].end.rank == ending.rank else ()
    return replace(of_ranks(host, ending, {}), tail=tail)


def _failed(
    results: Results, parts: Mapping[str, Part], where: Where, end: Ending | None
) -> Failed | None:
    result = first_failed(results)
    if result is None:
        return None
    rank, sentence = result.rank, result.detail
    host, log = where.get(HOST if rank is None else rank, (None, None))
    tail = parts[host].end.tail if host and parts[host].end.rank == rank else ()
    if end and result.id == _OF_SEVERAL[-1].id:
        host, tail = end.host, end.tail
    if rank is not None and host and not re.search(rf"\b{re.escape(host)}\b", sentence):
        sentence = f"on {host}: {sentence}"
    return Failed(result.id, sentence, rank, log, tail, host)


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
        open_to_others={
            name: each.how for name, each in verdict.listens.items() if each.to == listening.ANYONE
        },
    )
