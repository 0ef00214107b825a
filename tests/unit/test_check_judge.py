"""From the judgement of each stage to a verdict and an exit code: no false alarm, no false calm."""

from __future__ import annotations

import pytest
import verdicts
from check_reports import (
    NOTE,
    REPAIR,
    REPORT,
    RESTART,
    SMOKE_OWED,
    STOP,
    UPGRADE,
    host,
    stage,
)

from pyinfra_gpu.drift.host import StageJudgement
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.report.check.answer import EXIT_CODES, Answer, HostAnswer, Verdict, worst

VERDICTS: dict[str, tuple[tuple[StageJudgement, ...], Verdict]] = {
    "as declared": ((), "declared"),
    "a stage with nothing to do": ((stage("driver", found=""),), "declared"),
    "only a note": ((stage("smoke", NOTE),), "declared"),
    "a finding to repair": ((stage("libcuda", REPAIR),), "drift"),
    "a finding that is left alone": ((stage("cuda", REPORT),), "drift"),
    "a smoke test that is owed alone": ((SMOKE_OWED,), "drift"),
    "refused before anything": ((stage("preflight", STOP),), "drift"),
    "refused beside a note": ((stage("smoke", NOTE, STOP),), "drift"),
    "a restart": ((RESTART,), "restart"),
    "a restart and the test it owes": ((RESTART, SMOKE_OWED), "restart"),
    "a restart and a note": ((RESTART, stage("smoke", NOTE)), "restart"),
    "a restart and a repair": ((RESTART, stage("libcuda", REPAIR)), "drift"),
    "a restart, a repair and a test": ((RESTART, stage("libcuda", REPAIR), SMOKE_OWED), "drift"),
    "a restart and something left alone": ((RESTART, stage("cuda", REPORT)), "drift"),
    "a restart and a refusal": ((stage("preflight", STOP), RESTART), "drift"),
    "unreadable": ((stage("preflight", unread=("no /proc",)),), "unknown"),
    "unreadable beside a restart": ((RESTART, stage("libcuda", unread=("x",))), "unknown"),
    "unreadable beside drift": (
        (stage("libcuda", REPAIR), stage("cuda", unread=("x",))),
        "unknown",
    ),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_each_state_has_its_verdict(name: str) -> None:
    stages, verdict = VERDICTS[name]
    answer = host("gpu1", *stages)
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


def test_a_finding_is_told_whole_with_its_history() -> None:
    (found,) = host("gpu1", RESTART).as_json()["deviations"]
    assert found == {
        "id": "driver.module-differs",
        "found": "driver.module-differs is wrong",
        "expected": "driver.module-differs is right",
        "effect": "restart",
        "action": "repairs driver.module-differs",
        "command": None,
        "since": {
            "when": UPGRADE.when,
            "by": "/usr/bin/unattended-upgrade",
            "change": "libcuda1 580.95.05-1 -> 580.105.08-1",
        },
    }


def test_the_test_that_a_restart_owes_is_told_as_its_consequence() -> None:
    answer = host("gpu1", RESTART, SMOKE_OWED)
    assert {each.effect for each in answer.findings} == {"restart"}
    assert [each.verdict for each in answer.stages] == ["restart", "restart"]


def test_a_note_stays_a_note_beside_a_restart() -> None:
    answer = host("gpu1", RESTART, stage("smoke", NOTE))
    assert [each.effect for each in answer.findings] == ["restart", "note"]
    assert len(answer.deviations) == 1
    assert "smoke.proof-before-boot is wrong" in answer.notes[0]


def test_what_the_run_stops_at_says_so() -> None:
    (found,) = host("gpu1", stage("preflight", STOP)).findings
    assert found.next_run == "stops here: check seating and power"


def test_the_stages_behind_the_one_at_which_the_run_stops_are_named() -> None:
    """They counted for nothing: "2 deviations", and four others when those were repaired."""
    stopped = host("gpu1", stage("preflight", STOP), RESTART)
    assert stopped.not_checked[:2] == ("packages", "layout")
    assert stopped.as_json()["not_checked"] == [*stopped.not_checked]
    assert "smoke" in host("gpu1", stage("driver", unread=("it hung",))).not_checked
    assert host("gpu1", stage("libcuda", REPAIR)).not_checked == ()


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
    told = host("gpu1", RESTART, facts={"gpu_users": users}).reason
    assert told == reason if reason is None else reason in str(told)
    assert host("gpu1", facts={"gpu_users": users}).reason is None


def test_what_could_not_be_read_is_the_reason() -> None:
    answer = host("gpu1", stage("driver", unread=("cannot tell what is there: it hung", "x")))
    assert answer.reason == "cannot tell what is there: it hung; x"


@pytest.mark.parametrize("stages", [(stage("smoke"),), (SMOKE_OWED,)])
def test_the_smoke_test_says_whether_it_stands_for_what_is_installed(
    stages: tuple[StageJudgement, ...],
) -> None:
    whole = verdicts.document()
    verdict = {key: whole[key] for key in ("status", "mode", "proof", "finished")}
    told = host("gpu1", *stages, smoke=verdicts.explained(whole)).as_json()["smoke"]
    assert told == {**verdict, "current": not stages[0].findings}


def test_a_verdict_that_cannot_be_read_is_unknown_with_its_reason() -> None:
    told = host("gpu1", smoke=Unknown("it is longer than 64 KiB")).as_json()
    assert told["smoke"] == {"unknown": "it is longer than 64 KiB"}
    assert host("gpu1").as_json()["smoke"] is None


def test_a_host_that_was_refused_before_its_smoke_stage_has_no_current_test() -> None:
    smoke = verdicts.explained(verdicts.document())
    told = host("gpu1", stage("preflight", STOP), smoke=smoke).as_json()["smoke"]
    assert told is not None
    assert told["current"] is False
