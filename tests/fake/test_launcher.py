"""The launcher of runs: installed by one operation, and what a run uses is left alone."""

from __future__ import annotations

import pytest
from fake_host import DATA, FakeHost, FakeRun, entry
from gpu_host import DRIVER_PACKAGES, LIB, GpuHost, GpuRun

from pyinfra_gpu.engine import journal
from pyinfra_gpu.stages import host as drift
from pyinfra_gpu.stages.finding import Effect, Id
from pyinfra_gpu.stages.launcher import findings as launcher
from pyinfra_gpu.stages.smoke import findings as smoke
from tasks.stages import driver, preflight

PREFIX = "/opt/pyinfra-gpu"
INSTALL = "Training | Install the train launcher"
RUN = "20261122-200000-tiny"
ON = {"launcher.runs": [RUN]}
PRESETS = {"tiny": {"file": "train.py"}}

DEVIATIONS: dict[str, FakeHost] = {
    "the program is missing": FakeHost(entries={f"{PREFIX}/bin/train": None}),
    "the program is the owner's": FakeHost(
        entries={f"{PREFIX}/bin/train": entry("file", "0755", "ubuntu")}
    ),
    "linger is off": FakeHost(reported={"launcher.linger": False}),
    "the user manager is not on": FakeHost(reported={"launcher.manager": False}),
}


@pytest.mark.parametrize("deviation", DEVIATIONS)
def test_a_deviation_of_the_launcher_makes_its_own_operation_act(deviation: str) -> None:
    assert FakeRun(DEVIATIONS[deviation]).prepare().changing("ws1") == [INSTALL]


def test_other_presets_are_another_site() -> None:
    usual = FakeHost().spec()
    site = usual.paths.train_site
    before = FakeHost()._layout(usual)[site]
    host = FakeHost(data={**DATA, "training_presets": PRESETS}, entries={site: before})
    assert FakeRun(host).prepare().changing("ws1") == [INSTALL]
    (found,) = launcher.judge(host.spec(), host.record())
    assert (found.found, found.action) == ("site.json not as declared", "write site.json")


def effects(host: FakeHost) -> dict[Id, Effect]:
    record = host.record()
    return {
        each.id: each.effect
        for stage in drift.judge(host.spec(), record)
        for each in stage.findings
    }


TRAINING = [name for name in DATA if name.startswith("training_")]


@pytest.mark.parametrize("trains", [True, False])
def test_a_note_of_a_test_that_is_owed_says_that_a_start_needs_it(trains: bool) -> None:
    """`check` said "as declared" where `train start` refused; it is no drift all the same."""
    training = {} if trains else dict.fromkeys(TRAINING)
    for changes in (
        {"data": {**DATA, **training, "smoke": "skip"}},
        {"data": {**DATA, **training}, "reported": {"system.boot_id": "another-boot"}},
    ):
        host = FakeHost(**changes)
        stamped = FakeHost(data=changes["data"]).answer()
        host.reported = {**host.reported, "smoke.stamp": stamped["smoke.stamp"]}
        (owed,) = smoke.judge(host.spec(), host.record())
        assert owed.effect == "note"
        assert ("; `train start` refuses until" in owed.found) is trains


# What differs -> whether it waits for the run.
WAITS = {
    "another commit": (FakeHost(reported={"training.commit": "f" * 40, **ON}), True),
    "other dependencies": (
        FakeHost(
            reported={
                "training.stamp_text": '{"requirements_sha256": "0", "distributions": {}}',
                **ON,
            }
        ),
        True,
    ),
    "no proof": (FakeHost(reported={"smoke.stamp": None, **ON}), True),
    "the launcher": (FakeHost(entries={f"{PREFIX}/bin/train": None}, reported=ON), False),
}


@pytest.mark.parametrize("what", WAITS)
def test_what_a_run_uses_waits_for_it_and_the_rest_is_done(what: str) -> None:
    host, waits = WAITS[what]
    run = FakeRun(host).prepare()
    assert (run.changing("ws1") == []) is waits
    found = effects(host)
    assert found.pop(Id.TRAINING_RUN_ON) == "note"
    assert set(found.values()) == ({"report"} if waits else {"repair"})
    reported = f"waits for run {RUN}, which uses it: run again when that has ended"
    stages = drift.judge(host.spec(), host.record())
    assert waits == any(each.action == reported for stage in stages for each in stage.findings)


def test_where_nobody_can_tell_whether_a_run_is_on_nothing_that_it_uses_is_touched() -> None:
    silent = {"launcher.runs": "?it did not answer in time"}
    host = FakeHost(reported={"torch.uv": "0.1.0", **silent})
    run = FakeRun(host).prepare()
    assert run.failed() == {"ws1"}
    assert "PyTorch | Install torch" not in run.changing("ws1")


# -- the driver of a host whose GPUs a run uses

NEWER = "580.105.08"
UPDATED = {"driver.loaded": "580.95.05", "driver.on_disk": NEWER}


def gpu_host(runs: list[str]) -> GpuHost:
    """A host whose driver was updated under the loaded module, with a job on its GPUs."""
    packages = [f"{name} {NEWER}-1 1 1" for name in DRIVER_PACKAGES]
    kept = ["cuda-toolkit-13-0 13.0.3-1 0 1", "cuda-nvcc-13-0 13.0.88-1 0 1"]
    return GpuHost(
        reported={
            **UPDATED,
            "driver.libcuda": f"{LIB}/libcuda.so.{NEWER}",
            "driver.users": ["pid 712 (python)"],
            "launcher.runs": runs,
            "nvidia.packages": [*packages, *kept],
        },
    )


def test_a_driver_update_waits_for_the_run_and_stops_nothing() -> None:
    tasks = (preflight, driver)
    stopped = GpuRun(gpu_host([]), tasks=tasks).prepare()
    assert stopped.failed() == {"ws1"}
    waiting = GpuRun(gpu_host([RUN]), tasks=tasks).prepare()
    assert waiting.failed() == set()
    assert waiting.changing("ws1") == []
    found = effects(gpu_host([RUN]))
    assert found[Id.DRIVER_MODULE_DIFFERS] == "report"


def test_what_waits_for_a_run_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a finding of preflight's too, and a warning beside the note that names the run."""
    warned: list[tuple[str, str]] = []
    monkeypatch.setattr(journal, "warn", lambda *words: warned.append(words))
    host = gpu_host([RUN])
    host.reported["nvidia.packages"][0] = f"{DRIVER_PACKAGES[0]} 580.95.05-1 1 1"
    assert next(iter(effects(host))) is Id.DRIVER_VERSION_DIFFERS
    GpuRun(host, tasks=(preflight, driver)).prepare()
    assert warned == []
