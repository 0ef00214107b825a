"""`pyinfra-gpu train` over hosts that answer what a test says: each for itself, bounded, shown."""

from __future__ import annotations

import io
import json
import re
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import launchers
import pytest
from launchers import Answers, Ask, ended, listed, run

from pyinfra_gpu import cli
from pyinfra_gpu.engine.look import Unanswered
from pyinfra_gpu.on_host.train import runs
from pyinfra_gpu.on_host.train.host import TrainError
from pyinfra_gpu.report.train import asking
from pyinfra_gpu.report.train.answer import HostRuns, Run, Runs, TrainAnswer, read
from pyinfra_gpu.report.train.render import shown

ask = pytest.fixture(launchers.asking)


def test_the_runs_of_all_hosts_are_one_table(ask: Ask) -> None:
    hosts = {
        "ws1": listed(ended("finished", run="20261121-070000-balanced"), run()),
        "ws2": listed(ended("finished")),
        "ws3": listed(),
    }
    code, table = ask(hosts, "list")
    rows = [" ".join(line.split()) for line in table.splitlines()]
    assert rows[1] == "@fake/ws1 20261122-200000-balanced running 4,209/5,960 2.7149 368,417"
    assert rows[2].startswith("@fake/ws2 20261122-200000-balanced finished")
    assert (code, rows[3]) == (0, "@fake/ws3 none yet")
    assert rows[-1] == "3 hosts: 1 run on; exit code 0"


