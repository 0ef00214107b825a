"""Which GPUs are asked for, and what a run in the queue waits for."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from train.run_directory import NOW, write_run

from pyinfra_gpu.diagnosis.catalogue import catalogue
from pyinfra_gpu.on_host.train import (
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
from pyinfra_gpu.on_host.train.commands import asking, listing, start, stop, telling
from pyinfra_gpu.on_host.train.errors import TrainError
from pyinfra_gpu.on_host.train.gpus import Gpu
from pyinfra_gpu.on_host.train.site import Site
from pyinfra_gpu.on_host.train.why import why

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
    words = telling.waits_for(site, run)
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
    assert telling.waits_for(site, run) == "it waits for 1 of 1 GPUs"
    other.give_up()
    own.give_up()


def test_a_queued_run_without_a_gpu_waits_for_the_cpu(site: Site) -> None:
    run = queued(site, [claims.CPU], 2)
    held = claims.claim(site, "one", [claims.CPU], 1, None)
    assert telling.waits_for(site, run) == "it waits for the CPU, taken by one"
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
