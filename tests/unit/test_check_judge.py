"""From the judgement of each stage to a verdict and an exit code: no false alarm, no false calm."""

from __future__ import annotations

from typing import Any

import pytest
import verdicts
from check_reports import NOTE, REPAIR, REPORT, RESTART, SMOKE_OWED, STOP, UPGRADE, host, stage

from pyinfra_gpu.drift.host import StageJudgement
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.report.check.answer import EXIT_CODES, Answer, Verdict, verdict_of

HUNG = stage("cuda", unread=("it hung", "x"))
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
    "unreadable beside a restart": ((RESTART, HUNG), "unknown"),
    "unreadable beside drift": ((stage("libcuda", REPAIR), HUNG), "unknown"),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_each_state_has_its_verdict(name: str) -> None:
    stages, verdict = VERDICTS[name]
    answer = host("gpu1", *stages)
    assert answer.verdict == verdict
    assert bool(answer.deviations) or verdict == "declared"
    assert answer.reason == ("it hung; x" if verdict == "unknown" else None)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([], 1),
        (["declared", "declared"], 0),
        (["declared", "restart"], 3),
        (["restart", "drift", "declared"], 2),
        (["drift", "unknown", "restart"], 1),
    ],
)
def test_of_several_hosts_the_worst_decides_by_the_codes_of_the_readme(
    found: list[Verdict], expected: int
) -> None:
    assert EXIT_CODES == {"declared": 0, "unknown": 1, "drift": 2, "restart": 3}
    stages = {"declared": (), "restart": (RESTART,), "drift": (SMOKE_OWED,), "unknown": (HUNG,)}
    hosts = tuple(host(str(number), *stages[each]) for number, each in enumerate(found))
    told: dict[str, Any] = {"inventory": "x", "checked": "", "seconds": 1, "hosts": hosts}
    assert Answer(**told).exit_code == expected
    assert Answer(**told, reasons=("the inventory broke off",)).exit_code == 1


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


def test_the_test_that_a_restart_owes_is_its_consequence_and_a_note_stays_a_note() -> None:
    answer = host("gpu1", RESTART, SMOKE_OWED)
    assert {each.effect for each in answer.findings} == {"restart"}
    assert [*map(verdict_of, answer.stages)] == ["restart", "restart"]
    noted = host("gpu1", RESTART, stage("smoke", NOTE))
    assert [each.effect for each in noted.findings] == ["restart", "note"]
    assert len(noted.deviations) == 1
    assert "smoke.proof-before-boot is wrong" in noted.notes[0]


def test_the_stages_behind_the_one_at_which_the_run_stops_are_named() -> None:
    """They counted for nothing: "2 deviations", and four others when those were repaired."""
    stopped = host("gpu1", stage("preflight", STOP), RESTART)
    assert stopped.findings[0].next_run == "stops here: check seating and power"
    assert stopped.not_checked[:2] == ("packages", "layout")
    assert stopped.as_json()["not_checked"] == [*stopped.not_checked]
    assert "smoke" in host("gpu1", HUNG).not_checked
    assert host("gpu1", stage("libcuda", REPAIR)).not_checked == ()


@pytest.mark.parametrize(
    ("users", "reason"),
    [
        ([], "None"),
        ({"unknown": "no /proc"}, "None"),
        (["pid 812 (python3)"], "the GPUs are in use by pid 812 (python3)"),
        ([f"pid {i}" for i in range(9)], "in use by pid 0, pid 1, pid 2, pid 3 and 5 more"),
    ],
)
def test_who_keeps_a_host_from_its_restart_is_named(users: object, reason: str) -> None:
    assert reason in str(host("gpu1", RESTART, facts={"gpu_users": users}).reason)
    assert host("gpu1", facts={"gpu_users": users}).reason is None


@pytest.mark.parametrize(
    ("stages", "current"),
    [((stage("smoke"),), True), ((SMOKE_OWED,), False), ((stage("preflight", STOP),), False)],
)
def test_the_smoke_test_says_whether_it_stands_for_what_is_installed(
    stages: tuple[StageJudgement, ...], current: bool
) -> None:
    whole = verdicts.document()
    verdict = {key: whole[key] for key in ("status", "mode", "proof", "finished")}
    told = host("gpu1", *stages, smoke=verdicts.explained(whole)).as_json()["smoke"]
    assert told == {**verdict, "current": current}


def test_a_verdict_that_cannot_be_read_is_unknown_with_its_reason() -> None:
    told = host("gpu1", smoke=Unknown("it is longer than 64 KiB")).as_json()
    assert told["smoke"] == {"unknown": "it is longer than 64 KiB"}
    assert host("gpu1").as_json()["smoke"] is None