WRONG = {
    "failed": (ended("failed"), 2),
    "lost": (ended("lost"), 2),
    "stalled": (run(stalled_seconds=900.0), 2),
    "a loss that is no number": (run(last={"step": 3, "loss": None, "not_finite": "nan"}), 2),
    "finished": (ended("finished"), 0),
    "queued": (run(state="queued", attempts=[], last=None), 0),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_exit_code_says_whether_somebody_should_look(name: str, ask: Ask) -> None:
    told, code = WRONG[name]
    assert ask({"ws1": listed(told)}, "list")[0] == code


def test_a_newer_run_does_not_hide_one_that_failed(ask: Ask) -> None:
    """One in the queue began when another failed: `list` showed only that it had finished."""
    failed = ended("failed", run="20261122-195900-balanced", unresolved=True)
    hosts = {"ws1": listed(failed, ended("finished")), "ws2": listed(ended("finished"))}
    code, said = ask(hosts, "list")
    typed = r"`?pyinfra-gpu train \S+ why --limit @fake/ws1 `?2026"
    said = " ".join(said.replace("\\\n", "").split())
    assert code == 2
    assert re.search(f"1 older run failed on @fake/ws1: {typed}", said)
    over = ended("failed", run="20261122-195900-balanced")
    code, said = ask({"ws1": listed(over, ended("finished"))}, "list")
    assert (code, "older" in said) == (0, False)


# What a host answers -> words of the sentence about it.
UNREADABLE: dict[str, tuple[Answers, str]] = {
    "no JSON": ({"list --json": "Traceback (most recent call last):"}, "cannot be read"),
    "nothing": ({}, "it is no JSON"),
    "too much": ({"list --json": json.dumps({"runs": ["x" * 1000] * 3000})}, "cannot be read"),
    "too deep": ({"list --json": "[" * 500}, "cannot be read"),
    "of another schema": ({"list --json": '{"schema": 2, "runs": []}'}, "cannot be read"),
    "of an odd run": (listed(run(run="../etc"), run()), "cannot be read"),
    "a launcher that refuses": (
        {"list --json": {"success": False, "stderr": "runs are ada's here: run `sudo -u ada ...`"}},
        "runs are ada's here",
    ),
    "no launcher": (
        {"list --json": {"success": False}},
        r"no launcher at /opt/pyinfra-gpu/bin/train: run `pyinfra hosts\d+.py deploy.py`",
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
    for words in (["start"], ["resume"], ["why"], ["list", "--limit", "@fake/ws1"]):
        code, said = ask(hosts, *words, data=nothing)
        assert (code, told in " ".join(said.split())) == (1, True)


def test_what_a_host_writes_reaches_the_terminal_as_text(ask: Ask) -> None:
    odd = "\x1b]0;owned\x07\x1b[2Jline\u202e\x00"
    _, said = ask({"ws1": {"why": {"stdout": [odd, f"  {odd}"], "stderr": odd}}}, "why")
    assert not set("\x1b\x07\x00\u202e") & set(said)


OWN = ("big", "--set", "a=b c; rm -rf /")
WAYS = [("start", *OWN), ("start", "--", *OWN), ("--", "start", *OWN)]


@pytest.mark.parametrize("words", WAYS, ids=range(3))
def test_words_go_to_the_launcher_as_the_owner_with_and_without_dashes(
    words: tuple[str, ...], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[str, dict[str, Any]]] = []

    def command(
        _: object, host: object, text: object, arguments: Any, **more: object
    ) -> Unanswered:
        given.append((str(text), arguments))
        return Unanswered(reason="enough seen")

    monkeypatch.setattr(asking, "bounded_command", command)
    monkeypatch.setenv("COLUMNS", "52")
    monkeypatch.setenv("LOGNAME", "ada")
    hosts: dict[str, Answers] = {"ws1": {}, "ws2": {}}
    assert ask(hosts, "--limit", "@fake/ws1", *words, data={"owner": "ada"})[0] == 1
    ((text, arguments),) = given
    assert text.endswith("bin/train start big --set 'a=b c; rm -rf /'")
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
    ("train",): "the following arguments are required: INVENTORY, ACTION",
    ("train", "x.py"): "the following arguments are required: ACTION",
    ("trian", "x.py", "list"): "there is no command 'trian': did you mean train?",
    ("train", "x.py", "begin"): "invalid choice: 'begin'",
    ("train", "x.py", "start", "a", "b"): "unexpected extra argument",
    ("train", "x.py", "start", "tiny", "--steps", "4"): "No such option '--steps'",
    ("train", "x.py", "logs", "-x", "--rank", "1", "--", "-f"): "run `train logs -f` there",
    ("train", "x.py", "--", "stop", "2026", "--force"): "No such option '--force'",
    ("train", "x.py", "list", "2026"): "list shows the runs of all hosts: leave out 2026",
}


@pytest.mark.parametrize("words", MISTAKES, ids=" ".join)
def test_a_mistake_on_the_command_line_ends_with_2_as_on_the_host(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == (1 if words[0] == "trian" else 2)
    assert MISTAKES[words] in capsys.readouterr().err


REFUSES: Answers = {"stop": {"success": False, "stderr": "2 runs are on (a, b): say which one"}}


def test_equal_answers_are_shown_once_and_several_hosts_want_to_be_named(ask: Ask) -> None:
    hosts = {"ws1": {"stop": "one"}, "ws2": REFUSES, "ws3": {"stop": "one"}}
    told = "@fake/ws1, @fake/ws3:\none\n\n@fake/ws2:\n2 runs are on (a, b): say which one\n"
    assert ask(hosts, "stop", "--all") == (1, told)
    code, said = ask(hosts, "stop")
    asks = "stop on @fake/ws1, @fake/ws2, @fake/ws3? Say which with --limit, or give --all"
    assert (code, asks in " ".join(said.split())) == (2, True)


def test_watching_ends_with_the_last_run(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [(run(),), (ended("finished"),)]

    def next_answer(request: object, verb: str, words: Sequence[str]) -> TrainAnswer:
        found = read(Runs, json.dumps({"schema": 1, "runs": answers.pop(0)}))
        assert isinstance(found, Runs)
        return TrainAnswer(inventory="x", hosts=(HostRuns(name="ws1", runs=found.runs),))

    monkeypatch.setattr("pyinfra_gpu.report.train.cli.ask_all", next_answer)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    code, said = ask({}, "watch")
    assert (code, "running" in said, "finished" in said, answers) == (0, True, True, [])


class Terminal(io.StringIO):
    """Standard output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("name", "drawn"), [("xterm", True), ("Dumb", False)])
def test_a_terminal_that_knows_no_escapes_gets_plain_lines(
    name: str, drawn: bool, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TERM=dumb got colours, and the codes that clear a screen."""
    monkeypatch.setenv("TERM", name)
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    assert ask({"ws1": listed(ended("finished"))}, "watch")[0] == 0
    assert "finished" in terminal.getvalue()
    assert ("\x1b" in terminal.getvalue()) is drawn


NO_RUN: Answers = {
    "stop": {"success": False, "stderr": "no run is running: see `train list`, or begin one"},
    "logs": {"success": False, "stderr": "there is no run 2026: see `train list`"},
}
STOPPED: Answers = {"stop": "20261122-200000-big stopped", "logs": "step 1"}


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


@pytest.mark.parametrize("going", [True, False])
@pytest.mark.parametrize("name", [None, "2026"])
def test_what_the_launcher_says_of_a_run_that_there_is_not_is_known_here(
    name: str | None, going: bool, tmp_path: Path
) -> None:
    class Here:
        runs, presets = tmp_path, ("tiny",)

    for across in (False, True):
        with pytest.raises(TrainError) as caught:
            runs.chosen(Here(), name, going=going, across=across)  # type: ignore[arg-type]
        assert asking._NO_RUN.match(str(caught.value))
    assert not asking._NO_RUN.match("this run cannot start: no run is running")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("watch", "--limit", "ws1"), 0, r"the runs go on: `[^`]+ watch` shows them"),
        (("start", "big"), 130, r"started already continues: `[^`]+ list` shows what"),
    ],
)
def test_ctrl_c_says_that_what_is_on_goes_on(
    words: tuple[str, ...], code: int, told: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said "interrupted", and nothing of the runs."""

    def interrupted(*_: object) -> TrainAnswer:
        raise KeyboardInterrupt

    monkeypatch.setattr("pyinfra_gpu.report.train.cli.ask_all", interrupted)
    was, said = ask({}, *words)
    assert was == code
    assert re.search(told, " ".join(said.split()))


def test_of_runs_that_are_over_only_the_newest_is_shown() -> None:
    over, on = (
        Run.model_validate_json(json.dumps(ended("failed"))),
        Run.model_validate({"run": "b", "state": "running"}),
    )
    assert shown(HostRuns(name="ws1", runs=(over, over))) == (over,)
    assert shown(HostRuns(name="ws1", runs=(on, over))) == (on, over)
    assert shown(HostRuns(name="ws1", runs=(over, on))) == (on,)
