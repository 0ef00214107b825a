"""One run of several hosts, as the controller leads it: on all of them, or on none."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from launchers import asked, run

from pyinfra_gpu.report.train import across, asking
from pyinfra_gpu.report.train.answer import HostRuns, TrainAnswer

NAME = run()["run"]
STARTED = f"{NAME} is on, 1 rank, with the others"
TOLD = {"name": NAME, "ranks": 1, "commit": "0", "address": "10.0.0.1", "port": 41235}
WELL = {
    "start --dry": json.dumps(TOLD),
    "start --part": STARTED,
    "stop": f"{NAME} stopped",
}
REFUSED = {"success": False, "stderr": "this run cannot start: no smoke test has passed here"}


class Asked:
    """What the launchers were asked, but for checks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.words: list[tuple[str, str, dict[str, Any]]] = []
        command = asking.bounded_command

        def recorded(state: Any, host: Any, text: Any, given: Any, **more: Any) -> Any:
            words = shlex.split(str(text).rpartition("exec ")[2])
            assert f"PYINFRA_GPU_HOST={host.name}" in words
            verb, first, *others = words[words.index("/opt/pyinfra-gpu/bin/train") + 1 :]
            if first != "--dry":
                part = json.loads(others[0]) if first == "--part" else {}
                self.words.append((host.name, verb, part))
            return command(state, host, text, given, **more)

        monkeypatch.setattr(asking, "bounded_command", recorded)

    def of(self, verb: str) -> list[str]:
        """Return the hosts that were asked this."""
        return sorted(host for host, each, _ in self.words if each == verb)

    def part(self, verb: str) -> dict[str, Any]:
        """Return the part that all were given."""
        first, *others = [part for _, each, part in self.words if each == verb]
        assert others == [first]
        return first


BOTH = ["@fake/ws1", "@fake/ws2"]


def started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: Mapping[str, Any], other: Any
) -> tuple[int, Asked]:
    given = Asked(monkeypatch)
    hosts = {"ws1": first, "ws2": other}
    return asked(tmp_path, monkeypatch, hosts, "start", "--across", "hosts", "--", "big"), given


