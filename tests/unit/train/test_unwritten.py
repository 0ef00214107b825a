"""A run whose end the disk had no room for has ended all the same, and is written down later."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from train.run_directory import NOW, iso, write_run

from pyinfra_gpu.diagnosis.catalogue import catalogue
from pyinfra_gpu.on_host.smoke import files
from pyinfra_gpu.on_host.train import options, presets, rundir, units, unwritten
from pyinfra_gpu.on_host.train.commands import listing, stop
from pyinfra_gpu.on_host.train.errors import TrainError
from pyinfra_gpu.on_host.train.running import supervisor
from pyinfra_gpu.on_host.train.running.retrying import Cause, Retries
from pyinfra_gpu.on_host.train.site import Site
from pyinfra_gpu.on_host.train.why import why

TINY = presets.resolved({"tiny": {"file": "a.py"}}, "tiny").as_json()
CAUSE = Cause("disk-full", "The disk is full.", passing=False)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> rundir.Run:
    monkeypatch.setattr(unwritten, "_path", lambda folder: tmp_path / "memory" / folder.name)
    monkeypatch.setattr(units, "active", lambda _: False)
    monkeypatch.setattr(supervisor, "cause_of", lambda _: CAUSE)
    monkeypatch.setattr(supervisor.time, "sleep", lambda _: None)
    folder = write_run(tmp_path / "state" / "runs")  # and its supervisor is there
    (folder / "request.json").write_text(json.dumps({"preset": TINY, "ranks": 1}))
    return rundir.Run(folder)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    names = ("prefix", "python", "checkout", "env_file", "stamp", "lock", "torch")
    return Site(
        **dict.fromkeys(names, "/x"),
        env_names=(),
        state=str(tmp_path / "state"),
        owner=None,
        accelerator="cpu",
        rehearsal=True,
        ranks=1,
    )


def full(path: Path, document: object) -> None:
    raise OSError(28, "No space left on device", str(path))


def ended(run: rundir.Run, site: Site) -> None:
    """Have the supervisor see the end of the program."""
    attempts = run.read()["attempts"]
    attempts[-1] |= {"ended": iso(NOW), "exit": 1, "outcome": "failed"}
    assert not supervisor.Supervisor(site, run)._another_follows(Retries(0, 1), attempts, {})


def test_a_full_disk_does_not_keep_a_run_running(
    run: rundir.Run,
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`list` had it as running, `why` had it go on, and `stop` made it lost."""
    write = files.write
    monkeypatch.setattr(files, "write", full)
    ended(run, site)
    assert run.read()["state"] == "running"
    assert rundir.outcome(run.settled()) == "failed"
    assert listing.show(site, as_json=False, everything=False) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"{run.name} failed" in said
    assert f"{run.name} ended; its result cannot be written: the disk is full" in said
    assert unwritten.TOLD in why(run.folder, known=catalogue(), now=NOW).facts
    with pytest.raises(TrainError, match="has ended already: failed"):
        stop.stop(site, options.parse(["stop", run.name]).run)
    monkeypatch.setattr(files, "write", write)
    (attempt,) = run.settled()["attempts"]  # there is room again
    assert (attempt["exit"], attempt["outcome"], attempt["cause"]) == (1, "failed", "disk-full")
    assert run.read()["attempts"] == [attempt]
    assert run.read()["state"] == "ended"
    assert unwritten.kept(run.folder) == []


def test_what_could_be_written_is_kept_nowhere_else(run: rundir.Run, site: Site) -> None:
    ended(run, site)
    assert run.read()["state"] == "ended"
    assert unwritten.kept(run.folder) == []


def test_an_attempt_that_began_since_is_not_ended_by_what_was_kept(run: rundir.Run) -> None:
    first = run.read()["attempts"][0] | {"outcome": "failed", "ended": iso(NOW)}
    unwritten.keep(run.folder, [first])
    run.write({**run.read(), "attempts": [first, {**first, "number": 2, "outcome": None}]})
    assert run.settled()["state"] == "running"
