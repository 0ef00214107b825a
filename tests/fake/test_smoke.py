"""Which smoke test a host gets, when one is to be run, and what of its result counts."""

from __future__ import annotations

import hashlib
import json
from types import SimpleNamespace
from typing import Any

import pytest
import verdicts
from fake_host import FakeHost, FakeRun
from gpu_host import DATA, VERSION, GpuHost, GpuRun, unwrapped
from pyinfra.context import ctx_state
from test_check import checked

from pyinfra_gpu.engine.journal import Journal
from pyinfra_gpu.engine.write import File
from pyinfra_gpu.facts.verdict import Stamp
from pyinfra_gpu.on_host.smoke.options import Options
from pyinfra_gpu.stages.smoke import findings as drift
from pyinfra_gpu.stages.smoke import operations
from tasks.stages import smoke

ONE_GPU = {**DATA, "smoke": "auto", "gpu_count": 1}
TWO_GPUS = {**DATA, "smoke": "auto"}
NO_STAMP: dict[str, str | None] = {"smoke.stamp": None}
STAMP = "/opt/pyinfra-gpu/smoke/stamp.json"


def asked(words: list[str]) -> Options:
    """What the last word of a launcher's command line asks it for."""
    return Options(**json.loads(words[-1]))


def executed(host: FakeHost) -> tuple[GpuRun, list[str]]:
    """A run of the smoke stage on this host, and its commands."""
    run = GpuRun(host, FakeHost(name="ws2"), tasks=(smoke,)).prepare().execute()
    return run, run.executed("ws1")


def started(host: FakeHost) -> list[list[str]]:
    """The command line with which this host's run starts the smoke test, and what is around it."""
    return unwrapped(next(each for each in executed(host)[1] if "allreduce_mib" in each))


MODES: dict[str, tuple[FakeHost, str, int, int]] = {
    # name: (the host, mode, GPUs, ranks)
    "two GPUs": (GpuHost(data=TWO_GPUS, reported=NO_STAMP), "gpu", 2, 2),
    "four": (GpuHost(data={**TWO_GPUS, "gpu_count": 4}, reported=NO_STAMP), "gpu", 4, 4),
    "one": (GpuHost(data=ONE_GPU, reported=NO_STAMP), "gpu", 1, 1),
    "simulated GPUs": (
        GpuHost(data={**TWO_GPUS, "rehearsal": True}, reported=NO_STAMP),
        *("rehearsal-cpu", 0, 2),
    ),
    "no GPU": (FakeHost(reported=NO_STAMP), "rehearsal-cpu", 0, 2),
}


@pytest.mark.parametrize("name", MODES)
def test_the_hardware_that_is_declared_decides_the_mode(name: str) -> None:
    host, *wanted = MODES[name]
    found = asked(started(host)[-1])
    assert [found.mode, found.gpus, found.ranks] == wanted
    assert (found.compile, found.hosts) == (True, {})


@pytest.mark.parametrize(
    "host",
    [
        FakeHost(data={**FakeHost().data, "smoke_accept": "two-gpus"}, reported=NO_STAMP),
        GpuHost(data={**ONE_GPU, "smoke_accept": "two-gpus"}, reported=NO_STAMP),
        FakeHost(reported={**NO_STAMP, "torch.python": None}),
    ],
    ids=["no GPU, two must be proven", "one GPU, two must be proven", "no environment"],
)
def test_what_cannot_be_tested_is_refused_before_anything_runs(host: FakeHost) -> None:
    run, commands = executed(host)
    assert run.failed() == {"ws1"}
    assert commands == []


def test_what_programs_do_not_use_by_data_is_not_tested() -> None:
    off = {"environment_dynamo": False}
    assert not asked(started(FakeHost(data=off, reported=NO_STAMP))[-1]).compile


def test_root_limits_the_test_and_the_owner_waits_and_runs_in_it() -> None:
    host = FakeHost(data={**FakeHost().data, "owner": "trainer"}, reported=NO_STAMP)
    wrapper, waiting, _ = started(host)
    assert (wrapper[-5], wrapper[-4]) == ("group.sh", "trainer")
    assert wrapper[-2:] == ["1260", "127.0.0.0/9 ::1"]  # when all is ended, and who may connect
    assert waiting[3:6] == ["locked.sh", "/opt/pyinfra-gpu/.lock", "900"]


@pytest.mark.parametrize("data", [{"privilege": "none"}, {"smoke_limit_network": False}])
def test_without_root_or_by_data_the_test_is_left_to_itself(data: dict[str, object]) -> None:
    host = FakeHost(data={**FakeHost().data, **data}, reported=NO_STAMP)
    waiting, _ = started(host)
    assert waiting[3:6] == ["locked.sh", "/opt/pyinfra-gpu/.lock", "900"]


def stamp_of(host: FakeHost) -> dict[str, Any]:
    """The stamp that a test which passed on this very host has left."""
    return dict(json.loads(host.answer()["smoke.stamp"]))


TEXT = json.dumps(verdicts.document())
PASSED = {**stamp_of(FakeHost()), "verdict": hashlib.sha256(TEXT.encode()).hexdigest()}


