"""`pyinfra-gpu train` over hosts that answer what a test says: each for itself, bounded, shown."""

from __future__ import annotations

import io
import json
import re
import socket
import sys
import time
from typing import Any

import launchers
import pytest
from launchers import Answers, Ask, listed, run

from pyinfra_gpu import cli
from pyinfra_gpu.engine.look import Unanswered
from pyinfra_gpu.report.train import asking
from pyinfra_gpu.report.train.answer import HostRuns, Run, TrainAnswer

ask = pytest.fixture(launchers.asking)
OLDER = "20261122-195900-balanced"
ODD = "\x1b]0;owned\x07\x1b[2Jline\u202e\x00"


def test_the_runs_of_all_hosts_are_one_table(ask: Ask) -> None:
    hosts = {
        "ws1": listed(run("finished", run=OLDER), run()),
        "ws2": listed(run("finished")),
        "ws3": listed(),
    }
    code, table = ask(hosts, "list")
    rows = [" ".join(line.split()) for line in table.splitlines()]
    first = "@fake/ws1 20261122-200000-balanced running 4,209/5,960 2.7149 368,417 tokens/s"
    assert first in rows
    assert first.replace("ws1", "ws2").replace("running", "finished") in rows
    assert (code, "@fake/ws3 none yet" in rows) == (0, True)
    assert rows[-1] == "3 hosts; 1 run is on; exit code 0"


@pytest.mark.parametrize(
    ("told", "code", "rows"),
    [
        ([run("failed")], 2, 1),
        ([run("stalled", state="running", wrong=True)], 2, 1),
        ([run("queued", last=None)], 0, 1),
        # One in the queue began when another failed: `list` showed only that it had finished.
        ([run("failed", run=OLDER, unresolved=True), run("finished")], 2, 2),
        ([run("failed", run=OLDER), run("finished")], 0, 1),
    ],
)
def test_the_exit_code_says_whether_somebody_should_look(
    told: list[Any], code: int, rows: int, ask: Ask
) -> None:
    was, said = ask({"ws1": listed(*told), "ws2": listed(run("finished"))}, "list")
    assert (was, said.count("@fake/ws1")) == (code, rows)


