"""The checks of the step across hosts: pure functions of the facts that all ranks wrote down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..journal import Journal
from ..judge import ranks
from ..judge.check import Check, Expected, Facts, Finding
from ..judge.verdict import CheckResult

STAGE = "S6"
MET = f"{STAGE}.met"
FINISHED = f"{STAGE}.finished"

_AS_ON_ONE_HOST = (
    *("allreduce_exact", "allreduce_exact_bf16", "broadcast", "all_gather", "reduce_scatter"),
    *("send_recv", "params_initial", "grad_local_differs", "grad_bitwise", "grad_equal", "finite"),
    *("loss_initial", "loss_drop", "params_equal"),
)


def _hosts(hosts: Mapping[str, int]) -> Callable[[Facts, Expected], Finding]:
    """Each declared host has its ranks, and no two names stand for one machine."""
    wanted = dict(hosts)

    def decide(facts: Facts, expected: Expected) -> Finding:
        identities = [fact["identity"] for fact in facts.values()]
        found = {host: sum(each["host"] == host for each in identities) for host in wanted}
        if found != wanted:
            detail = f"ranks per host: {_pairs(found)}; expected {_pairs(wanted)}"
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

    return decide


def _software(facts: Facts, _: Expected) -> Finding:
    """All ranks run the same torch: another one may reduce in another order, or not at all."""
    found: dict[str, str] = {}
    for fact in facts.values():
        found.setdefault(fact["identity"]["torch"], fact["identity"]["host"])
    same = len(found) == 1
    named = ", ".join(f"{host} has torch {version}" for version, host in found.items())
    return Finding(same, list(found), "one torch", f"torch {next(iter(found))}" if same else named)


def _pairs(value: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {item}" for key, item in value.items())


def checks(hosts: Mapping[str, int]) -> tuple[Check, ...]:
    """Return the checks of a step on `hosts` (host -> number of ranks), in their order."""
    by_id = {check.id: check for check in ranks.CHECKS}
    shared = [replace(by_id[f"S4.{name}"], id=f"{STAGE}.{name}") for name in _AS_ON_ONE_HOST]
    return (
        Check(f"{STAGE}.hosts", ("identity",), _hosts(hosts)),
        Check(f"{STAGE}.software", ("identity",), _software),
        *shared,
    )


def order(checks: Sequence[Check]) -> tuple[str, ...]:
    """Return the ids of all checks of a run, in the order in which they matter."""
    return (MET, *(check.id for check in checks), FINISHED)


def decide(
    checks: Sequence[Check], journals: Mapping[int, Journal], expected: Expected
) -> list[tuple[CheckResult, int | None]]:
    """Decide every check that can be decided, each with the rank to look at.

    A check that needs all ranks' facts is left out where some are missing; one that shows on a
    single rank's facts is decided on those there are, and then only as failed.
    """
    results = []
    for check in checks:
        ready = _ready(check, journals, expected.ranks)
        whole = len(ready) == expected.ranks
        if not whole and not (check.each and ready):
            continue
        facts = {journal.rank: journal.facts for journal in ready}
        found = check.decide(facts, expected)
        if whole or not found.ok:
            results.append((_result(check, found, ready), found.rank))
    return results


def _ready(check: Check, journals: Mapping[int, Journal], count: int) -> list[Journal]:
    known = [journals[rank] for rank in range(count) if rank in journals]
    return [journal for journal in known if all(need in journal.facts for need in check.needs)]


def _result(check: Check, found: Finding, ready: list[Journal]) -> CheckResult:
    seconds = max(journal.seconds[check.needs[-1]] for journal in ready)
    status = found.status or ("pass" if found.ok else "fail")
    return CheckResult(check.id, status, found.measured, found.expected, seconds, found.detail)
