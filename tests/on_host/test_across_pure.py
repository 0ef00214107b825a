"""The step across hosts without any rank: what is right, and who is to blame."""

from __future__ import annotations

import copy
import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from pyinfra_gpu.engine.across_hosts import Trained, gone, read
from pyinfra_gpu.engine.together import Together
from pyinfra_gpu.facts.verdict import AcrossVerdict
from pyinfra_gpu.on_host.smoke import across, files
from pyinfra_gpu.on_host.smoke.across import Part, Step
from pyinfra_gpu.on_host.smoke.document import Listens
from pyinfra_gpu.on_host.smoke.journal import Journal
from pyinfra_gpu.on_host.smoke.ranks import Ending
from tests.on_host.smoke_facts import LN_V, WANT, sound

STEP = Step("gpu", {"a": 2, "b": 2}, {"a": "aa", "b": "bb"}, "run", 60, WANT.allreduce_mib)
DONE = Ending("done")


def journal(rank: int, **changes: Any) -> Journal:
    """A journal of a sound rank of four that has done all its work."""
    facts = copy.deepcopy(sound(rank))
    facts["identity"] |= {"world_size": 4, "boot_id": "ab"[rank // 2]}
    for name in ("broadcast", "all_gather", "send_recv"):
        facts["collectives"][name]["elements"] = 2**20
    facts["gradients"]["gathered_sha256"] = [f"local{each}" for each in range(4)]
    made = Journal(rank, pid=100 + rank, local_rank=rank % 2, finished=True, facts=facts)
    return replace(made, seconds=dict.fromkeys(facts, 0.1), **changes)


def parts(*changed: Part) -> dict[str, Part]:
    """The parts of both hosts, sound where they are not among `changed`."""
    made = {
        host: Part(host, DONE, "/logs", {rank: journal(rank) for rank in ranks})
        for host, ranks in (("a", (0, 1)), ("b", (2, 3)))
    }
    return {**made, **{part.host: part for part in changed}}


def written(part: Part) -> str:
    """What a launcher leaves."""
    return json.dumps(asdict(replace(part, run_id="run")))


def judged(told: dict[str, Part]) -> dict[str, Any]:
    """The verdict, after the way that the parts take."""
    read_back = {host: read(written(part), "run") or part for host, part in told.items()}
    verdict = across.document(STEP, read_back, started="2026-11-22T00:00:00Z", began=0.0)
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


def without(fact: str) -> dict[str, Part]:
    """Sound parts, of which no rank has recorded a fact."""
    made = parts()
    for part in made.values():
        for each in part.journals.values():
            del each.facts[fact]
    return made


def test_a_sound_step_passes_with_its_figures() -> None:
    told = parts()
    told["a"] = replace(told["a"], listens=Listens("group", "systemd lets them pass alone"))
    told["b"] = replace(told["b"], listens=Listens("anyone", "no systemd"))
    document = judged(told)
    assert (document["status"], document["proof"]) == ("pass", True)
    assert {check["status"] for check in document["checks"]} == {"pass"}
    details = {check["id"]: check["detail"] for check in document["checks"]}
    assert details["S6.finished"] == "2 hosts, the first is a"
    assert details["S6.hosts"] == "4 ranks on 2 hosts"
    stamp = document["stamp"]
    assert stamp["hosts"] == {"a": "aa", "b": "bb"}
    assert (stamp["ranks"], round(stamp["taylor_ratio"], 3)) == (4, 0.995)
    assert stamp["all_reduce"]["bytes"] == WANT.allreduce_mib * 2**20
    assert stamp["open_to_others"] == {"b": "no systemd"}


def begun(*ranks: int, **steps: int) -> dict[int, Journal]:
    """Journals of ranks that were ended on their way: r1=2 had come to its second step."""
    way = ["import", "init", "gradients"]
    return {rank: Journal(rank, pid=1, steps=way[: steps.get(f"r{rank}", 3)]) for rank in ranks}


HUNG = Part(
    "b", Ending("late", "?", 3, "b", ("it stood here",)), "/logs", begun(2, 3, r3=1), {3: "/log"}
)
SWAPPED = (
    Part("a", DONE, "/logs", {rank: journal(rank) for rank in (0, 1, 2)}),
    Part("b", DONE, "/logs", {3: journal(3)}),
)
WRONG: dict[str, tuple[dict[str, Part], str, str]] = {
    "one machine": (with_fact(3, "identity", boot_id="a"), "S6.hosts", "the same machine"),
    "another world": (
        with_fact(3, "identity", world_size=2),
        *("S6.hosts", "takes itself for rank 3 of 2"),
    ),
    "ranks elsewhere": (
        parts(*SWAPPED),
        *("S6.hosts", "ranks per host: a 3, b 1; expected a 2, b 2"),
    ),
    "another torch": (with_fact(3, "identity", torch="3"), "S6.software", "b has torch 3"),
    "a wrong element": (
        with_fact(2, "collectives", broadcast={"elements": 2**20, "wrong": "Mismatched"}),
        *("S6.collectives", "on b: rank 2, broadcast: Mismatched"),
    ),
    "other parameters": (
        with_fact(1, "step", sha256="p2"),
        *("S6.training_step", "are not the same bytes"),
    ),
    "a loss that does not fall": (
        with_fact(1, "step", loss_after=LN_V + 0.01),
        *("S6.loss_drop", "measured/predicted = 0.7462"),
    ),
    "nobody measured": (without("step"), "S6.training_step", "nothing was recorded of it"),
    "a rank is missing": (
        parts(Part("b", Ending("peer", "on b, 1 of 2 ranks started"), "/l", {2: journal(2)})),
        *("S6.finished", "on b, 1 of 2 ranks started"),
    ),
    "a host that is lost in the middle": (
        parts(
            Part("a", Ending("stopped", "with the others"), "/logs", begun(0, 1)),
            gone("b", "the connection to b was lost"),
        ),
        *("S6.finished", "the connection to b was lost"),
    ),
    "a hang": (
        parts(Part("a", Ending("late", "?"), "/logs", begun(0, 1)), HUNG),
        *("S6.finished", "on b, rank 3 was still at 'import' after 60 s (the deadline)"),
    ),
    "an interrupted host": (
        parts(Part("a", Ending("interrupted", "the test on a was interrupted"), "/l", begun(0, 1))),
        *("S6.finished", "the test on a was interrupted"),
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_not_as_it_must_be_is_named(what: str) -> None:
    told, check, words = WRONG[what]
    document = judged(told)
    status = "unknown" if what == "an interrupted host" else "fail"
    assert (document["status"], document["failed"]["id"]) == (status, check)
    assert words in document["failed"]["sentence"]
    if check == "S6.finished":  # nothing passes while a rank is missing
        assert {each["status"] for each in document["checks"]} == {status, "skip"}


def test_of_a_hang_it_is_told_where_and_how_it_stood() -> None:
    failed = judged(WRONG["a hang"][0])["failed"]
    told = [failed[name] for name in ("host", "rank", "tail", "log")]
    assert told == ["b", 3, ["it stood here"], "/log"]
    assert judged(WRONG["a host that is lost in the middle"][0])["failed"]["host"] == "b"


def test_the_root_is_what_the_others_follow_from() -> None:
    lost, peer = Ending("gone"), Ending("peer")
    killed, late = Ending("killed", "killed", 3), Ending("late")
    assert across.root([peer, lost, DONE]) is lost
    assert across.root([peer, killed]) is killed
    assert across.root([Ending("stopped"), late]) is late
    assert across.root([DONE, DONE]) is None


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
    assert (end.kind, end.sentence, end.host) == (kind, "on b, rank 1 did", "b")


def test_a_part_survives_the_way_to_the_controller() -> None:
    end = Ending("raised", "x" * 5000, 3, "b", ("a", "b"))
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
def test_facts_that_no_check_understands_fail_the_step(odd: Any) -> None:
    told = parts()
    journals = {
        rank: replace(each, facts=dict.fromkeys(each.facts, odd), seconds=odd)
        for rank, each in told["b"].journals.items()
    }
    trained = Trained(Together(set), STEP)
    document = trained.judged({**told, "b": replace(told["b"], journals=journals)})
    verdict = AcrossVerdict.read(json.dumps(document.as_json()))
    assert isinstance(verdict, AcrossVerdict), verdict
    assert verdict.failed is not None
    assert "told something that cannot be judged" in verdict.failed.sentence
