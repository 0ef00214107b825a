"""Which smoke test a host gets, when it is owed, and what of its result counts."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import verdicts
from fake_host import FakeHost
from gpu_host import DATA, VERSION, GpuHost, GpuRun, unwrapped

from pyinfra_gpu.facts.verdict import Stamp, Verdict
from pyinfra_gpu.on_host.smoke.options import parse
from pyinfra_gpu.operations import smoke as operations
from tasks.stages import smoke

ONE_GPU = {**DATA, "smoke": "auto", "gpu_count": 1}
TWO_GPUS = {**DATA, "smoke": "auto"}


def started_with(host: FakeHost) -> list[str]:
    """The command line of the smoke test that this host's run starts."""
    return unwrapped(started_by(host))[-1]


def started_by(host: FakeHost) -> str:
    """The command with which this host's run starts the smoke test."""
    run = GpuRun(host, FakeHost(name="ws2"), tasks=(smoke,)).prepare().execute()
    (command,) = [each for each in run.executed("ws1") if " --fingerprint " in each]
    return command


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


NO_STAMP: dict[str, str | None] = {"smoke.stamp": None}
MODES: dict[str, tuple[FakeHost, str, str | None, str]] = {
    # name: (the host, mode, GPUs, ranks)
    "two GPUs": (GpuHost(data=TWO_GPUS, told=NO_STAMP), "gpu", "2", "2"),
    "four": (GpuHost(data={**TWO_GPUS, "gpu_count": 4}, told=NO_STAMP), "gpu", "4", "4"),
    "one": (GpuHost(data=ONE_GPU, told=NO_STAMP), "gpu", "1", "1"),
    "simulated GPUs": (
        GpuHost(data={**TWO_GPUS, "rehearsal": True}, told=NO_STAMP),
        *("rehearsal-cpu", None, "2"),
    ),
    "no GPU": (FakeHost(told=NO_STAMP), "rehearsal-cpu", None, "2"),
}


@pytest.mark.parametrize("name", MODES)
def test_the_hardware_that_is_declared_decides_the_mode(name: str, tmp_path: Path) -> None:
    host, mode, gpus, ranks = MODES[name]
    words = started_with(host)
    assert option(words, "--mode") == mode
    own = ["--output", str(tmp_path / "verdict.json")]
    assert parse([*words[2:], *own]).mode == mode  # which the test itself understands
    assert option(words, "--ranks") == ranks
    assert ("--gpus" in words) == (gpus is not None)
    if gpus is not None:
        assert option(words, "--gpus") == gpus


@pytest.mark.parametrize(
    "host",
    [
        FakeHost(data={**FakeHost().data, "smoke_accept": "two-gpus"}, told=NO_STAMP),
        GpuHost(data={**ONE_GPU, "smoke_accept": "two-gpus"}, told=NO_STAMP),
    ],
    ids=["no GPU", "one GPU"],
)
def test_where_two_gpus_must_be_proven_less_is_refused_before_anything_runs(
    host: FakeHost,
) -> None:
    run = GpuRun(host, FakeHost(name="ws2"), tasks=(smoke,)).prepare().execute()
    assert run.failed() == {"ws1"}
    assert run.executed("ws1") == []


def test_what_programs_do_not_use_by_data_is_not_tested() -> None:
    off = {"environment_dynamo": False}
    assert "--no-compile" not in started_with(FakeHost(told=NO_STAMP))
    assert "--no-compile" in started_with(FakeHost(data=off, told=NO_STAMP))


def test_root_limits_the_test_and_the_owner_waits_and_runs_in_it() -> None:
    host = FakeHost(data={**FakeHost().data, "owner": "trainer"}, told=NO_STAMP)
    wrapper, waiting, _ = unwrapped(started_by(host))
    assert (wrapper[-5], wrapper[-4]) == ("group.sh", "trainer")
    assert wrapper[-2:] == ["1260", "127.0.0.0/9 ::1"]  # when all is ended, and who may connect
    assert waiting[3:6] == ["locked.sh", "/opt/pyinfra-gpu/.lock", "900"]


@pytest.mark.parametrize("data", [{"privilege": "none"}, {"smoke_limit_network": False}])
def test_without_root_or_by_data_the_test_is_left_to_itself(data: dict[str, object]) -> None:
    host = FakeHost(data={**FakeHost().data, **data}, told=NO_STAMP)
    waiting, _ = unwrapped(started_by(host))
    assert waiting[3:6] == ["locked.sh", "/opt/pyinfra-gpu/.lock", "900"]


def stamp_of(host: FakeHost) -> dict[str, Any]:
    """The stamp that a test which passed on this very host has left."""
    return dict(json.loads(host.answer()["smoke.stamp"]))


def owed(**changes: Any) -> bool:
    stamp = {**stamp_of(FakeHost()), **changes}
    host = FakeHost(told={"smoke.stamp": json.dumps(stamp)})
    return bool(GpuRun(host, tasks=(smoke,)).prepare().changing("ws1"))


