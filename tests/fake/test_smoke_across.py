"""The step across hosts as the controller arranges it: who takes part, when, and when not."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import verdicts
from fake_host import DATA, FakeHost
from gpu_host import DATA as GPU_DATA
from gpu_host import GpuHost, GpuRun, unwrapped
from test_smoke import stamp_of

from pyinfra_gpu.errors import SpecError
from pyinfra_gpu.facts.verdict import Stamp
from pyinfra_gpu.on_host.smoke.listening import ALLOWED_LOOPBACK
from pyinfra_gpu.on_host.smoke.options import parse as parse_options
from pyinfra_gpu.operations.smoke import own_stamp
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
            told = {"hostname -I": {"stdout": [host.tells]}}
            told["state/across.json"] = {"stdout": host.leaves.splitlines()}
            data["fake_responses"] = {**data["fake_responses"], **told}
        return data

    def started(self, name: str) -> list[str]:
        """The words of the launcher's command line on one host, empty where it was not started."""
        return self.wrapped(name)[-1]

    def wrapped(self, name: str) -> list[list[str]]:
        """Those, and before them the words of what they are a word of."""
        for command in self.executed(name):
            if "--across" in command:
                return unwrapped(command)
        return [[]]


def passed_together(*names: str, **changes: Any) -> list[Answering]:
    """Hosts whose stamps say that they have passed together."""
    hosts = [Answering(name=name) for name in names]
    fingerprints = {f"@fake/{host.name}": stamp_of(host)["fingerprint"] for host in hosts}
    passed = {"hosts": fingerprints, "mode": "rehearsal-cpu"}
    across = {**verdicts.across_stamp(), **passed, **changes}
    for host in hosts:
        host.told = {"smoke.stamp": json.dumps({**stamp_of(host), "across": across})}
    return hosts


def asked(words: list[str]) -> dict[str, Any]:
    """What a launcher's command line says of the step."""
    across: dict[str, Any] = json.loads(words[words.index("--across") + 1])
    return across


def test_hosts_that_never_passed_together_start_one_step_with_one_plan(tmp_path: Path) -> None:
    run = Run(Answering(name="ws1", tells="10.0.0.1 10.0.0.2"), Answering(name="ws2"))
    assert run.prepare().changing("ws1") == ["Smoke | Run the multi-node smoke test"]
    run.execute()
    first, second = run.started("ws1"), run.started("ws2")
    assert asked(first) == asked(second)
    assert asked(first)["hosts"] == dict.fromkeys(TWO, 2)
    # the first one's, of those that the other has not
    assert (asked(first)["address"], asked(first)["port"]) == ("10.0.0.2", 29400)
    for words, name in ((first, TWO[0]), (second, TWO[1])):
        assert words[words.index("--host") + 1] == name
        assert parse_options([*words[2:-1], str(tmp_path / "across.json")]).across is not None
    assert run.failed() == {"ws1", "ws2"}  # these hosts leave nothing to be judged


