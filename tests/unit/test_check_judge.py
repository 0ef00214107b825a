"""From what a dry run reported to a verdict and an exit code: no false alarm, no false calm."""

from __future__ import annotations

from typing import Any

import pytest
from check_reports import (
    RESTART,
    SMOKE_OWED,
    UNREACHABLE,
    UPGRADE,
    deviating,
    deviation,
    host,
    stage,
)

from pyinfra_gpu.report.check.answer import EXIT_CODES, Answer, HostAnswer, Verdict, worst
from pyinfra_gpu.report.check.judge import judge

REFUSED = "gpu1: gpu_count = 2 is declared and 1 NVIDIA GPUs are on the PCI bus"
NOTE = deviation("smoke.proof-before-boot", "note")
REPAIR = deviation("libcuda.dangling")
REPORT = deviation("cuda.nvcc-shadowed", "report", command="dpkg -S /opt/bin/nvcc")
UNPROVEN = deviating("smoke", deviation("smoke.unproven"))
BUSY = "gpu1: a reboot is owed, and pid 812 (python3) uses a GPU: run again when it is done"

VERDICTS: dict[str, tuple[dict[str, Any], Verdict]] = {
    "as declared": (host(), "declared"),
    "a stage with nothing to do": (host(stage("driver", found=[])), "declared"),
    "only a warning": (host(stage("smoke", warnings=["gpu1: nothing is proven"])), "declared"),
    "only a note": (host(deviating("smoke", NOTE, changed=[NOTE["action"]])), "declared"),
    "a deviation to repair": (host(deviating("libcuda", REPAIR)), "drift"),
    "a deviation that is left alone": (host(deviating("cuda", REPORT)), "drift"),
    "a change without a deviation": (host(stage("layout", changed=["7 directories"])), "drift"),
    "a smoke test that is owed alone": (host(UNPROVEN), "drift"),
    "refused before anything": (host(stage("preflight", problem=REFUSED)), "drift"),
    "refused beside a note": (host(deviating("smoke", NOTE, problem=REFUSED)), "drift"),
    "a restart": (host(RESTART), "restart"),
    "a restart and the test it owes": (host(RESTART, UNPROVEN), "restart"),
    "the same without a deviation of its own": (host(RESTART, SMOKE_OWED), "restart"),
    "a restart and a note": (host(RESTART, deviating("smoke", NOTE)), "restart"),
    "a restart and a repair": (host(RESTART, deviating("libcuda", REPAIR)), "drift"),
    "a restart, a repair and a test": (
        host(RESTART, deviating("libcuda", REPAIR), UNPROVEN),
        "drift",
    ),
    "a restart and something left alone": (host(RESTART, deviating("cuda", REPORT)), "drift"),
    "a restart that waits for an idle host": (
        host(stage("preflight"), RESTART | {"problem": BUSY}),
        "restart",
    ),
    "unreachable": (UNREACHABLE, "unknown"),
    "no stage at all": (host() | {"stages": []}, "unknown"),
    "broken off": (host(complete=False), "unknown"),
    "broken off, with drift": (host(deviating("libcuda", REPAIR), complete=False), "unknown"),
    "unreadable": (host(stage("preflight", problem="x", unreadable=True)), "unknown"),
    "unreadable beside a restart": (
        host(RESTART, stage("libcuda", problem="cannot tell", unreadable=True)),
        "unknown",
    ),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_each_state_has_its_verdict(name: str) -> None:
    report, verdict = VERDICTS[name]
    answer = judge("gpu1", report)
    assert answer.verdict == verdict
    assert bool(answer.deviations) or verdict in ("declared", "unknown")
    assert (answer.reason is not None) or verdict != "unknown"


def test_the_exit_codes_are_those_the_readme_promises() -> None:
    assert EXIT_CODES == {"declared": 0, "unknown": 1, "drift": 2, "restart": 3}


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], 1),
        (["declared"], 0),
        (["declared", "declared"], 0),
        (["declared", "restart"], 3),
        (["drift", "restart"], 2),
        (["restart", "drift", "declared"], 2),
        (["unknown", "drift", "restart", "declared"], 1),
        (["restart", "unknown"], 1),
    ],
)
def test_of_several_hosts_the_worst_decides(verdicts: list[Verdict], expected: int) -> None:
    hosts = tuple(HostAnswer(name=str(i), verdict=each) for i, each in enumerate(verdicts))
    answer = Answer(inventory="x", checked="2026-11-21T11:00:00Z", seconds=1, hosts=hosts)
    assert answer.exit_code == expected
    assert EXIT_CODES[worst(verdicts)] == expected


def test_what_could_not_be_told_of_the_whole_beats_every_host() -> None:
    healthy = (HostAnswer(name="gpu1", verdict="declared"),)
    answer = Answer(inventory="x", checked="", seconds=1, hosts=healthy, reasons=("broke off",))
    assert answer.exit_code == 1


def test_a_deviation_is_told_whole_with_its_history() -> None:
    (found,) = judge("gpu1", host(RESTART)).as_json()["deviations"]
    assert found == {
        "id": "driver.module-differs",
        "found": "driver.module-differs is wrong",
        "expected": "driver.module-differs is right",
        "effect": "restart",
        "action": "mends driver.module-differs",
        "command": None,
        "since": UPGRADE,
    }