def test_a_verdict_that_was_edited_or_removed_since_it_passed_is_no_proof() -> None:
    """The page showed its figures, and the stamp beside it still counted."""
    text = json.dumps(verdicts.document())
    edited = text.replace('"loss"', '"lost"')
    stamp = {**stamp_of(FakeHost()), "verdict": hashlib.sha256(text.encode()).hexdigest()}
    for there, is_owed in ((text, False), (f"{edited} ", True), (None, True)):
        told = {"smoke.verdict": there, "smoke.stamp": json.dumps(stamp)}
        run = GpuRun(FakeHost(told=told), tasks=(smoke,)).prepare()
        assert bool(run.changing("ws1")) is is_owed


def test_files_that_a_look_has_no_time_to_compare_owe_a_test() -> None:
    untouched, touched = (
        GpuRun(FakeHost(told={"torch.touched": n}), tasks=(smoke,)) for n in (0, 12265)
    )
    assert not untouched.prepare().changing("ws1")
    assert touched.prepare().changing("ws1")


def test_a_test_that_only_warned_has_passed() -> None:
    assert not owed(status="pass")
    assert not owed(status="warn")
    assert owed(status="fail")
    assert owed(status="unknown")


def test_a_pass_on_other_hardware_than_declared_now_does_not_count() -> None:
    assert owed(mode="gpu")
    assert owed(mode="rehearsal-1gpu")


def test_where_there_is_no_environment_the_test_says_what_comes_first() -> None:
    host = FakeHost(told={**NO_STAMP, "torch.python": None})
    run = GpuRun(host, FakeHost(name="ws2"), tasks=(smoke,)).prepare().execute()
    assert run.failed() == {"ws1"}
    assert run.executed("ws1") == []


def test_a_test_that_leaves_nothing_new_is_not_believed() -> None:
    """The host's stamp and verdict are good, and stay as they were: the test has not run."""
    text = json.dumps(verdicts.document(fingerprint=stamp_of(FakeHost())["fingerprint"]))
    host = FakeHost(data={**FakeHost().data, "smoke": "always"}, told={"smoke.verdict": text})
    run = GpuRun(host, FakeHost(name="ws2"), tasks=(smoke,)).prepare().execute()
    assert run.failed() == {"ws1"}


def test_root_withdraws_the_stamp_before_the_test_and_the_test_is_told_of_none() -> None:
    """What is cut off leaves no pass behind; and what the owner runs cannot write one."""
    host = FakeHost(data={**FakeHost().data, "smoke": "always"})
    run = GpuRun(host, FakeHost(name="ws2"), tasks=(smoke,)).prepare().execute()
    commands = run.executed("ws1")
    (withdrawn,) = [n for n, each in enumerate(commands) if "smoke/stamp.json" in each]
    (started,) = [n for n, each in enumerate(commands) if " --fingerprint " in each]
    assert withdrawn < started
    stamp = operations.withdrawn(host.spec(), host.record())
    assert (stamp["fingerprint"], stamp["status"]) == (None, "fail")
    assert isinstance(Stamp.read(json.dumps(stamp)), Stamp)
    assert "stamp" not in commands[started]
    assert "--output /opt/pyinfra-gpu/state/verdict.json" in commands[started]


@pytest.mark.parametrize(
    ("source", "passed", "says"),
    [
        ("nvidia", "580.82.07", "deploy with --data driver_version=580.82.07"),
        ("nvidia", VERSION, ""),
        ("present", "580.82.07", ""),
    ],
)
def test_a_failure_names_the_driver_that_passed_last(source: str, passed: str, says: str) -> None:
    stamp = json.dumps({**stamp_of(GpuHost(data=TWO_GPUS)), "driver": passed, "status": "fail"})
    host = GpuHost(data={**TWO_GPUS, "driver_source": source}, told={"smoke.stamp": stamp})
    said = operations._former_driver(host.spec(), host.record())
    assert says in said
    assert bool(said) is bool(says)


@pytest.mark.parametrize("status", ["pass", "warn"])
def test_the_stamp_of_a_pass_has_what_the_next_run_compares(status: str) -> None:
    verdict = Verdict.read(json.dumps(verdicts.document(status=status, fingerprint="c0ffee")))
    assert isinstance(verdict, Verdict)
    record = GpuHost().record()
    record = replace(record, smoke=replace(record.smoke, verdict_sha256="ab12"))
    file = operations.stamp_file(FakeHost().spec(), operations.stamp_of(verdict, record))
    assert json.loads(file.content) == {
        "fingerprint": "c0ffee",
        "status": status,
        "mode": verdict.mode,
        "finished": verdict.finished,
        "verdict": "ab12",
        "driver": record.driver.loaded,
    }
    assert isinstance(Stamp.read(file.content.decode()), Stamp)
    assert (file.path, file.mode, file.owner) == ("/opt/pyinfra-gpu/smoke/stamp.json", "0644", None)