@pytest.mark.parametrize(("of_run", "kept"), [("run-7", 1), ("another", 0)])
def test_only_the_verdict_of_this_very_run_is_kept(
    of_run: str, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyinfra_gpu.engine.meeting.secrets.token_hex", lambda _: "run-7")
    cpu: dict[str, Any] = {"mode": "rehearsal-cpu", "proof": False, "fingerprint": of_run}
    verdict = json.dumps(verdicts.across(**cpu))
    hosts = [Answering(name=name, leaves=verdict) for name in ("ws1", "ws2")]
    run = Run(*hosts).prepare().execute()
    assert run.started("ws1")[run.started("ws1").index("--fingerprint") + 1] == "run-7"
    stamps = [each for each in run.executed("ws1") if "smoke/stamp.json" in each]
    assert len(stamps) == kept


def test_hosts_that_passed_together_have_nothing_to_do() -> None:
    run = Run(*passed_together("ws1", "ws2")).prepare()
    assert run.changing("ws1") == run.changing("ws2") == []
    run.execute()
    assert run.failed() == set()
    assert run.commands("ws1") == run.commands("ws2") == []
    assert run.looks("ws1") == 2  # one for the plan, one for the run


@pytest.mark.parametrize(
    "changes",
    [
        {"hosts": {TWO[0]: "00", TWO[1]: "00"}},
        {"hosts": {TWO[0]: "00"}},
        {"mode": "gpu"},
    ],
    ids=["changed", "others", "another mode"],
)
def test_what_no_longer_holds_is_owed(changes: dict[str, Any]) -> None:
    run = Run(*passed_together("ws1", "ws2", **changes)).prepare()
    assert run.changing("ws1") == ["Smoke | Run the multi-node smoke test"]


def test_a_damaged_stamp_counts_for_neither_test() -> None:
    run = Run(*passed_together("ws1", "ws2", hosts=None)).prepare()
    assert run.changing("ws1") == [
        "Smoke | Run the smoke test",
        "Smoke | Run the multi-node smoke test",
    ]


def test_one_host_that_changed_brings_the_others_along() -> None:
    hosts = passed_together("ws1", "ws2", "ws3")
    stamp = stamp_of(Answering(name="ws2"))
    hosts[1].told = {"smoke.stamp": json.dumps(stamp)}
    run = Run(*hosts).prepare().execute()
    assert all(run.started(name) for name in ("ws1", "ws2", "ws3"))


def test_a_host_that_failed_before_is_named_and_not_waited_for() -> None:
    broken = Answering(name="ws2", answers=False)
    run = Run(Answering(name="ws1"), broken, Answering(name="ws3")).prepare().execute()
    assert run.failed() == {"ws1", "ws2", "ws3"}
    assert run.started("ws1") == []


def test_a_host_whose_proof_still_holds_does_not_fail_with_another() -> None:
    good, _ = passed_together("ws1", "ws2")
    run = Run(good, Answering(name="ws2", answers=False)).prepare().execute()
    assert run.failed() == {"ws2"}


def test_a_host_that_tells_no_address_fails_and_is_not_waited_for() -> None:
    run = Run(Answering(name="ws1", tells="fe80::1"), Answering(name="ws2")).prepare().execute()
    assert run.failed() == {"ws1", "ws2"}
    assert run.started("ws2") == []


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


@pytest.mark.parametrize("data", [{"privilege": "none"}, {"smoke_limit_network": False}])
def test_without_root_or_by_data_nothing_is_limited(data: dict[str, object]) -> None:
    hosts = [Answering(name=name, data={**ACROSS, **data}) for name in ("ws1", "ws2")]
    run = Run(*hosts).prepare().execute()
    waiting, words = run.wrapped("ws1")
    assert "locked.sh" in waiting
    assert "--across" in words


def test_the_address_of_data_is_taken_and_may_pass() -> None:
    declared = {**ACROSS, "smoke_across_address": "10.9.9.9", "smoke_across_port": 31000}
    run = Run(Answering(name="ws1", data=declared), Answering(name="ws2")).prepare().execute()
    # What must be the same everywhere is the first host's.
    for name in ("ws1", "ws2"):
        across = asked(run.started(name))
        assert (across["address"], across["port"]) == ("10.9.9.9", 31000)
        assert "10.9.9.9" in run.wrapped(name)[0][-1].split()


def test_hosts_that_would_not_speak_the_same_language_are_refused() -> None:
    gpus = GpuHost(name="ws2", data={**GPU_DATA, "smoke": "auto", "smoke_across_hosts": True})
    stamp = stamp_of(gpus)
    gpus.told = {"smoke.stamp": json.dumps(stamp)}
    run = Run(Answering(name="ws1"), gpus).prepare().execute()
    assert run.failed() == {"ws1", "ws2"}
    assert run.started("ws1") == []


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


def test_the_stamp_of_the_step_goes_into_that_of_the_hosts_own_test_and_out_of_it() -> None:
    (host,) = passed_together("ws1")
    record = host.record()
    assert isinstance(record.smoke.stamp, Stamp)
    assert record.smoke.stamp.across is not None
    own = own_stamp(record)
    assert own.items() >= {n: value for n, value in stamp_of(host).items() if n != "across"}.items()
    assert "across" not in own
    host.told = {"smoke.stamp": None}
    assert own_stamp(host.record()) == {}
