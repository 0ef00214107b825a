"""One run of several hosts, as the controller leads it: on all of them, or on none."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

import launchers
import pytest
from launchers import REFUSED, Ask, run

from pyinfra_gpu.report.train import asking

ask = pytest.fixture(launchers.asking)
NAME, BOTH = run()["run"], ["@fake/ws1", "@fake/ws2"]
STARTED = f"{NAME} started, 1 rank, with the others"
SAME = {"number of ranks": 1, "commit": "0"}
TOLD = {"run": NAME, "same": SAME, "address": "10.0.0.1", "port": 41235}
WELL = {"start --dry": json.dumps(TOLD), "start --part": STARTED, "stop": f"{NAME} stopped"}
START = ("start", "--across", "hosts", "--", "big")


class Asked:
    """What the launchers were asked, but for checks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.words: list[tuple[str, str, dict[str, Any]]] = []
        command = asking.reach

        def recorded(state: Any, host: Any, text: Any, given: Any, **more: Any) -> Any:
            words = shlex.split(str(text).rpartition("exec ")[2])
            assert f"PYINFRA_GPU_HOST={host.name}" in words
            verb, first, *others = words[words.index("/opt/pyinfra-gpu/bin/train") + 1 :]
            if first != "--dry":
                part = json.loads(others[0]) if first == "--part" else {}
                self.words.append((host.name, verb, part))
            return command(state, host, text, given, **more)

        monkeypatch.setattr(asking, "reach", recorded)

    def of(self, verb: str) -> list[str]:
        """Return the hosts that were asked this."""
        return sorted(host for host, each, _ in self.words if each == verb)

    def part(self, verb: str) -> dict[str, Any]:
        """Return the part that all were given."""
        first, *others = [part for _, each, part in self.words if each == verb]
        assert others == [first]
        return first


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


def test_all_hosts_are_told_the_same_name_and_place_to_meet(ask: Ask, given: Asked) -> None:
    answer = ask({"ws1": WELL, "ws2": WELL}, *START)
    assert answer == (0, f"@fake/ws1, @fake/ws2:\n{STARTED}\n")
    part = {"hosts": BOTH, "run": NAME, "port": 41235, "address": "10.0.0.1"}
    assert (given.of("start"), given.part("start"), given.of("stop")) == (BOTH, part, [])


# What goes wrong -> (the second host's answers, who is started and ended, the words).
WRONG: dict[str, tuple[Mapping[str, Any], list[str], str]] = {
    "a check": ({**WELL, "start --dry": REFUSED}, [], "nothing was started on any host"),
    "a start": (
        {**WELL, "start --part": REFUSED}, BOTH,
        f"{NAME} did not start on all hosts, and was ended on the others",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_where_one_does_not_come_up_none_goes_on(what: str, ask: Ask, given: Asked) -> None:
    other, starts, words = WRONG[what]
    code, said = ask({"ws1": WELL, "ws2": other}, *START)
    assert code == 1
    assert "no smoke test has passed here" in said
    assert words in " ".join(said.split())
    assert given.of("start") == given.of("stop") == starts


# What differs -> (what one host says beside the other's, words of the sentence).
UNLIKE: dict[str, tuple[dict[str, Any], str]] = {
    "the checkpoint": (
        {"newest complete checkpoint": "step-000020"},
        "same newest complete checkpoint (@fake/ws1 step-000040, @fake/ws2 step-000020)",
    ),
    "the ranks": ({"number of ranks": 2}, "same number of ranks (@fake/ws1 1, @fake/ws2 2)"),
    "nothing": ({}, STARTED),
}


@pytest.mark.parametrize("what", UNLIKE)
def test_hosts_go_on_from_the_same_place_or_not_at_all(what: str, ask: Ask, given: Asked) -> None:
    more, words = UNLIKE[what]
    same = {**SAME, "newest complete checkpoint": "step-000040"}
    answers = ({"resume --dry": json.dumps({**TOLD, "same": same | each})} for each in ({}, more))
    first, other = ({**each, "resume --part": STARTED} for each in answers)
    code, said = ask({"ws1": first, "ws2": other}, "resume", NAME, "--across", "hosts")
    assert code == (0 if what == "nothing" else 1)
    assert words in " ".join(said.split())
    assert given.of("resume") == ([] if more else BOTH)
    assert more or given.part("resume")["run"] == NAME


def test_what_is_the_programs_own_stays_the_programs(ask: Ask) -> None:
    """`--dry` behind the second `--`, the program's own, made a start dry."""
    given = {"start --dry": WELL["start --dry"], "big -- --dry": "both were given it"}
    code, said = ask({"ws1": given, "ws2": given}, *START, "--", "--dry")
    assert (code, "both were given it" in said) == (0, True)


def test_a_run_of_several_hosts_is_stopped_on_all(ask: Ask) -> None:
    hosts = {"ws1": {"stop --across": "stopped"}, "ws2": {"stop --across": "stopped"}}
    answer = ask(hosts, "stop", "--across", "hosts", "--", NAME)
    assert answer == (0, "@fake/ws1, @fake/ws2:\nstopped\n")