@pytest.mark.parametrize(
    ("reported", "why"),
    [
        ({"smoke.verdict": TEXT}, ""),
        ({"smoke.verdict": f"{TEXT} "}, "the verdict of the test that passed was edited"),
        ({"smoke.verdict": None}, "the verdict of the test that passed was removed"),
        ({"smoke.stamp": None, "smoke.verdict": TEXT}, "the last test did not pass"),
        ({"smoke.stamp": None, "smoke.verdict": None}, "never passed here"),
        ({"smoke.stamp": json.dumps({**PASSED, "mode": "gpu"})}, "it passed as gpu"),
        ({"smoke.verdict": TEXT, "torch.touched": 12265}, "12265 files changed since"),
        ({"smoke.verdict": TEXT, "torch.git_version": "ab"}, "since it passed, changed: torch"),
    ],
)
def test_a_test_is_run_where_no_pass_stands_for_what_is_there(
    reported: dict[str, Any], why: str
) -> None:
    """An edited verdict: the page showed its figures, and the stamp beside it still counted."""
    verdict = {"smoke.verdict": TEXT, "smoke.stamp": json.dumps(PASSED)}
    host = FakeHost(reported={**verdict, **reported})
    assert bool(GpuRun(host, tasks=(smoke,)).prepare().changing("ws1")) is bool(why)
    assert why in "".join(each.found for each in drift.judge(host.spec(), host.record()))


@pytest.mark.parametrize("across", [False, True])
def test_a_host_that_has_only_booted_is_as_declared_and_is_tested_again(across: bool) -> None:
    """After a power cut `check` said "as declared" alone, and a plan gave another reason."""
    names = ("ws1", "ws2") if across else ("ws1",)
    data = {**FakeHost().data, "smoke_across_hosts": across or None}
    together = {"across": [f"@fake/{name}" for name in names] if across else []}
    hosts = []
    for name in names:
        before = FakeHost(name=name, data=data)
        stamp = json.dumps({**stamp_of(before), **together})
        booted = {"smoke.stamp": stamp, "system.boot_id": "another"}
        hosts.append(FakeHost(name=name, data=data, reported=booted))
    said = "the host has booted since the smoke test passed; `train start` refuses until one passes"
    answer = checked(*hosts)["ws1"]
    assert (answer.verdict, answer.deviations) == ("declared", ())
    assert answer.notes[0] == f"{said}; next deploy: run the smoke test, 2 ranks"
    assert len(answer.notes) == (2 if across else 1)
    run, book = FakeRun(*hosts), Journal(lambda state, book: None)
    run.state.add_callback_handler(book)  # type: ignore[no-untyped-call]
    with ctx_state.use(run.state):
        assert len(run.prepare().changing("ws1")) == (2 if across else 1)
        assert book.entry("@fake/ws1", "smoke").found[0] == said


def test_a_test_that_leaves_nothing_new_is_not_believed() -> None:
    """The host's stamp and verdict are good, and stay as they were: the test has not run."""
    text = json.dumps(verdicts.document(fingerprint=stamp_of(FakeHost())["fingerprint"]))
    host = FakeHost(data={**FakeHost().data, "smoke": "always"}, reported={"smoke.verdict": text})
    assert executed(host)[0].failed() == {"ws1"}


def test_root_takes_the_stamp_back_before_the_test_and_the_test_is_told_of_none() -> None:
    """What is cut off leaves no pass behind; and what the owner runs cannot write one."""
    _, commands = executed(FakeHost(data={**FakeHost().data, "smoke": "always"}))
    (removed,) = [n for n, each in enumerate(commands) if f"rm -f -- {STAMP}" in each]
    (test,) = [n for n, each in enumerate(commands) if "allreduce_mib" in each]
    assert removed < test
    assert "stamp" not in commands[test]
    assert asked(unwrapped(commands[test])[-1]).output == "/opt/pyinfra-gpu/state/verdict.json"


@pytest.mark.parametrize(
    ("source", "former", "says"),
    [
        ("nvidia", "580.82.07", "deploy with --data driver_version=580.82.07"),
        ("nvidia", VERSION, ""),
        ("nvidia", None, ""),
        ("present", "580.82.07", ""),
    ],
)
def test_a_failure_names_the_driver_that_passed_last(
    source: str, former: str | None, says: str
) -> None:
    host = GpuHost(data={**GpuHost().data, "driver_source": source})
    assert operations._way_back(host.spec(), host.record(), former).endswith(says)
    assert bool(operations._way_back(host.spec(), host.record(), former)) is bool(says)


@pytest.mark.parametrize("status", ["pass", "warn", "fail"])
def test_the_stamp_of_a_pass_has_what_the_next_run_compares(
    status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fingerprint = stamp_of(FakeHost())["fingerprint"]
    failed = verdicts.failed("S4.x", "y") if status == "fail" else None
    text = json.dumps(verdicts.document(status=status, failed=failed, fingerprint=fingerprint))
    host, files = FakeHost(reported={**NO_STAMP, "smoke.verdict": text}), list[File]()
    name: Any = SimpleNamespace(name="ws1", log=lambda *_, **__: None)
    monkeypatch.setattr(operations, "forget", lambda: None)
    monkeypatch.setattr(operations, "look", lambda spec: host.record())
    monkeypatch.setattr(operations, "written", lambda *given: not files.append(given[3]))
    monkeypatch.setattr(operations, "failed", lambda *given: False)
    monkeypatch.setattr(operations, "journal", SimpleNamespace(verdict=lambda each: None))
    passed = operations._check_verdict(name, name, host.spec(), None, None)
    assert passed == (status != "fail")
    assert len(files) == (status != "fail")
    for file in files:
        digest = hashlib.sha256(text.encode()).hexdigest()
        assert (file.path, file.mode, file.owner) == (STAMP, "0644", None)
        found = Stamp.read(file.content.decode())
        assert found == Stamp(fingerprint, "rehearsal-cpu", digest)
