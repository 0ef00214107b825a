"""The step across hosts as the controller arranges it: who takes part, when, and when not."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import verdicts
from fake_host import DATA, FakeHost
from gpu_host import DATA as GPU_DATA
from gpu_host import GpuHost, GpuRun, unwrapped
from pyinfra import context
from test_smoke import asked, stamp_of

from pyinfra_gpu.engine import meeting
from pyinfra_gpu.errors import SpecError
from pyinfra_gpu.on_host.smoke.listening import ALLOWED_LOOPBACK
from pyinfra_gpu.on_host.smoke.options import Options
from tasks.stages import smoke

ACROSS: dict[str, object] = {**DATA, "smoke_across_hosts": True}
TWO = ("@fake/ws1", "@fake/ws2")


@dataclass
class Answering(FakeHost):
    """A host that tells its address when it is asked, and which verdict the step has left."""

    data: dict[str, object] = field(default_factory=lambda: dict(ACROSS))
    tells: str = "10.0.0.1 fe80::1"
    leaves: str = ""


class Run(GpuRun):
    """The smoke stage alone."""

    def __init__(self, *hosts: FakeHost) -> None:
        # Without a host that goes on, pyinfra ends a run with an exception.
        super().__init__(*hosts, FakeHost(name="bystander"), tasks=(smoke,))

    @staticmethod
    def _data(host: FakeHost) -> dict[str, Any]:
        data = GpuRun._data(host)
        if isinstance(host, Answering):
            reported = {"hostname -I": {"stdout": [host.tells]}}
            reported["state/across.json"] = {"stdout": host.leaves.splitlines()}
            data["fake_responses"] = {**data["fake_responses"], **reported}
        return data

    def wrapped(self, name: str) -> list[list[str]]:
        """The words that start the launcher on one host, and before them what they are a word of;
        empty where it was not started.
        """
        for command in self.executed(name):
            if "allreduce_mib" in command:
                return unwrapped(command)
        return []

    def asked(self, name: str) -> Options:
        """What the launcher on one host is asked for."""
        return asked(self.wrapped(name)[-1])


def passed_together(*names: str, across: list[str] | None = None) -> list[Answering]:
    """Hosts whose stamps say that they have passed together."""
    hosts = [Answering(name=name) for name in names]
    together = [f"@fake/{name}" for name in names] if across is None else across
    for host in hosts:
        host.reported = {"smoke.stamp": json.dumps({**stamp_of(host), "across": together})}
    return hosts


def test_hosts_that_never_passed_together_start_one_step_with_one_plan() -> None:
    run = Run(Answering(name="ws1", tells="10.0.0.1 10.0.0.2"), Answering(name="ws2"))
    assert run.prepare().changing("ws1") == ["Smoke | Run the multi-node smoke test"]
    run.execute()
    first, second = run.asked("ws1"), run.asked("ws2")
    assert (first.hosts, first.ranks, first.mode) == (dict.fromkeys(TWO, 2), 4, "rehearsal-cpu")
    # the first one's, of those that the other has not
    assert (first.address, first.port) == ("10.0.0.2", 29400)
    assert first.host == TWO[0]
    assert replace(first, host=TWO[1]) == second
    assert run.failed() == {"ws1", "ws2"}  # these hosts leave nothing to be judged


LOST = verdicts.failed("S6.import", "rank 0 lost another", tail=[])
OF_RUN: dict[str, Any] = {"mode": "rehearsal-cpu", "proof": False, "fingerprint": "run-7"}
PASS = verdicts.across(**OF_RUN)
FAIL = verdicts.across(**OF_RUN, status="fail", failed=verdicts.failed("S6.import", "too much"))
UNKNOWN = verdicts.across(**OF_RUN, status="unknown", failed=LOST)


@pytest.mark.parametrize(
    ("leaves", "cause"),
    [
        ((PASS, PASS), ""),
        ((UNKNOWN, FAIL), "@fake/ws2: S6.import: too much"),
        ((PASS, FAIL), "@fake/ws2: S6.import: too much"),
        ((UNKNOWN, UNKNOWN), "@fake/ws1: S6.import: rank 0 lost another"),
        ((PASS, {**PASS, "fingerprint": "another run"}), "@fake/ws2: it ended without"),
    ],
)
def test_a_step_counts_where_it_passed_on_all_hosts_and_one_cause_is_named(
    leaves: tuple[dict[str, Any], ...],
    cause: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(meeting, "RUN_ID", "run-7")
    hosts = [
        Answering(name=name, leaves=json.dumps(document))
        for name, document in zip(("ws1", "ws2"), leaves, strict=True)
    ]
    run = Run(*hosts).prepare().execute()
    assert run.asked("ws1").fingerprint == "run-7"
    stamps = [each for each in run.executed("ws1") if "smoke/stamp.json" in each]
    assert len(stamps) == (1 if cause else 2)  # it is taken back, and noted after a pass
    assert run.failed() == ({"ws1", "ws2"} if cause else set())
    assert not cause or f"@fake/ws1: the multi-node step failed on {cause}" in caplog.text


def test_a_host_that_is_heard_of_no_more_is_the_cause_of_lost_connections(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(meeting, "RUN_ID", "run-7")
    said, heard = meeting.say, meeting.hear

    def say(topic: str, value: Any) -> None:
        if (topic, context.host.name) != ("end", TWO[1]):
            said(topic, value)

    def hear(topic: str, hosts: Any, seconds: float) -> dict[str, Any]:
        return heard(topic, hosts, 0.5 if topic == "end" else seconds)

    monkeypatch.setattr(meeting, "say", say)
    monkeypatch.setattr(meeting, "hear", hear)
    hosts = [Answering(name=name, leaves=json.dumps(UNKNOWN)) for name in ("ws1", "ws2")]
    Run(*hosts).prepare().execute()
    assert "@fake/ws1: the multi-node step failed on @fake/ws2: it was lost" in caplog.text


def test_hosts_that_passed_together_have_nothing_to_do() -> None:
    run = Run(*passed_together("ws1", "ws2")).prepare()
    assert run.changing("ws1") == run.changing("ws2") == []
    run.execute()
    assert run.failed() == set()
    assert run.commands("ws1") == run.commands("ws2") == []
    assert run.looks("ws1") == 2  # one for the plan, one for the run


@pytest.mark.parametrize(
    ("across", "operations"),
    [([TWO[0]], ["multi-node "]), ([], ["multi-node "]), ([1], ["", "multi-node "])],
    ids=["others", "none", "damaged"],
)
def test_what_no_longer_holds_is_made_again(across: Any, operations: list[str]) -> None:
    run = Run(*passed_together("ws1", "ws2", across=across)).prepare()
    assert run.changing("ws1") == [f"Smoke | Run the {each}smoke test" for each in operations]


def test_one_host_that_changed_brings_the_others_along() -> None:
    hosts = passed_together("ws1", "ws2", "ws3")
    stamp = stamp_of(Answering(name="ws2"))
    hosts[1].reported = {"smoke.stamp": json.dumps(stamp)}
    run = Run(*hosts).prepare().execute()
    assert all(run.wrapped(name) for name in ("ws1", "ws2", "ws3"))


def test_who_does_not_come_is_not_waited_for_and_fails_only_those_that_need_the_step() -> None:
    silent = Answering(name="ws2", answers=False)
    run = Run(Answering(name="ws1"), silent, Answering(name="ws3")).prepare().execute()
    assert run.failed() == {"ws1", "ws2", "ws3"}
    without_address = Answering(name="ws1", tells="fe80::1")
    other = Run(without_address, Answering(name="ws2")).prepare().execute()
    assert other.failed() == {"ws1", "ws2"}
    assert run.wrapped("ws1") == other.wrapped("ws2") == []
    proven, _ = passed_together("ws1", "ws2")
    assert Run(proven, silent).prepare().execute().failed() == {"ws2"}


def test_root_lets_the_addresses_of_all_hosts_pass_and_nothing_that_is_none() -> None:
    odd = "10.0.0.2 2001:db8::2 0.0.0.0 0.0.0.0/0 any 224.0.0.1 -p"
    hosts = Answering(name="ws1", tells=odd), Answering(name="ws2")
    run = Run(*hosts).prepare().execute()
    for name in ("ws1", "ws2"):
        wrapper, waiting, _ = run.wrapped(name)
        assert "locked.sh" in waiting
        assert wrapper[-5] == "group.sh"
        loopback, of_hosts = wrapper[-1].split()[:2], wrapper[-1].split()[2:]
        assert loopback == list(ALLOWED_LOOPBACK)
        assert of_hosts == ["10.0.0.2", "2001:db8::2", "10.0.0.1"]


def test_the_address_of_data_is_taken_and_may_pass() -> None:
    declared = {**ACROSS, "smoke_across_address": "10.9.9.9", "smoke_across_port": 31000}
    run = Run(Answering(name="ws1", data=declared), Answering(name="ws2")).prepare().execute()
    # What must be the same everywhere is the first host's.
    for name in ("ws1", "ws2"):
        assert (run.asked(name).address, run.asked(name).port) == ("10.9.9.9", 31000)
        assert "10.9.9.9" in run.wrapped(name)[0][-1].split()


def test_hosts_that_would_not_speak_the_same_language_are_refused() -> None:
    gpus = GpuHost(name="ws2", data={**GPU_DATA, "smoke": "auto", "smoke_across_hosts": True})
    stamp = stamp_of(gpus)
    gpus.reported = {"smoke.stamp": json.dumps(stamp)}
    run = Run(Answering(name="ws1"), gpus).prepare().execute()
    assert run.failed() == {"ws1", "ws2"}
    assert run.wrapped("ws1") == []


IMPOSSIBLE: dict[str, list[FakeHost]] = {
    "in no such group of this inventory with another": [Answering(name="ws1"), FakeHost(name="w")],
    "in no such group of this inventory": [
        Answering(name="ws1", data={**DATA, "smoke_across_hosts": "gpus"}),
        FakeHost(name="ws2"),
    ],
    "at most 8 can take part": [Answering(name=f"ws{number}") for number in range(1, 10)],
}


@pytest.mark.parametrize("why", IMPOSSIBLE)
def test_what_cannot_be_is_refused(why: str) -> None:
    with pytest.raises(SpecError, match=f"smoke_across_hosts = .* cannot be: .*{why}"):
        Run(*IMPOSSIBLE[why]).prepare()


def test_a_host_without_the_key_or_whose_test_is_skipped_has_no_such_step() -> None:
    skipped = [Answering(name=name, data={**ACROSS, "smoke": "skip"}) for name in ("ws1", "ws2")]
    for hosts in ([FakeHost(name="ws1"), FakeHost(name="ws2")], skipped):
        assert Run(*hosts).prepare().changing("ws1") == []
