"""The step across hosts without any rank: what is right, and who is to blame."""

from __future__ import annotations

import copy
import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from pyinfra_gpu.engine.across_hosts import Trained, read
from pyinfra_gpu.engine.together import Together
from pyinfra_gpu.facts.verdict import AcrossVerdict
from pyinfra_gpu.on_host.smoke import across, files
from pyinfra_gpu.on_host.smoke.across import End, Part, Step
from pyinfra_gpu.on_host.smoke.document import Listens
from pyinfra_gpu.on_host.smoke.journal import Journal
from pyinfra_gpu.on_host.smoke.ranks import Ending
from tests.on_host.smoke_facts import LN_V, WANT, sound

STEP = Step("gpu", {"a": 2, "b": 2}, {"a": "aa", "b": "bb"}, "run", 60, WANT.allreduce_mib)


def facts(rank: int) -> dict[str, Any]:
    """What a sound rank of four writes down."""
    made = sound(rank)
    made["identity"] |= {"world_size": 4, "boot_id": "ab"[rank // 2]}
    for name in ("broadcast", "all_gather", "send_recv"):
        made["collectives"][name]["elements"] = 2**20
    made["gradients"]["gathered_sha256"] = [f"local{each}" for each in range(4)]
    return made


def journal(rank: int, **changes: Any) -> Journal:
    """A journal of a rank that has done all its work."""
    known = copy.deepcopy(facts(rank))
    made = Journal(rank, pid=100 + rank, local_rank=rank % 2, finished=True)
    return replace(made, facts=known, seconds=dict.fromkeys(known, 0.1), **changes)


def parts(*changed: Part) -> dict[str, Part]:
    """The parts of both hosts, sound where they are not among `changed`."""
    sound = {
        host: Part(host, End("done", host), "/logs", {rank: journal(rank) for rank in ranks})
        for host, ranks in (("a", (0, 1)), ("b", (2, 3)))
    }
    return {**sound, **{part.host: part for part in changed}}


def written(part: Part) -> str:
    """What a launcher leaves."""
    return json.dumps(asdict(replace(part, run_id="run")))


def judged(told: dict[str, Part]) -> dict[str, Any]:
    """The verdict, after the way that the parts take."""
    read_back = {host: read(written(part), "run") or part for host, part in told.items()}
    now = "2026-11-22T00:00:00Z"
    verdict = across.document(STEP, read_back, started=now, finished=now, seconds=4.2)
    text = json.dumps(files.finite(verdict.as_json()))
    found = AcrossVerdict.read(text)
    assert isinstance(found, AcrossVerdict), found
    document: dict[str, Any] = {**json.loads(text), "stamp": across.stamp(verdict).as_json()}
    return document


def with_fact(rank: int, fact: str, **changes: Any) -> dict[str, Part]:
    """Sound parts, but for some values of one fact of one rank."""
    made = parts()
    made["ab"[rank // 2]].journals[rank].facts[fact] |= changes
    return made


def test_a_sound_step_passes_with_its_figures() -> None:
    document = judged(parts())
    assert (document["status"], document["proof"]) == ("pass", True)
    assert {check["status"] for check in document["checks"]} == {"pass"}
    details = {check["id"]: check["detail"] for check in document["checks"]}
    assert details["S6.finished"] == "2 hosts, the first is a"
    assert details["S6.hosts"] == "4 ranks on 2 hosts"
    stamp = document["stamp"]
    assert stamp["hosts"] == {"a": "aa", "b": "bb"}
    assert (stamp["ranks"], round(stamp["taylor_ratio"], 3)) == (4, 0.995)
    assert stamp["all_reduce"]["bytes"] == WANT.allreduce_mib * 2**20


def test_a_host_that_others_could_connect_to_is_remembered_in_the_stamp() -> None:
    told = parts()
    limited = replace(told["a"], listens=Listens("group", "systemd lets them pass alone"))
    document = judged(parts(limited, replace(told["b"], listens=Listens("anyone", "no systemd"))))
    assert document["stamp"]["open_to_others"] == {"b": "no systemd"}


WRONG: dict[str, tuple[str, dict[str, Part], str]] = {
    "one machine": ("S6.hosts", with_fact(3, "identity", boot_id="a"), "the same machine"),
    "another world": (
        "S6.hosts",
        with_fact(3, "identity", world_size=2),
        "takes itself for rank 3 of 2",
    ),
    "another torch": ("S6.software", with_fact(3, "identity", torch="3"), "b has torch 3"),
    "a wrong element": (
        "S6.collectives",
        with_fact(2, "collectives", broadcast={"elements": 2**20, "wrong": "Mismatched"}),
        "on b: rank 2, broadcast: Mismatched",
    ),
    "other parameters": (
        "S6.training_step",
        with_fact(1, "step", sha256="p2"),
        "are not the same bytes",
    ),
    "a loss that does not fall": (
        "S6.loss_drop",
        with_fact(1, "step", loss_after=LN_V + 0.01),
        "measured/predicted = 0.7462",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_not_as_it_must_be_is_named(what: str) -> None:
    check, told, words = WRONG[what]
    document = judged(told)
    assert (document["status"], document["failed"]["id"]) == ("fail", check)
    assert words in document["failed"]["sentence"]


def test_ranks_that_are_not_where_they_belong_are_counted() -> None:
    moved = parts(
        Part("a", End("done", "a"), "/logs", {rank: journal(rank) for rank in (0, 1, 2)}),
        Part("b", End("done", "b"), "/logs", {3: journal(3)}),
    )
    assert judged(moved)["failed"]["sentence"] == "ranks per host: a 3, b 1; expected a 2, b 2"


def test_nothing_passes_while_a_rank_is_missing() -> None:
    missing = parts(
        Part("b", End("peer", "b", "on b, 1 of 2 ranks started"), "/l", {2: journal(2)})
    )
    document = judged(missing)
    statuses = {check["id"]: check["status"] for check in document["checks"]}
    assert statuses.pop("S6.finished") == "fail"
    assert set(statuses.values()) == {"skip"}


def test_the_root_is_what_the_others_follow_from() -> None:
    lost, peer = End("gone", "b", "gone"), End("peer", "a", "connection reset")
    killed, done = End("killed", "b", "killed", 3), End("done", "a")
    assert across.root([peer, lost, done]) is lost
    assert across.root([peer, killed]) is killed
    assert across.root([End("stopped", "a"), End("late", "b")]).kind == "late"  # type: ignore[union-attr]
    assert across.root([done, End("done", "b")]) is None


def test_a_host_that_is_lost_in_the_middle_is_named() -> None:
    begun = {rank: replace(journal(rank), finished=False, steps=["import"]) for rank in (0, 1)}
    for rank in begun:
        begun[rank].facts.pop("gradients")
    told = {
        "a": Part("a", End("stopped", "a", "ended with the others'"), "/logs", begun),
        "b": Part("b", End("gone", "b", "the connection to b was lost")),
    }
    document = judged(told)
    assert document["failed"]["id"] == "S6.finished"
    assert document["failed"]["sentence"] == "the connection to b was lost"
    assert document["failed"]["host"] == "b"


def test_of_a_hang_the_rank_that_came_least_far_is_named_with_its_host() -> None:
    steps = {0: 3, 1: 3, 2: 3, 3: 1}
    hung = {
        rank: Journal(rank, pid=1, steps=["import", "init", "gradients"][:count])
        for rank, count in steps.items()
    }
    told = {
        "a": Part("a", End("late", "a", "?"), "/logs", {0: hung[0], 1: hung[1]}),
        "b": Part(
            "b", End("late", "b", "?", 3, ("it stood here",)), "/logs", {2: hung[2], 3: hung[3]}
        ),
    }
    failed = judged(told)["failed"]
    assert failed["sentence"] == "on b, rank 3 was still at 'import' after 60 s (the deadline)"
    assert (failed["host"], failed["rank"], failed["tail"]) == ("b", 3, ["it stood here"])


def test_an_interrupted_host_makes_the_step_unknown() -> None:
    begun = {rank: Journal(rank, pid=1) for rank in (0, 1)}
    told = {
        "a": Part("a", End("interrupted", "a", "the test on a was interrupted"), "/l", begun),
        "b": Part("b", End("stopped", "b"), "/l", {2: Journal(2), 3: Journal(3)}),
    }
    assert judged(told)["status"] == "unknown"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (None, "killed"),
        ("ValueError: broken", "raised"),
        ("RuntimeError: [pair.cc:537] Connection closed by peer [10.0.0.2]:4", "peer"),
        ("DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.", "peer"),
        (
            "DistBackendError: NCCL error: remote process exited or there was a network error",
            "peer",
        ),
    ],
)
def test_a_rank_that_lost_its_peer_is_told_from_one_that_failed(
    error: str | None, kind: str
) -> None:
    ending = Ending("raised" if error else "killed", "rank 1 did", 1)
    end = across.of_ranks("b", ending, {1: Journal(1, error=error)})
    assert (end.kind, end.sentence) == (kind, "on b, rank 1 did")


def test_a_part_survives_the_way_to_the_controller() -> None:
    end = End("raised", "b", "x" * 5000, 3, ("a", "b"))
    part = Part("b", end, "/l", {3: journal(3)}, {3: "/x"}, Listens("group", "by systemd"), "run")
    told = json.loads(written(part))
    assert read(json.dumps(told), "run") == replace(part, end=replace(end, sentence="x" * 2000))
    assert read(json.dumps(told), "another run") is None
    assert read(json.dumps({**told, "end": {**told["end"], "kind": "nonsense"}}), "run") is None
    assert read(json.dumps({**told, "listens": {"to": "nobody", "how": ""}}), "run") is None


@pytest.mark.parametrize(
    "text", ["[" * 60_000, '{"run_id":' * 9_000, '{"run_id": "run", "journals": [{"rank": 1e999}]}']
)
def test_a_part_that_no_launcher_leaves_is_none(text: str) -> None:
    assert read(text, "run") is None


@pytest.mark.parametrize("odd", [None, 3, "x", [], {"a": []}, [[1]], float("nan"), "\x1b[2J"])
def test_facts_that_no_check_understands_are_their_hosts_failure(odd: Any) -> None:
    told = parts()
    journals = {
        rank: replace(each, facts=dict.fromkeys(each.facts, odd), seconds=odd)
        for rank, each in told["b"].journals.items()
    }
    trained = Trained(Together(set), STEP)
    document = trained._judged({**told, "b": replace(told["b"], journals=journals)})
    verdict = AcrossVerdict.read(json.dumps(document.as_json()))
    assert isinstance(verdict, AcrossVerdict), verdict
    assert verdict.failed is not None
    assert "b told something that cannot be judged" in verdict.failed.sentence
