"""Which GPUs are asked for, and what a run in the queue waits for."""

from __future__ import annotations

import argparse
import io
import json
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from train.run_directory import NOW, iso, write_run

from pyinfra_gpu.diagnosis.catalogue import catalogue
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.on_host.smoke import files
from pyinfra_gpu.on_host.train import (
    across,
    checks,
    claims,
    code,
    environment,
    gpus,
    options,
    presets,
    rundir,
    stamp,
    units,
)
from pyinfra_gpu.on_host.train import site as site_module
from pyinfra_gpu.on_host.train.calling import VARIABLE, Caller
from pyinfra_gpu.on_host.train.checkpoints import Checkpoint
from pyinfra_gpu.on_host.train.commands import (
    again,
    asking,
    going_on,
    listing,
    logs,
    queueing,
    start,
    stop,
    telling,
    trying,
    writing,
)
from pyinfra_gpu.on_host.train.errors import TrainError
from pyinfra_gpu.on_host.train.gpus import Gpu
from pyinfra_gpu.on_host.train.site import Site
from pyinfra_gpu.on_host.train.why import why
from pyinfra_gpu.report.train.answer import read_runs

GPUS = ["GPU-a", "GPU-b"]
NAMES = ("one", "two")
KNOWN = [Gpu(index, uuid, 32768, 0, "RTX 5090") for index, uuid in enumerate(GPUS)]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    state = tmp_path / "state"
    state.mkdir()
    return Site(
        prefix=str(tmp_path),
        python="/x/python",
        checkout="/x/checkout",
        env_file="/x/env",
        env_names=(),
        state=str(state),
        stamp="/x/stamp.json",
        lock="/x/.lock",
        owner=None,
        accelerator="nvidia",
        rehearsal=True,
        ranks=2,
        torch="2.13.0",
    )


def devices(site: Site, given: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    monkeypatch.setattr(gpus, "listed", lambda: KNOWN)
    asked = argparse.Namespace(gpus=given, unproven=False, queue=False, retries=0)
    preset = presets.resolved({"a": {"file": "a.py"}}, "a")
    return asking.wanted(site, asked, preset, ())[0].devices


@pytest.mark.parametrize(
    ("given", "found"),
    [("0,1", ("GPU-a", "GPU-b")), ("1", ("GPU-b",)), ("GPU-b, 0", ("GPU-b", "GPU-a"))],
)
def test_gpus_are_named_by_index_or_uuid(
    given: str, found: tuple[str, ...], site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert devices(site, given, monkeypatch) == found


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("0,0", "--gpus 0,0 names GPU 0 twice: name it once"),
        ("0,GPU-a", "--gpus 0,GPU-a names GPU 0 twice: name it once"),
        ("", "--gpus '' names no GPU: this host has 0, 1; leave it out for all of them"),
        (",", "--gpus ',' names no GPU: this host has 0, 1; leave it out for all of them"),
        ("0,", "--gpus '0,' has a comma too many: this host has 0, 1"),
        ("7", "there is no GPU 7: this host has 0, 1"),
    ],
)
def test_gpus_that_are_none_or_named_twice_are_one_sentence(
    given: str, told: str, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TrainError) as caught:
        devices(site, given, monkeypatch)
    assert str(caught.value) == told


def queued(site: Site, devices: list[str], ranks: int) -> rundir.Run:
    folder = write_run(Path(site.state) / "runs", state="queued", attempts=[])
    (folder / "request.json").write_text(json.dumps({"devices": devices, "ranks": ranks}))
    return rundir.Run(folder)


def test_a_queued_run_is_told_with_what_it_waits_for(site: Site) -> None:
    run = queued(site, GPUS, 2)
    held = claims.claim(site, "one", GPUS, 1, None)
    tickets = [claims.Ticket(site, name, GPUS) for name in ("two", run.name, "three")]
    words = queueing.waits_for(site, run)
    assert words == "it waits for 2 of 2 GPUs, taken by one; two waited before it"
    found = why(run.folder, known=catalogue(), now=NOW, queued=words, kernel=lambda since: ())
    assert found.what == f"run {run.name} waits in the queue: nothing has failed"
    assert found.facts == (words,)
    assert words in " ".join(found.screen().split())
    for each in tickets:
        each.give_up()
    assert isinstance(held, claims.Held)
    held.release()


