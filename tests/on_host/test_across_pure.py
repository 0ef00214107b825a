"""The step across hosts without any rank: who is to blame, what is right, who speaks to whom."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pyinfra_gpu.on_host.smoke.journal import Journal
from pyinfra_gpu.on_host.smoke.judge.check import Expected
from pyinfra_gpu.on_host.smoke.judge.failure import Failure
from pyinfra_gpu.on_host.smoke.launcher import (
    across_assembly,
    across_end,
    across_judge,
    across_plan,
)
from pyinfra_gpu.on_host.smoke.launcher.across_assembly import Assembly, Message
from pyinfra_gpu.on_host.smoke.launcher.across_end import End
from pyinfra_gpu.on_host.smoke.torch_location import TorchLocation

HOSTS = {"a": 2, "b": 2}
EXPECTED = Expected(4, 64, TorchLocation("/v/torch", "2.13.0", "/v"), [])


def identity(rank: int, **changes: Any) -> dict[str, Any]:
    host = "ab"[rank // 2]
    plain = {"rank": rank, "world_size": 4, "host": host, "boot_id": f"boot-{host}", "torch": "2"}
    return {"identity": {**plain, **changes}}


def found(check: str, facts: dict[int, dict[str, Any]]) -> Any:
    journals = {}
    for rank, fact in facts.items():
        journal = Journal(rank, facts=fact, seconds=dict.fromkeys(fact, 0.0))
        journals[rank] = journal
    checks = [each for each in across_judge.checks(HOSTS) if each.id == check]
    return across_judge.decide(checks, journals, EXPECTED)


GOOD = {rank: identity(rank) for rank in range(4)}


def test_ranks_as_declared_on_machines_of_their_own_are_right() -> None:
    ((result, _),) = found("S6.hosts", GOOD)
    assert (result.status, result.detail) == ("pass", "4 ranks on 2 hosts")
    ((result, _),) = found("S6.software", GOOD)
    assert result.status == "pass"


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "a rank of another host": ("S6.hosts", {"host": "a"}, "ranks per host: a 3, b 1"),
    "one machine": ("S6.hosts", {"boot_id": "boot-a"}, "the same machine"),
    "another world": ("S6.hosts", {"world_size": 2}, "takes itself for rank 3 of 2"),
    "another torch": ("S6.software", {"torch": "3"}, "b has torch 3"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_not_as_declared_is_named(what: str) -> None:
    check, changes, words = WRONG[what]
    ((result, _),) = found(check, {**GOOD, 3: identity(3, **changes)})
    assert result.status == "fail"
    assert words in result.detail


def test_nothing_is_decided_while_a_rank_is_missing() -> None:
    assert found("S6.hosts", {rank: GOOD[rank] for rank in range(3)}) == []


def test_every_check_has_a_place() -> None:
    checks = across_judge.checks(HOSTS)
    order = across_judge.order(checks)
    assert order[0] == "S6.met"
    assert order[-1] == "S6.finished"
    assert len(set(order)) == len(order) == len(checks) + 2


def test_the_root_is_what_the_others_follow_from() -> None:
    lost, peer = End("lost", "b", "gone"), End("peer", "a", "connection reset")
    killed, done = End("killed", "b", "killed", 3), End("done", "a")
    assert across_end.root([peer, lost, done]) is lost
    assert across_end.root([peer, killed]) is killed
    assert across_end.root([End("stopped", "a"), End("late", "b")]).kind == "late"  # type: ignore[union-attr]
    assert across_end.root([done, End("done", "b")]) is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (None, "killed"),
        ("ValueError: broken", "raised"),
        ("RuntimeError: [pair.cc:537] Connection closed by peer [10.0.0.2]:4", "peer"),
        (
            "DistBackendError: NCCL error: remote process exited or there was a network error",
            "peer",
        ),
    ],
)
def test_a_rank_that_lost_its_peer_is_told_from_one_that_failed(
    error: str | None, kind: str
) -> None:
    journals = {1: Journal(1, error=error)}
    end = across_end.of_ranks("b", Failure("rank 1 did", 1), journals)
    assert (end.kind, end.sentence) == (kind, "on b, rank 1 did")


def test_an_end_survives_the_way_to_the_other_hosts() -> None:
    end = End("raised", "b", "x" * 5000, 3, ("a", "b"))
    told = json.loads(json.dumps(end.as_message()))
    assert not {"kind", "host"} & told.keys()  # which belong to the message itself
    assert across_end.read(told) == End("raised", "b", "x" * 2000, 3, ("a", "b"))
    assert across_end.read({"end": "nonsense", "rank": "1", "tail": 3}).kind == "lost"


def test_a_wrong_plan_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    plan = '{"a": {"ranks": 2, "addresses": [], "fingerprint": ""}}'
    common = ["--mode", "rehearsal-cpu", "--run-id", "1", "--output", "/o", "--stamp", "/s"]
    for hosts, me in ((plan, "b"), ("3", "a"), ('{"a": {}}', "a"), (plan.replace("2", "17"), "a")):
        with pytest.raises(SystemExit) as ended:
            across_plan.parse(["--across", me, "--hosts", hosts, *common])
        assert ended.value.code == 2
        assert "error:" in capsys.readouterr().err


# -- the launchers' own connections


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def three(port: int) -> Iterator[dict[str, Assembly]]:
    """Three launchers that have met."""
    hosts = {name: ["127.0.0.1"] for name in ("a", "b", "c")}
    made = {name: Assembly(name, hosts, "run", port) for name in hosts}
    limit = time.monotonic() + 10
    while any(each.missing for each in made.values()) and time.monotonic() < limit:
        for each in made.values():
            each.poll(0.01, "meeting")
        if not made["a"].missing:
            made["a"].say("go")
    yield made
    for each in made.values():
        each.close()


def heard(by: Assembly, all_: dict[str, Assembly], kind: str) -> list[Message]:
    messages: list[Message] = []
    limit = time.monotonic() + 3
    while not messages and time.monotonic() < limit:
        for each in all_.values():
            got = each.poll(0.01, "step")
            if each is by:
                messages += [message for message in got if message["kind"] == kind]
    return messages


def test_what_one_host_says_reaches_all(three: dict[str, Assembly]) -> None:
    three["b"].say("lines", rank=2)
    (message,) = heard(three["c"], three, "lines")
    assert (message["host"], message["rank"]) == ("b", 2)


def test_only_hosts_of_this_run_are_listened_to(three: dict[str, Assembly], port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(b'{"kind": "end", "host": "b", "run": "another"}\nnot even JSON\n')
        assert heard(three["a"], three, "end") == []
        stranger.settimeout(2)
        assert stranger.recv(10) == b""  # shown the door


def test_nobody_but_the_first_speaks_for_others(three: dict[str, Assembly]) -> None:
    message = {"kind": "end", "host": "b", "run": "run"}
    next(iter(three["c"]._links.values())).send(message)
    assert heard(three["a"], three, "end") == []


def test_the_first_host_alone_is_blamed_where_all_are_silent(
    three: dict[str, Assembly], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(across_assembly, "SILENCE_S", 0.2)
    time.sleep(0.3)
    assert three["b"].silent(time.monotonic()) == ["a"]
    assert three["a"].silent(time.monotonic()) == ["b", "c"]


def test_a_connection_that_ends_is_noticed(three: dict[str, Assembly]) -> None:
    three["b"].close()
    limit = time.monotonic() + 3
    while "b" not in three["a"].closed_on and time.monotonic() < limit:
        three["a"].poll(0.01, "step")
    assert three["a"].closed_on == {"b"}
