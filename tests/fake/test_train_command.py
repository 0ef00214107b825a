"""`pyinfra-gpu train` over hosts that answer what a test says: each for itself, bounded, shown."""

from __future__ import annotations

import io
import json
import re
import shlex
import socket
import sys
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pyinfra_gpu import cli
from pyinfra_gpu.engine.look import Unanswered
from pyinfra_gpu.report.train import asking
from pyinfra_gpu.report.train.answer import HostRuns, Run, TrainAnswer

DATA = {
    "stack": "cpu-torch2.13",
    "training_repo": "https://example.org/tiny.git",
    "training_commit": "0123456789abcdef0123456789abcdef01234567",
    "fake_delay": 0.0,
    "fake_delay_jitter": 0.0,
}
Answers = Mapping[str, Any]
Ask = Callable[..., tuple[int, str]]
REFUSED = {"success": False, "stderr": "this run cannot start: no smoke test has passed here"}
_NUMBERS = count()


def run(outcome: str = "running", **fields: Any) -> dict[str, Any]:
    ended = outcome in ("finished", "failed", "lost", "stopped")
    return {
        "run": "20261122-200000-balanced",
        "state": "ended" if ended else outcome,
        "outcome": outcome,
        "wrong": outcome in ("failed", "lost"),
        "preset": "balanced",
        "last": {"step": 4209, "steps": 5960, "loss": 2.7149, "tokens_per_second": 368417.0},
        "words": {"step": "4,209/5,960", "loss": "2.7149", "speed": "368,417 tokens/s"},
        **fields,
    }


def listed(*runs: Any) -> dict[str, Any]:
    return {"list --json": json.dumps({"schema": 1, "runs": list(runs)})}


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Return what runs the command: (hosts, words) -> (exit code, what it said, one blank each)."""
    monkeypatch.chdir(tmp_path)
    Path("deploy.py").touch()

    def train(
        hosts: Mapping[str, Answers], *words: str, data: Mapping[str, Any] | None = None
    ) -> tuple[int, str]:
        entries = [
            (f"@fake/{name}", {**DATA, **(data or {}), "fake_responses": dict(answers)})
            for name, answers in hosts.items()
        ]
        name = f"hosts{next(_NUMBERS)}.py"  # pyinfra keeps what it read by its name
        Path(name).write_text(f"hosts = {entries!r}\n", encoding="utf-8")
        try:
            code = cli.main(["train", name, *words])
        except SystemExit as ended:
            code = int(ended.code or 0)
        reported = capsys.readouterr()
        return code, reported.out + reported.err

    return train


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
    ("reported", "code", "rows"),
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
    reported: list[Any], code: int, rows: int, ask: Ask
) -> None:
    was, said = ask({"ws1": listed(*reported), "ws2": listed(run("finished"))}, "list")
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
    reported = json.loads(said)
    reason = reported["hosts"]["@fake/ws1"]["reason"]
    assert (code, reported["exit_code"], "\n" in reason) == (1, 1, False)
    assert re.search(words, reason)
    assert [each["outcome"] for each in reported["hosts"]["@fake/ws2"]["runs"]] == ["running"]


def test_a_host_on_which_nothing_is_to_be_trained_is_not_asked(ask: Ask) -> None:
    hosts: dict[str, Answers] = {"ws1": {"bin/train": {"success": False}}}
    nothing = {"training_repo": None, "training_commit": None}
    code, said = ask(hosts, "list", data=nothing)
    assert (code, "no training declared" in said) == (0, True)
    reported = (
        "no training is declared for @fake/ws1: declare training_repo and training_commit for it"
    )
    for words in (["start"], ["why"], ["list", "--limit", "@fake/ws1"]):
        code, said = ask(hosts, *words, data=nothing)
        assert (code, reported in " ".join(said.split())) == (1, True)


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

    def command(_: object, host: object, text: object, reported: Any, **more: object) -> Unanswered:
        given.append((str(text), reported))
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
    reported = {'HOST_FACTS={"shm-small": "64 MiB"}': {"stderr": "reported", "success": False}}
    assert "reported" in ask({"ws1": reported}, "why")[1]


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
    reported = "@fake/ws1, @fake/ws3:\none\n\n@fake/ws2:\n2 runs are on (a, b): say which one\n"
    assert ask(hosts, "stop", "--all") == (1, reported)
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
    hosts = {f"ws{number}": reported for number, reported in enumerate(others)}
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


# -- one run of several hosts: on all of them, or on none

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


# -- what Tab offers: groups and hosts of the inventory that was typed

PLACES_PY = """gpu = ["ws1", "ws2"]
cpu = ["ws3"]
"""
PLACES = "pyinfra-gpu train places.py"


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("pyinfra-gpu tr", {"train"}),
        ("pyinfra-gpu check places.py --limit ", {"gpu", "cpu", "places", "ws1", "ws2", "ws3"}),
        ("pyinfra-gpu check places.py --data ", set()),
        (f"{PLACES} st", {"start", "stop"}),
        (f"{PLACES} start --across ", {"gpu", "cpu", "places"}),
        (f"{PLACES} logs -- --rank ", set()),
        ("pyinfra-gpu train nothing.py start --across ", set()),
    ],
)
def test_what_is_offered_is_what_the_inventory_declares(
    line: str,
    offered: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("places.py").write_text(PLACES_PY, encoding="utf-8")
    monkeypatch.setenv("_PYINFRA_GPU_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    with pytest.raises(SystemExit):
        cli.main([])
    found = [row.partition(",") for row in capsys.readouterr().out.splitlines()]
    assert {word for kind, _, word in found if kind == "plain"} == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_own_code(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    assert "_PYINFRA_GPU_COMPLETE" in capsys.readouterr().out