def test_the_test_that_a_restart_owes_is_told_as_its_consequence() -> None:
    answer = judge("gpu1", host(RESTART, UNPROVEN))
    assert {each.effect for each in answer.findings} == {"restart"}
    assert [each.verdict for each in answer.stages] == ["restart", "restart"]


def test_a_note_stays_a_note_beside_a_restart() -> None:
    answer = judge("gpu1", host(RESTART, deviating("smoke", NOTE)))
    assert [each.effect for each in answer.findings] == ["restart", "note"]
    assert len(answer.deviations) == 1
    assert "smoke.proof-before-boot is wrong" in answer.notes[0]


def test_a_change_without_a_deviation_gets_one_by_the_stages_name() -> None:
    report = host(stage("environment", found=["training.env differs"], changed=["training.env"]))
    (found,) = judge("gpu1", report).findings
    assert (found.id, found.found, found.action, found.effect) == (
        "environment.differs",
        "training.env differs",
        "changes: training.env",
        "repair",
    )


def test_a_deviations_own_action_is_not_told_twice() -> None:
    mixed = deviating("cuda", REPAIR)
    assert [each.id for each in judge("gpu1", host(mixed)).findings] == ["libcuda.dangling"]
    mixed["changed"].append("g++")
    ids = [each.id for each in judge("gpu1", host(mixed)).findings]
    assert ids == ["libcuda.dangling", "cuda.differs"]


def test_a_refusal_is_told_without_the_name_that_stands_above_it() -> None:
    (found,) = judge("gpu1", host(stage("preflight", problem=REFUSED))).findings
    assert found.id == "preflight.refused"
    assert found.found.startswith("gpu_count = 2 is declared")


def test_a_refusal_beside_deviations_is_told_as_the_reason() -> None:
    answer = judge("gpu1", host(RESTART | {"problem": BUSY}))
    assert [each.id for each in answer.findings] == ["driver.module-differs"]
    assert answer.reason == BUSY.removeprefix("gpu1: ")


@pytest.mark.parametrize(
    ("users", "reason"),
    [
        ([], None),
        ({"unknown": "no /proc"}, None),
        (["pid 812 (python3)"], "the GPUs are in use by pid 812 (python3)"),
        ([f"pid {i}" for i in range(9)], "in use by pid 0, pid 1, pid 2, pid 3 and 5 more"),
    ],
)
def test_who_keeps_a_host_from_its_restart_is_named(users: object, reason: str | None) -> None:
    told = judge("gpu1", host(RESTART, facts={"gpu_users": users})).reason
    assert told == reason if reason is None else reason in str(told)
    assert judge("gpu1", host(facts={"gpu_users": users})).reason is None


def test_a_warning_that_repeats_a_deviation_is_left_out_and_others_stay() -> None:
    repeated = f"gpu1: {REPORT['found']}; expected {REPORT['expected']}: {REPORT['action']}"
    report = host(deviating("cuda", REPORT, warnings=[repeated, "gpu1: the old venv is kept"]))
    assert judge("gpu1", report).notes == ("the old venv is kept",)


def test_why_a_host_was_not_reached_is_taken_from_what_pyinfra_printed() -> None:
    answer = judge("gpu1", UNREACHABLE, ["Unable to connect to port 22 on 192.0.2.1"])
    assert answer.reason == "could not be reached: Unable to connect to port 22 on 192.0.2.1"
    assert judge("gpu1", UNREACHABLE).reason == "could not be reached: pyinfra did not say why"


def test_why_a_host_was_not_readable_replaces_the_pointer_to_what_stands_above() -> None:
    problem = "gpu1: could not be looked at (the error stands above): check sudo"
    report = host(stage("preflight", problem=problem, unreadable=True))
    said = ["Connected", "sudo: a password is required", problem, "Ready: deploy.py"]
    answer = judge("gpu1", report, said)
    assert answer.reason == "could not be looked at (sudo: a password is required): check sudo"


@pytest.mark.parametrize("good", [True, False])
def test_the_smoke_test_says_whether_it_stands_for_what_is_installed(good: bool) -> None:
    verdict = {"status": "pass", "mode": "rehearsal-cpu", "proof": False, "finished": "then"}
    report = host(smoke=verdict) if good else host(last_smoke=verdict)
    assert judge("gpu1", report).as_json()["smoke"] == {**verdict, "current": good}


DAMAGED: list[object] = [
    [],
    "text",
    7,
    {},
    host() | {"stages": None},
    host() | {"stages": "driver"},
    host() | {"stages": [{}]},
    host() | {"stages": [None]},
    host() | {"history": [{}]},
    host() | {"history": 7},
    host() | {"facts": 7},
    host(stage("driver", found=None)),
    host(stage("driver", changed=7)),
    host(stage("driver", deviations=[{}])),
    host(stage("driver", deviations=[deviation("driver.x", "explode")])),
    host(stage("driver", deviations=[deviation("driver.x", since={"by": "x"})])),
    {key: value for key, value in host().items() if key != "status"},
    {key: value for key, value in host().items() if key != "complete"},
]


@pytest.mark.parametrize("damaged", DAMAGED, ids=[str(number) for number in range(len(DAMAGED))])
def test_a_damaged_report_is_never_as_declared(damaged: object) -> None:
    answer = judge("gpu1", damaged)
    assert answer.verdict == "unknown"
    assert answer.reason