def test_who_waits_for_other_gpus_is_not_named(site: Site) -> None:
    run = queued(site, ["GPU-b"], 1)
    other, own = claims.Ticket(site, "one", ["GPU-a"]), claims.Ticket(site, run.name, ["GPU-b"])
    assert claims.ahead(site, run.name) == []
    assert queueing.waits_for(site, run) == "it waits for 1 of 1 GPUs"
    other.give_up()
    own.give_up()


def test_a_queued_run_without_a_gpu_waits_for_the_cpu(site: Site) -> None:
    run = queued(site, [claims.CPU], 2)
    held = claims.claim(site, "one", [claims.CPU], 1, None)
    assert queueing.waits_for(site, run) == "it waits for the CPU, taken by one"
    assert isinstance(held, claims.Held)
    held.release()


def started(
    site: Site, monkeypatch: pytest.MonkeyPatch, preset: dict[str, Any], *words: str
) -> rundir.Run:
    """Start a run that nothing is in the way of, as far as the hand-over to its unit."""

    def keep(_: Path, folder: Path) -> list[list[str]]:
        (folder / "code.diff").write_text("")
        return [["", "0" * 40, "code.diff"]]

    monkeypatch.setattr(gpus, "listed", lambda: KNOWN)
    monkeypatch.setattr(units, "ensure", lambda *_: None)
    monkeypatch.setattr(units, "start", lambda _: None)
    monkeypatch.setattr(checks, "problems", lambda *_: [])
    monkeypatch.setattr(stamp, "packages", lambda _: "")
    monkeypatch.setattr(stamp, "versions", lambda _: {})
    monkeypatch.setattr(environment, "read", lambda _: {})
    monkeypatch.setattr(code, "keep", keep)
    declared = replace(site, presets={"a": preset})
    assert start.start(declared, options.parse(["start", "a", *words])) == 0
    return rundir.all_runs(site)[-1]


PYTHON = {"file": "a.py", "launch": "python", "checkpoints": "/x", "words": ["--world={ranks}"]}