def test_all_hosts_are_told_the_same_name_and_place_to_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, given = started(tmp_path, monkeypatch, WELL, WELL)
    said = capsys.readouterr().out
    assert (code, said) == (0, f"@fake/ws1, @fake/ws2:\n{STARTED}\n")
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
def test_where_one_does_not_come_up_none_goes_on(
    what: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other, starts, words = WRONG[what]
    code, given = started(tmp_path, monkeypatch, WELL, other)
    said = " ".join(capsys.readouterr().out.split())
    assert code == 1
    assert "no smoke test has passed here" in said
    assert words in said
    assert given.of("start") == given.of("stop") == starts


@pytest.mark.parametrize("action", ["start", "resume"])
def test_of_a_host_that_is_off_nothing_else_is_said(
    action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said that nothing was in the way there, and not whether anything had been started."""
    off = HostRuns(name="ws2", reason="it could not be reached")
    answer = TrainAnswer(inventory="x", hosts=(HostRuns(name="ws1", lines=("on",)), off))
    monkeypatch.setattr(across, "ask_all", lambda *_: answer)
    hosts = {"ws1": WELL, "ws2": WELL}
    assert asked(tmp_path, monkeypatch, hosts, action, "--across", "hosts", "--", "big") == 1
    assert capsys.readouterr().out == (
        "ws1:\nnothing is in the way here\n\nws2:\n! it could not be reached\n\n"
        "! nothing was started on any host\n"
    )


@pytest.mark.parametrize("action", ["start", "stop", "resume"])
def test_a_group_that_there_is_not_is_said_with_those_that_there_are(
    action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It spoke of --limit, which nobody had given, and of hosts."""
    hosts = {"ws1": WELL, "ws2": WELL}
    assert asked(tmp_path, monkeypatch, hosts, action, "--across", "nobody", "--", "big") == 1
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"--across nobody: hosts\d+.py has no group nobody; its groups are", said)
    assert "hosts (2)" in said
    assert "--limit" not in said
    assert asked(tmp_path, monkeypatch, hosts, action, "--across", "host", "--", "big") == 1
    assert "did you mean hosts" in capsys.readouterr().out


def ready(**told: Any) -> dict[str, str]:
    known = {"run": NAME, "ranks": 1, "commit": "0" * 40, "address": "10.0.0.1", "port": 41235}
    return {"resume --dry": json.dumps({**known, **told})}


# What differs -> (what one host says beside the other's, words of the sentence).
UNLIKE: dict[str, tuple[dict[str, Any], str]] = {
    "the checkpoint": (
        {"checkpoint": "step-000020"},
        "same newest complete checkpoint (@fake/ws1 step-000040, @fake/ws2 step-000020)",
    ),
    "the commit": ({"commit": "1" * 40}, "do not have the same commit"),
    "the ranks": ({"ranks": 2}, "same number of ranks (@fake/ws1 1, @fake/ws2 2): give --set"),
    "the run": ({"run": "20261122-210000-x"}, "newest run of several hosts ("),
    "the hosts": ({"across": ["a", "b"]}, "is one of a, b together, and the group has @fake/ws1"),
}


@pytest.mark.parametrize("what", UNLIKE)
def test_hosts_that_would_go_on_from_different_places_do_not_start(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = Asked(monkeypatch)
    more, words = UNLIKE[what]
    together = {"checkpoint": "step-000040", "across": ["@fake/ws1", "@fake/ws2"]}
    first, other = ready(**together), ready(**{**together, **more})
    hosts = {"ws1": {**first, **WELL}, "ws2": {**other, **WELL}}
    assert asked(tmp_path, monkeypatch, hosts, "resume", "--across", "hosts", "--", NAME) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert words in said
    assert not re.search("INVENTORY|GROUP", said)  # what is typed is typed as it stands
    assert given.words == []


def test_a_run_of_several_hosts_goes_on_on_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = Asked(monkeypatch)
    answers = {**ready(checkpoint="step-000040"), "resume --part": STARTED, **WELL}
    hosts = {"ws1": answers, "ws2": answers}
    assert asked(tmp_path, monkeypatch, hosts, "resume", NAME, "--across", "hosts") == 0
    assert STARTED in capsys.readouterr().out
    assert (given.of("resume"), given.part("resume")["run"]) == (BOTH, NAME)


def explained(**told: Any) -> dict[str, str]:
    known = {
        "run": NAME, "what": f"run {NAME} failed", "outcome": "failed", "text": "no more is known",
        "across": ["@fake/ws1", "@fake/ws2"], "ended": 100.0,
    }  # fmt: skip
    return {"why --json": json.dumps({**known, **told})}


LOST = explained(ended=101.0, text="its ranks lost those of the other")
CAUSE = explained(text="The GPU's memory is full.")


@pytest.mark.parametrize(("first", "second"), [(LOST, CAUSE), (CAUSE, LOST)])
def test_of_a_run_of_several_hosts_the_cause_is_told_once_and_where_it_is(
    first: dict[str, str],
    second: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The host that lost its peers blamed the network, whatever the other one knew."""
    assert asked(tmp_path, monkeypatch, {"ws1": first, "ws2": second}, "why") == 0
    said = " ".join(capsys.readouterr().out.split())
    cause = "@fake/ws1" if first is CAUSE else "@fake/ws2"
    assert said.count("The GPU's memory is full.") == 1
    assert f"the ranks of {cause} failed first, and the cause is told there" in said
    assert "its ranks lost those of the other" not in said


def test_of_a_run_that_was_stopped_on_one_host_that_is_the_cause_on_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = explained(outcome="stopped", text="it was stopped by ada@desk")
    assert asked(tmp_path, monkeypatch, {"ws1": stopped, "ws2": LOST}, "why") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "it was stopped by ada@desk" in said
    assert "it was stopped on @fake/ws1, and its ranks here lost those" in said


def test_what_a_host_explains_reaches_the_terminal_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = "\x1b]0;owned\x07\x1b[2Jline\u202e\x00"
    hosts = {"ws1": explained(what=odd, text=f"{odd}\n  {odd}"), "ws2": CAUSE}
    asked(tmp_path, monkeypatch, hosts, "why")
    assert not set("\x1b\x07\x00\u202e") & set(capsys.readouterr().out)
    hosts = {"ws1": explained(run=odd), "ws2": CAUSE}
    assert asked(tmp_path, monkeypatch, hosts, "why") == 1
    assert "what it says cannot be read" in " ".join(capsys.readouterr().out.split())


def test_what_is_the_programs_own_stays_the_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--dry` behind the second `--`, the program's own, made a start dry."""
    words = ("start", "--across", "hosts", "--", "big", "--", "--dry")
    given = {"start --dry": WELL["start --dry"], "big -- --dry": "both were given it"}
    assert asked(tmp_path, monkeypatch, {"ws1": given, "ws2": given}, *words) == 0
    assert "both were given it" in capsys.readouterr().out


def test_one_host_is_no_run_of_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("start", "--across", "hosts", "--", "big")
    assert asked(tmp_path, monkeypatch, {"ws1": WELL}, *words) == 1
    assert "only @fake/ws1 is among the hosts" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("list", "--across", "hosts"), "--across is for start, stop and resume"),
        (("start", "--across", "hosts", "--limit", "ws1"), "leave out --limit"),
    ],
)
def test_across_where_it_says_nothing_is_refused(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        asked(tmp_path, monkeypatch, {"ws1": WELL}, *words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_run_of_several_hosts_is_stopped_on_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = {"ws1": WELL, "ws2": WELL}
    assert asked(tmp_path, monkeypatch, hosts, "stop", "--across", "hosts", "--", NAME) == 0
    assert capsys.readouterr().out == f"@fake/ws1, @fake/ws2:\n{NAME} stopped\n"