# What a host answers -> words of the sentence about it.
UNREADABLE: dict[str, tuple[Answers, str]] = {
    "no JSON": ({"list --json": "Traceback (most recent call last):"}, "cannot be read"),
    "too much": ({"list --json": json.dumps({"runs": ["x" * 1000] * 3000})}, "cannot be read"),
    "of another schema": ({"list --json": '{"schema": 2, "runs": []}'}, "cannot be read"),
    "of an odd run": (listed(run(run="../etc"), run()), "cannot be read"),
    "of an odd word": (listed(run("\x1b[2J")), "cannot be read"),
    "a launcher that refuses": (
        {"list --json": {"success": False, "stderr": "runs are ada's here: run `sudo -u ada ...`"}},
        "runs are ada's here",
    ),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_host_whose_list_cannot_be_read_is_one_sentence_and_no_other_hosts(
    name: str, ask: Ask
) -> None:
    answers, words = UNREADABLE[name]
    code, said = ask({"ws1": answers, "ws2": listed(run())}, "list", "--json")
    told = json.loads(said)
    reason = told["hosts"]["@fake/ws1"]["reason"]
    assert (code, told["exit_code"], "\n" in reason) == (1, 1, False)
    assert re.search(words, reason)
    assert [each["outcome"] for each in told["hosts"]["@fake/ws2"]["runs"]] == ["running"]


def test_a_host_on_which_nothing_is_to_be_trained_is_not_asked(ask: Ask) -> None:
    hosts: dict[str, Answers] = {"ws1": {"bin/train": {"success": False}}}
    nothing = {"training_repo": None, "training_commit": None}
    code, said = ask(hosts, "list", data=nothing)
    assert (code, "no training declared" in said) == (0, True)
    told = "no training is declared for @fake/ws1: declare training_repo and training_commit for it"
    for words in (["start"], ["why"], ["list", "--limit", "@fake/ws1"]):
        code, said = ask(hosts, *words, data=nothing)
        assert (code, told in " ".join(said.split())) == (1, True)


def test_what_a_host_writes_reaches_the_terminal_as_text(ask: Ask) -> None:
    printed = {"stdout": [ODD, "", f"  {ODD}"], "stderr": ODD}
    _, said = ask({"ws1": {"why": printed}, "ws2": {}}, "why")
    assert "line\n\n  line" in said
    assert not set("\x1b\x07\x00\u202e") & set(said)


OWN = ("big", "--set", "a=b c; rm -rf /")
WAYS = [("start", *OWN), ("start", "--", *OWN), ("--", "start", *OWN)]


@pytest.mark.parametrize("words", WAYS, ids=range(3))
def test_words_go_to_the_launcher_as_the_owner_with_and_without_dashes(
    words: tuple[str, ...], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[str, dict[str, Any]]] = []

    def command(_: object, host: object, text: object, told: Any, **more: object) -> Unanswered:
        given.append((str(text), told))
        return Unanswered(reason="enough seen")

    monkeypatch.setattr(asking, "reach", command)
    monkeypatch.setenv("COLUMNS", "52")
    monkeypatch.setenv("LOGNAME", "ada")
    hosts: dict[str, Answers] = {"ws1": {}, "ws2": {}}
    assert ask(hosts, "--limit", "@fake/ws1", *words, data={"owner": "ada"})[0] == 1
    ((text, arguments),) = given
    assert text.endswith("bin/train start big --set 'a=b c; rm -rf /'")
    assert "echo 'there is no launcher at /opt/pyinfra-gpu/bin/train: run `pyinfra hosts" in text
    who = f"PYINFRA_GPU_TRAIN_BY=ada@{socket.gethostname()} PYINFRA_GPU_HOST=@fake/ws1 COLUMNS=52"
    assert who in text
    assert arguments["_sudo_user"] == "ada"


def test_why_is_told_what_a_look_at_the_host_shows(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "answer", lambda *_: "a record")
    monkeypatch.setattr(asking, "facts_of", lambda record: {"shm-small": "64 MiB"})
    told = {'HOST_FACTS={"shm-small": "64 MiB"}': {"stderr": "told", "success": False}}
    assert "told" in ask({"ws1": told}, "why")[1]


# A command line that cannot be meant -> words of the sentence.
MISTAKES = {
    ("trian", "x.py", "list"): "No such command 'trian'. Did you mean 'train'?",
    ("train", "x.py", "begin"): "'begin' is not one of",
    ("train", "x.py", "logs", "-x", "--rank", "1", "--", "-f"): "run `train logs -f` there",
    ("train", "x.py", "list", "--across", "hosts"): "--across is for start, stop, resume",
    ("train", "x.py", "start", "--across", "x", "--limit", "y"): "leave out --limit",
}


@pytest.mark.parametrize("words", MISTAKES, ids=" ".join)
def test_a_mistake_on_the_command_line_ends_with_2_as_on_the_host(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == (1 if words[0] == "trian" else 2)
    assert MISTAKES[words] in capsys.readouterr().err


REFUSES: Answers = {"stop": {"success": False, "stderr": "2 runs are on (a, b): say which one"}}
NO_RUN: Answers = {
    each: {"success": False, "stdout": '{"no_run": "none"}', "stderr": "no run is running"}
    for each in ("stop", "logs")
}
STOPPED: Answers = {"stop": "one", "logs": "step 1"}


def test_equal_answers_are_shown_once_and_several_hosts_want_to_be_named(ask: Ask) -> None:
    hosts = {"ws1": STOPPED, "ws2": REFUSES, "ws3": STOPPED}
    told = "@fake/ws1, @fake/ws3:\none\n\n@fake/ws2:\n2 runs are on (a, b): say which one\n"
    assert ask(hosts, "stop", "--all") == (1, told)
    code, said = ask(hosts, "stop")
    asks = "stop on @fake/ws1, @fake/ws2, @fake/ws3? Say which with --limit, or give --all"
    assert (code, asks in " ".join(said.split())) == (2, True)


@pytest.mark.parametrize(
    ("others", "action", "code"),
    [
        ((STOPPED, NO_RUN), "stop", 0),
        ((NO_RUN, STOPPED), "logs", 0),
        ((NO_RUN, NO_RUN), "stop", 1),
        ((STOPPED, NO_RUN, REFUSES), "stop", 1),
    ],
)
def test_a_host_without_such_a_run_is_no_failure_where_another_one_has_it(
    others: tuple[Answers, ...], action: str, code: int, ask: Ask
) -> None:
    """`stop` of all hosts ended with 1 because one had no run, though the other was stopped."""
    hosts = {f"ws{number}": told for number, told in enumerate(others)}
    assert ask(hosts, action, "--all")[0] == code


class Terminal(io.StringIO):
    """Standard output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("name", "drawn"), [("xterm", True), ("Dumb", False)])
def test_watching_ends_with_the_last_run_and_draws_where_the_terminal_can(
    name: str, drawn: bool, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TERM=dumb got colours, and the codes that clear a screen."""
    answers = [run(), run("finished")]

    def next_answer(*_: object) -> TrainAnswer:
        found = Run.model_validate(answers.pop(0))
        return TrainAnswer(inventory="x", hosts=(HostRuns(name="ws1", runs=(found,)),))

    monkeypatch.setattr("pyinfra_gpu.report.train.cli.ask_all", next_answer)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setenv("TERM", name)
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    assert (ask({}, "watch")[0], answers) == (0, [])
    text = terminal.getvalue()
    assert ("running" in text, "finished" in text, "\x1b" in text) == (True, True, drawn)


@pytest.mark.parametrize(("words", "code"), [(("watch",), 0), (("start", "big"), 130)])
def test_ctrl_c_says_that_what_is_on_goes_on(
    words: tuple[str, ...], code: int, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said "interrupted", and nothing of the runs."""

    def interrupted(*_: object) -> TrainAnswer:
        raise KeyboardInterrupt

    monkeypatch.setattr("pyinfra_gpu.report.train.cli.ask_all", interrupted)
    was, said = ask({}, *words)
    assert was == code
    assert re.search(r"runs continue: `[^`]+ list` shows them", " ".join(said.split()))
