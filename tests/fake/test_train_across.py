"""One run of several hosts, as the controller leads it: on all of them, or on none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from launchers import asked, ended, listed, run

from pyinfra_gpu.report.train import across
from pyinfra_gpu.report.train.answer import HostRuns

NAME = run()["run"]
STARTED = json.dumps({"run": NAME, "commit": "0" * 40, "port": 41235})
WELL = {
    "start --dry": "in a worktree of /opt/pyinfra-gpu/training/training",
    "start --hosts": STARTED,
    "hostname -I": "10.0.0.1 fd00::1",
    "stop": f"{NAME} stopped",
    **listed(run(state="running")),
}
REFUSED = {"success": False, "stderr": "this run cannot start: no smoke test has passed here"}


class Asked:
    """What the launchers were asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.words: list[tuple[str, str, dict[str, Any]]] = []
        ask = across.ask

        def recorded(
            state: Any,
            host: Any,
            verb: str,
            words: Sequence[str],
            stdin: str | None = None,
            **more: Any,
        ) -> HostRuns:
            assert across_token(stdin) not in " ".join(words)
            self.words.append((host.name, verb, json.loads(stdin) if stdin else {}))
            return ask(state, host, verb, words, stdin, **more)

        monkeypatch.setattr(across, "ask", recorded)

    def of(self, verb: str) -> list[str]:
        """Return the hosts that were asked this, in order."""
        return [host for host, each, _ in self.words if each == verb]

    def part(self, host: str) -> dict[str, Any]:
        """Return what a host was told of its part."""
        return next(part for name, verb, part in self.words if (name, verb) == (host, "start"))


def across_token(stdin: str | None) -> str:
    return json.loads(stdin)["token"] if stdin else "no token"


def started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: Mapping[str, Any], other: Any
) -> tuple[int, Asked]:
    given = Asked(monkeypatch)
    hosts = {"ws1": first, "ws2": other}
    return asked(tmp_path, monkeypatch, hosts, "start", "--across", "hosts", "--", "big"), given


def test_the_first_host_begins_and_the_others_are_told_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, given = started(tmp_path, monkeypatch, WELL, WELL)
    said = capsys.readouterr().out
    assert code == 0, said
    assert f"{NAME} is on, with @fake/ws2" in said
    assert given.of("start") == ["@fake/ws1", "@fake/ws2"]
    first, second = given.part("@fake/ws1"), given.part("@fake/ws2")
    assert (first["run"], first["port"], first["addresses"]) == (None, 0, ["10.0.0.1"])
    assert (second["run"], second["port"], second["addresses"]) == (NAME, 41235, ["10.0.0.1"])
    assert first["token"] == second["token"]
    assert given.of("stop") == []
    assert first["token"] not in said


# What goes wrong -> (the two hosts' answers, who is started, who is ended, the words).
WRONG: dict[str, tuple[Mapping[str, Any], Mapping[str, Any], list[str], list[str], str]] = {
    "a check": (WELL, {**WELL, "start --dry": REFUSED}, [], [], "no smoke test has passed here"),
    "the first start": (
        {**WELL, "start --hosts": REFUSED}, WELL, ["@fake/ws1"], [],
        "@fake/ws1, which leads, did not start",
    ),
    "the second start": (
        WELL, {**WELL, "start --hosts": REFUSED}, ["@fake/ws1", "@fake/ws2"], ["@fake/ws1"],
        "was ended: it did not start on @fake/ws2",
    ),
    "the meeting": (
        {**WELL, **listed(ended("failed"))}, {**WELL, **listed(ended("failed"))},
        ["@fake/ws1", "@fake/ws2"], ["@fake/ws1", "@fake/ws2"], "was ended: it is failed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_where_one_does_not_come_up_none_goes_on(
    what: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, other, starts, ends, words = WRONG[what]
    code, given = started(tmp_path, monkeypatch, first, other)
    assert code == 1
    assert words in " ".join(capsys.readouterr().out.split())
    assert given.of("start") == starts
    assert sorted(given.of("stop")) == ends


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
    assert capsys.readouterr().out.count(f"{NAME} stopped") == 2