def test_a_python_launch_is_one_rank_however_many_gpus_it_has(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was told as one rank for each GPU, and the log of the second was empty."""
    run = started(site, monkeypatch, PYTHON)
    assert "is on, 1 rank\n" in capsys.readouterr().out
    document = run.read()
    assert (document["nproc"], document["gpus"]) == (1, GPUS)
    assert document["command"][-1] == "--world=1"
    run.write({**document, "attempts": [{"number": 1, "outcome": "failed"}], "state": "ended"})
    with pytest.raises(TrainError, match=r"has no rank 1: its ranks are 0$"):
        listing.log_path(run, 1, None)
    two = presets.resolved({"a": {**PYTHON, "launch": "torchrun"}}, "a")
    assert (two.processes(2), run.request()["ranks"]) == (2, 2)


@pytest.mark.parametrize(
    ("rank", "attempt", "told"),
    [
        (0, 3, "has no attempt 3: its attempts are 1 to 2$"),
        (None, 3, "has no attempt 3"),
        (0, 0, "has no attempt 0"),
        (4, None, "has no rank 4: its ranks are 0 to 3$"),
        (-1, None, "has no rank -1"),
    ],
)
def test_a_log_of_no_rank_or_no_attempt_is_refused(
    rank: int | None, attempt: int | None, told: str, tmp_path: Path
) -> None:
    """Of an attempt that there was not it printed nothing, and ended with 0."""
    attempts = [{"number": 1, "outcome": "failed"}, {"number": 2, "outcome": "failed"}]
    run = rundir.Run(write_run(tmp_path, state="ended", nproc=4, attempts=attempts))
    assert listing.log_path(run, 3, 1) == run.attempt(1) / "rank3.log"
    with pytest.raises(TrainError, match=told):
        listing.log_path(run, rank, attempt)


@pytest.mark.parametrize(
    ("hosts", "told"),
    [
        (1, "give --queue to wait, or end what has it: `train stop one` and `train stop two`"),
        (2, "end what has it: `train stop one` and `train stop two`"),
    ],
)
def test_what_has_the_gpus_is_told_with_the_commands_that_end_it(
    hosts: int, told: str, site: Site
) -> None:
    """A run of several hosts was told to give --queue, which it may not."""
    held = [claims.claim(site, run, [gpu], 1, None) for run, gpu in zip(NAMES, GPUS, strict=True)]
    preset = presets.resolved({"a": {"file": "a.py"}}, "a")
    asked = checks.Asked(preset=preset, devices=tuple(GPUS), ranks=1, hosts=hosts)
    (problem,) = checks._claims(site, asked)
    assert (problem.what, problem.remedy) == ("2 of 2 GPUs are taken by one, two", told)
    for each in held:
        assert isinstance(each, claims.Held)
        each.release()
    assert list(checks._claims(site, asked)) == []


@pytest.mark.parametrize(("words", "told"), [((), ""), (("--gpus", "1"), "1")])
def test_the_gpus_that_a_run_was_given_are_told_where_they_are_not_all(
    words: tuple[str, ...], told: str, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = started(site, monkeypatch, PYTHON, *words)
    assert telling._gpus(site, run) == told


@pytest.mark.parametrize(
    ("state", "outcome", "told"),
    [
        ("waiting", "failed", "waits no more, and stays failed"),
        ("waiting", "stopped", "stopped"),  # it had begun again meanwhile
        ("running", "failed", "failed"),
    ],
)
def test_a_run_that_is_stopped_while_it_waits_is_said_to_wait_no_more(
    state: str,
    outcome: str,
    told: str,
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It said "failed", as if the stop had."""
    folder = write_run(site.runs, state=state, outcome=outcome)
    (folder / "request.json").write_text("{}")
    run = rundir.Run(folder)
    monkeypatch.setattr(units, "stop", lambda *_: run.write({**run.read(), "state": "ended"}))
    assert stop.stop(site, run.name) == 0
    assert capsys.readouterr().out == f"{run.name} {told}\n"


def ending(run: rundir.Run, outcome: str) -> None:
    """Have a run end, as its supervisor does."""
    document = run.read()
    document["attempts"][-1] |= {"outcome": outcome, "ended": iso(NOW)}
    run.write({**document, "state": "ended"})


TWO = ["ws1", "ws2"]
PART = {"hosts": TWO, "host": "ws1", "group": "gpu"}


def orders(folder: Path, **more: Any) -> rundir.Run:
    (folder / "request.json").write_text(json.dumps({"preset": TINY, "ranks": 1, **more}))
    return rundir.Run(folder)


TINY = presets.resolved({"tiny": {"file": "a.py", "arguments": {"steps": 5}}}, "tiny").as_json()


def test_a_stop_on_one_host_says_that_it_ends_all_and_why_says_by_whom(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended the run on the other host as well, and neither it nor `why` said so."""
    monkeypatch.setattr(units, "active", lambda _: False)
    run = orders(write_run(site.runs, across=TWO), across=PART)
    monkeypatch.setattr(units, "stop", lambda *_: ending(run, "stopped"))
    asked = Caller(inventory="lab.py", chosen=("--limit", "ws1"), who="ada@desk")
    monkeypatch.setenv(VARIABLE, asked.as_text())
    assert stop.stop(site, run.name) == 0
    told = capsys.readouterr()
    assert "is a run of ws1, ws2 together: the others' ranks lose these" in told.err
    assert f"`pyinfra-gpu train lab.py stop --across gpu -- {run.name}` stops it on all" in told.err
    explained = why(run.folder, known=catalogue())
    assert "it was stopped by ada@desk, from the controller" in explained.screen()
    assert (explained.stopped, explained.across, explained.ended) == (True, ("ws1", "ws2"), NOW)


def test_why_without_a_name_is_about_the_run_that_failed(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a run that had waited behind it, and finished, it said that nothing had failed."""
    now = time.time()
    failed = {"state": "ended", "outcome": "failed", "preset": "a"}
    name = "20261122-200000-a"
    orders(write_run(site.runs, name=name, attempt={"ended": iso(now)}, **failed))
    orders(write_run(site.runs, name="20261122-200001-b", state="ended", outcome="finished"))
    assert telling.why(site, options.parse(["why"])) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith(f"run {name} failed")
    assert "20261122-200001-b, which is newer, is finished" in said
    assert listing.show(site, as_json=True, everything=False) == 0
    told = json.loads(capsys.readouterr().out)["runs"]
    assert [(each["outcome"], each["unresolved"]) for each in told] == [
        ("failed", True),
        ("finished", False),
    ]
    assert telling.why(site, options.parse(["why", "20261122-200001-b"])) == 0
    assert "nothing has failed" in capsys.readouterr().out


@pytest.mark.parametrize("hosts", [None, TWO])
def test_why_names_the_newest_checkpoint_from_which_a_run_goes_on(
    hosts: list[str] | None, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pattern = {"checkpoints": f"{tmp_path}/saved/step-*", "complete": ["all.pt"]}
    declared = {"file": "a.py", **pattern, "resume": {"resume": "{checkpoint}"}}
    saves = presets.resolved({"a": declared}, "a").as_json()
    for step in ("001700", "001800", "001900"):
        (tmp_path / f"saved/step-{step}").mkdir(parents=True)
    (tmp_path / "saved/step-001700/all.pt").write_text("x")
    (tmp_path / "saved/step-001800/all.pt").write_text("x")
    killed = {"state": "ended", "outcome": "failed", "attempt": {"exit": -9}, "across": hosts}
    run = orders(write_run(site.runs, **killed), preset=saves, across=PART if hosts else None)
    assert telling.why(site, options.parse(["why"])) == 0
    words = f"train resume {run.name}"
    if hosts:
        words = f"pyinfra-gpu train INVENTORY resume --across gpu -- {run.name}"
    said = " ".join(capsys.readouterr().out.split())
    assert said.endswith(f"Go on from step-001800: `{words}`"), said
    assert telling._go_on(run, {**run.read(), "state": "running"}) == ""


def test_who_is_told_to_begin_a_run_is_told_a_preset_that_there_is(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`train start` alone was refused, and for a run of several hosts it was not the command."""
    site = replace(site, presets={"small": {}, "big": {}})
    assert listing.show(site, as_json=False, everything=False) == 0
    told = "there is no run yet: begin one with `train start small`\n"
    assert capsys.readouterr().out == told
    asked = Caller(inventory="lab.py", chosen=("--limit", "ws1"), group="gpu")
    monkeypatch.setenv(VARIABLE, asked.as_text())
    whole = "begin one with `pyinfra-gpu train INVENTORY start --across gpu -- small`"
    with pytest.raises(TrainError, match=whole):
        stop.stop(site, None, across=True)


def test_the_name_to_be_stopped_is_that_of_a_run_that_is_on(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`stop balanced` may have been any of ten, of which nine had ended."""
    for number in range(3):
        write_run(site.runs, name=f"2026112{number}-200000-a", state="ended", outcome="failed")
    with pytest.raises(TrainError, match="a may be 3 runs"):
        stop.stop(site, "a")
    on = write_run(site.runs, name="20261123-200000-a")
    assert rundir.chosen(site, "a", going=True).folder == on
    with pytest.raises(TrainError, match="20261120-200000-a has ended already: failed"):
        stop.stop(site, "20261120")


def test_a_part_knows_the_group_that_the_controller_was_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part = {"hosts": TWO, "host": "ws1", "run": None, "commit": None, "addresses": ["10.0.0.1"]}
    told = json.dumps({**part, "port": 0, "token": "0" * 32}).encode()
    asked = Caller(inventory="lab.py", chosen=("--limit", "ws1"), group="gpu")
    monkeypatch.setenv(VARIABLE, asked.as_text())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(told)))
    assert across.read_part().as_json()["group"] == "gpu"


def test_a_stop_of_all_hosts_warns_of_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = orders(write_run(site.runs, across=TWO), across=PART)
    monkeypatch.setattr(units, "stop", lambda *_: ending(run, "stopped"))
    assert stop.stop(site, None, across=True) == 0
    assert capsys.readouterr().err == ""


def test_a_full_disk_keeps_nobody_from_stopping_a_run(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended with "No space left", or said that the run had ended, and the run went on."""
    run = orders(write_run(site.runs, state="ended", outcome="lost"), after_reboot=True)
    stopped: list[str] = []
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(files, "write", lambda *_: (_ for _ in ()).throw(full))
    monkeypatch.setattr(units, "active", lambda _: not stopped)
    monkeypatch.setattr(units, "stop", lambda name, _: stopped.append(name))
    assert stop.stop(site, run.name) == 0
    assert stopped == [run.name]
    assert "warning: it will go on after the next boot" in capsys.readouterr().err
    with pytest.raises(TrainError, match="has ended already: lost"):
        stop.stop(site, run.name)


DAMAGED = ["", '{"schema": 1', "[]", '{"schema": 1, "run": "x"}', '{"schema": 1, "attempts": 3}']


@pytest.mark.parametrize("text", DAMAGED)
def test_a_run_whose_record_is_damaged_is_listed_with_what_to_do(
    text: str, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was not in the list at all."""
    good = write_run(site.runs, state="ended", outcome="finished").name
    run = rundir.Run(write_run(site.runs, name="20261122-210000-large"))
    (run.folder / "run.json").write_text(text)
    assert listing.show(site, as_json=False, everything=False) == 0
    out = capsys.readouterr().out
    rows, told = out.splitlines(), " ".join(out.split())
    assert [row.split()[:2] for row in rows[1:3]] == [[good, "finished"], [run.name, "damaged"]]
    assert f"the record of run {run.name} is damaged" in told
    assert f"`train start --like {run.name}` repeats it" in told
    assert all(len(row) <= 80 or "/" in row for row in rows)  # a path is kept whole
    assert listing.show(site, as_json=True, everything=False) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [each["state"] for each in runs] == ["ended", "damaged"]
    found = read_runs(json.dumps({"schema": 1, "runs": runs}))
    assert not isinstance(found, Unknown)
    assert [(each.outcome, each.wrong) for each in found.runs] == [
        ("finished", False),
        ("damaged", True),
    ]


@pytest.mark.parametrize("words", ["why", "logs", "watch --once"])
def test_a_damaged_run_is_one_sentence(words: str, site: Site) -> None:
    run = rundir.Run(write_run(site.runs))
    (run.folder / "run.json").write_text("{")
    verb, *further = words.split()
    asked = options.parse([verb, run.name, *further])
    act = {"why": telling.why, "watch": telling.watch, "logs": logs.show}[verb]
    with pytest.raises(TrainError, match=rf"^the record of run {run.name} is damaged") as caught:
        act(site, asked)
    assert "\n" not in str(caught.value)


def test_a_damaged_run_that_goes_on_can_be_stopped(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = rundir.Run(write_run(site.runs))
    (run.folder / "run.json").write_text("{")
    stopped: list[str] = []
    monkeypatch.setattr(units, "stop", lambda name, _: stopped.append(name))
    assert stop.stop(site, None) == 0
    assert stopped == [run.name]
    assert "was ended; its record is damaged" in capsys.readouterr().out


def test_from_where_a_run_would_go_on_is_said_also_where_it_cannot_now(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While the GPUs were taken only that was said."""
    run = orders(write_run(site.runs, state="ended", outcome="failed"))
    point = Checkpoint(Path("/nfs/step-7"), "7")
    monkeypatch.setattr(start, "_point", lambda *_: point)
    taken = TrainError("this run cannot start:\n  2 of 2 GPUs are taken by one")
    monkeypatch.setattr(going_on, "checked", lambda *_: (_ for _ in ()).throw(taken))
    with pytest.raises(TrainError, match="are taken"):
        start.resume(site, options.parse(["resume", run.name, "--dry"]))
    assert capsys.readouterr().out == f"{run.name} would go on from /nfs/step-7\n"


def test_one_host_does_not_repeat_what_several_trained_together(site: Site) -> None:
    """It was started on this host alone, without a word."""
    run = orders(write_run(site.runs, state="ended", outcome="failed", across=TWO), across=PART)
    with pytest.raises(TrainError) as caught:
        start.start(site, options.parse(["start", "--like", run.name]))
    assert str(caught.value) == (
        f"run {run.name} is one of ws1, ws2 together: repeat it with `pyinfra-gpu train INVENTORY"
        f" start --across gpu -- --like {run.name}`, or begin one of this host alone with `train"
        " start balanced --set depth=20`"
    )
    with pytest.raises(TrainError, match=rf"start --across gpu -- --like {run.name}`$"):
        finished = {**run.read(), "attempts": [{"outcome": "finished"}]}
        start._point(run, finished, run.request(), options.parse(["resume", "--hosts", "2"]))


def test_a_folder_that_is_not_shared_is_not_proposed_again(site: Site, tmp_path: Path) -> None:
    """After a failure for want of a shared folder the same one was to be used again."""
    (tmp_path / "data/step-7").mkdir(parents=True)
    saves = {"file": "a.py", "checkpoints": "{to}/step-*"}
    saves |= {"complete": ["rank{rank}.pt"], "resume": {"resume": "{checkpoint}"}}
    saves["arguments"] = {"to": f"{tmp_path}/data"}
    preset = presets.resolved({"tiny": saves}, "tiny").as_json()
    folder = write_run(site.runs, state="ended", outcome="failed", across=TWO)
    run = orders(folder, across=PART, preset=preset, words=[])
    with pytest.raises(TrainError) as caught:
        start.resume(site, options.parse(["resume", run.name, "--hosts", "2", "--unproven"]))
    again = f"`pyinfra-gpu train INVENTORY start --across gpu -- --like {run.name}"
    assert str(caught.value).endswith(
        f"give one that they do with {again} --set to=FOLDER --unproven`"
    )
    (tmp_path / "data/step-7").rmdir()  # then nobody can tell that it is not shared
    with pytest.raises(TrainError) as caught:
        start.resume(site, options.parse(["resume", run.name, "--hosts", "2"]))
    assert str(caught.value).endswith(f"start it anew with {again}`")


def test_a_repeated_run_keeps_the_settings_of_the_first(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Advice for it named the preset without them."""
    preset = {"file": "a.py", "checkpoints": "/x", "arguments": {"steps": 5, "batch-size": 8}}
    first = started(site, monkeypatch, preset, "--set", "steps=9", "--set", "batch-size=4")
    words = ["start", "--like", first.name, "--set", "batch-size=2"]
    assert start.start(replace(site, presets={"a": preset}), options.parse(words)) == 0
    again = rundir.all_runs(site)[-1].read()
    assert again["overrides"] == {"steps": "9", "batch-size": "2"}


def test_a_command_of_training_notify_that_is_not_there_is_said_before_a_start(
    site: Site, tmp_path: Path
) -> None:
    preset = presets.Preset(name="a", file="a.py", checkpoints="/x/*")
    assert checks.warnings(site, preset) == []
    there = tmp_path / "tell-me"
    declared = replace(site, notify=(str(there),))
    (told,) = checks.warnings(declared, preset)
    assert told.startswith(f"nobody is told how this run goes: {there} of training_notify is no")
    there.write_text("#!/bin/sh\n")
    assert checks.warnings(declared, preset) == [told]
    there.chmod(0o700)
    assert checks.warnings(declared, preset) == []


def trying_site(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Site:
    """Return a host with three presets, of which one says how it is tried and fits."""

    def problems(_: Site, asked: checks.Asked, known: object) -> list[checks.Problem]:
        return [checks.Problem("8 GiB are free", "end it")] * (asked.preset.name == "big")

    started(site, monkeypatch, PYTHON)
    capsys.readouterr()
    monkeypatch.setattr(checks, "problems", problems)
    few = {"arguments": {"steps": 9}, "try_with": {"steps": 1}}
    declared = {"a": PYTHON, "big": {**PYTHON, **few}, "small": {**PYTHON, **few}}
    return replace(site, presets=declared)


def begun(run: rundir.Run, site: Site, **attempt: Any) -> None:
    told = {"number": 1, "started": rundir.now(), "ended": None, "outcome": None, **attempt}
    run.write({**run.read(), "attempts": [told], "state": "ended" if attempt else "running"})


def test_presets_that_cannot_be_tried_are_left_out_and_the_others_tried(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where one did not say how it is tried, none was; and a try looked like any run."""
    declared = trying_site(site, monkeypatch, capsys)
    monkeypatch.setattr(
        units, "start", lambda name: begun(rundir.Run(site.runs / name), site, outcome="finished")
    )
    assert trying.try_presets(declared, options.parse(["try"])) == 1  # big does not fit
    told = capsys.readouterr().out
    assert [line.split()[:2] for line in told.splitlines()[1:4]] == [
        ["a", "left"],
        ["big", "not"],
        ["small", "finished"],
    ]
    assert "a: it does not say how it is tried: give it 'try_with'" in told
    assert "8 GiB are free" in told
    assert all(len(line) <= 80 for line in told.splitlines())
    assert list(trying.remembered(declared)) == ["small"]
    assert trying.try_presets(declared, options.parse(["try", "small"])) == 0
    assert trying.try_presets(declared, options.parse(["try", "a"])) == 1
    capsys.readouterr()
    listing.show(site, as_json=False, everything=False)
    assert "finished, a try" in capsys.readouterr().out


def test_a_try_that_takes_too_long_says_so(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said "stopped", and not why."""
    declared = trying_site(site, monkeypatch, capsys)
    moments = iter(range(0, 10_000, 3))
    monkeypatch.setattr(trying.time, "monotonic", lambda: next(moments))
    monkeypatch.setattr(trying.time, "sleep", lambda _: None)
    monkeypatch.setattr(units, "active", lambda _: True)
    monkeypatch.setattr(units, "start", lambda name: begun(rundir.Run(site.runs / name), site))
    monkeypatch.setattr(
        units, "stop", lambda name, _: ending(rundir.Run(site.runs / name), "stopped")
    )
    assert trying.try_presets(declared, options.parse(["try", "small", "--seconds", "5"])) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "small: stopped by `train try --seconds 5`, whose time was over" in told


def test_an_empty_name_is_no_runs(site: Site) -> None:
    """It was the beginning of every name: with one run it was that one."""
    write_run(site.runs)
    with pytest.raises(TrainError, match="an empty name is no run's"):
        rundir.chosen(site, "")


def test_root_is_told_to_start_runs_as_their_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root was told to have root's own user manager linger, and would have owned the run."""
    (tmp_path / "train").mkdir()
    (tmp_path / "bin").mkdir()
    state = tmp_path / "state"
    state.mkdir()
    site = {"prefix": str(tmp_path), "state": str(state), "owner": "ada", "env_names": []}
    texts = dict.fromkeys(("python", "checkout", "env_file", "stamp", "lock", "torch"), "/x")
    more = {"schema": 1, "accelerator": "cpu", "rehearsal": False, "ranks": 1}
    (tmp_path / "train/site.json").write_text(json.dumps({**site, **texts, **more}))
    program = tmp_path / "bin/train"
    monkeypatch.setattr("sys.argv", [str(program), "start", "tiny"])
    monkeypatch.setattr(site_module, "_owner", lambda _: "ada")
    monkeypatch.setattr("os.getuid", lambda: 0)
    monkeypatch.setattr(site_module, "_of", lambda _: 1000)
    with pytest.raises(TrainError) as caught:
        site_module.load()
    assert str(caught.value) == f"runs are ada's here: run `sudo -u ada {program} start tiny`"
    monkeypatch.setattr(site_module, "_of", lambda _: 0)
    site_module.load()


LONG = {
    "file": "a.py",
    "ranks": 2,
    "checkpoints": "/x/step-*",
    "resume": {"resume": "{checkpoint}"},
}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("0", "and --gpus names 1: name 2 GPUs, or leave out --gpus for all, or begin it anew"),
        (None, "and this host has 1: begin it anew"),
    ],
)
def test_who_resumes_is_told_what_resume_takes(
    given: str | None, told: str, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said "give --set ranks=1", an option that `resume` has not."""
    monkeypatch.setattr(gpus, "listed", lambda: KNOWN if given else KNOWN[:1])
    preset = presets.resolved({"a": LONG}, "a").as_json()
    run = orders(write_run(site.runs, state="ended", outcome="failed"), preset=preset, words=[])
    run.ask({**run.request(), "ranks": 2, "devices": GPUS})
    monkeypatch.setattr(start, "_point", lambda *_: Checkpoint(Path("/x/step-7"), "7"))
    words = ["resume", run.name, *(["--gpus", given] if given else [])]
    with pytest.raises(TrainError) as caught:
        start.resume(site, options.parse(words))
    assert told in str(caught.value)
    typed = str(caught.value).split("`")[1].removeprefix("train ")
    again = options.parse(typed.split())  # it can be typed
    assert (again.like, again.set) == (run.name, ["ranks=1"])
    assert again.gpus == given


def test_of_two_that_resume_one_is_refused(site: Site) -> None:
    """Both said that it goes on."""
    run = orders(write_run(site.runs, state="ended", outcome="failed"))
    with (
        run.going_on(),
        pytest.raises(TrainError, match=rf"run {run.name} is being resumed already"),
    ):
        start.resume(site, options.parse(["resume", run.name]))
    with pytest.raises(TrainError, match="does not say how to resume"):
        start.resume(site, options.parse(["resume", run.name]))


def test_what_goes_on_after_a_boot_leaves_alone_what_somebody_resumes(site: Site) -> None:
    run = orders(write_run(site.runs, state="ended", outcome="failed"))
    before = run.read()
    with run.going_on():
        assert again._still_waits(site, run, rundir.later(60))
    assert run.read() == before
    assert not again._still_waits(site, run, rundir.later(60))


def test_little_room_for_checkpoints_of_an_unknown_size_is_warned_of(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=6 << 20))
    preset = presets.Preset(name="a", file="a.py", checkpoints=f"{site.state}/new/step-*")
    (told,) = checks.warnings(site, preset)
    assert told.startswith(f"6 MiB are free below {site.state}, where its checkpoints go")
    assert checks.warnings(site, replace(preset, checkpoint_gib=1)) == []


def test_what_to_type_for_several_hosts_keeps_what_was_typed(site: Site) -> None:
    """It left out the other settings, and what stood behind --."""
    own = {**PYTHON, "launch": "torchrun", "arguments": {"save": "{run}/x", "steps": 5}}
    told = replace(site, presets={"a": own}, accelerator="cpu")
    words = [
        "start",
        "a",
        "--hosts",
        "2",
        "--set",
        "steps=400",
        "--unproven",
        "--",
        "--sample",
        "3",
    ]
    with pytest.raises(TrainError) as caught:
        start.start(told, options.parse(words))
    typed = "-- a --set steps=400 --set save=FOLDER --unproven -- --sample 3`"
    assert f"start --across GROUP {typed}" in str(caught.value)
    relative = {**own, "arguments": {"save": "rel", "steps": 5}, "checkpoints": "{save}/step-*"}
    with pytest.raises(TrainError, match="--set save=FOLDER"):
        start.start(replace(told, presets={"a": relative}), options.parse(words))


def test_the_list_tells_a_loss_that_is_no_number(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """It had the sign for no loss at all."""
    nan = {"attempt": 1, "step": 49, "steps": 1000, "loss": None, "not_finite": "nan"}
    write_run(site.runs, metrics=[{**nan, "time": iso(time.time())}])
    listing.show(site, as_json=False, everything=False)
    assert re.search(r"running +49/1000 +NaN ", capsys.readouterr().out)


def test_the_list_tells_no_step_that_an_attempt_has_not_reached(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """It had the last one of the attempt before, and called that a standstill."""
    told = {"time": iso(NOW - 9000), "attempt": 1, "step": 410, "steps": 5000, "loss": 2.0}
    metrics = [{**told, "step": step} for step in range(400, 411)]
    folder = write_run(site.runs, metrics=metrics)
    run = rundir.Run(folder)
    first = run.read()["attempts"][0] | {"outcome": "failed", "ended": iso(NOW)}
    second = {**first, "number": 2, "outcome": None, "ended": None}
    run.write({**run.read(), "attempts": [first, second]})
    listing.show(site, as_json=False, everything=False)
    assert re.search(r"running, attempt 2 +- +- ", capsys.readouterr().out)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({**told, "attempt": 2, "step": 401}) + "\n")
    listing.show(site, as_json=False, everything=False)
    assert "401/5000" in capsys.readouterr().out


def test_one_older_run_is_one(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(21):
        name = f"202611{number + 1:02}-200000-a"
        write_run(site.runs, name=name, state="ended", outcome="finished")
    listing.show(site, as_json=False, everything=False)
    assert capsys.readouterr().out.endswith("1 older one: `train list --all`\n")


def test_who_is_queued_is_told_who_has_the_gpus(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was "behind who has its devices"."""
    held = claims.claim(site, "one", GPUS, 2, None)

    run = started(site, monkeypatch, PYTHON, "--queue")
    run.write({**run.read(), "state": "queued"})
    capsys.readouterr()
    writing.say(site, run, "is on")
    assert "waits for 2 of 2 GPUs, taken by one\n" in capsys.readouterr().out
    assert isinstance(held, claims.Held)
    held.release()


def test_a_stop_that_takes_its_time_says_how_long_and_what_goes_on(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said nothing for half a minute, and nothing after Ctrl-C."""
    run = orders(write_run(site.runs))
    monkeypatch.setattr(stop, "_MOMENT_S", 0.01)

    def killed(*_: object) -> None:
        time.sleep(0.3)
        run.write({**run.read(), "attempts": [{**run.read()["attempts"][0], "exit": -9}]})
        ending(run, "stopped")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(units, "stop", interrupted)
    assert stop.stop(site, run.name) == 130
    assert f"{run.name} goes on ending: `train list` tells" in capsys.readouterr().err
    monkeypatch.setattr(units, "stop", killed)
    assert stop.stop(site, run.name) == 0
    told = capsys.readouterr()
    assert f"{run.name} has up to 30 s to end by itself, then it is killed" in told.err
    assert f"{run.name} stopped, by SIGKILL: it had not ended within 30 s" in told.out


def test_a_dry_start_says_what_the_launcher_puts_in_front(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was called the exact command, and "of binary: sh" in a log was nobody's."""
    for words in ((), ("--dry",)):
        started(site, monkeypatch, {**PYTHON, "launch": "torchrun"}, *words)
    assert capsys.readouterr().out.endswith(
        "with --log-dir besides, and before the program `sh`, which turns it to its log\n"
    )
