"""One host, two, 25 and 100 on a screen of 80 columns: worst first, and nothing said twice."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import verdicts
from check_reports import NOTE, REPAIR, RESTART, SMOKE_OWED, UPGRADE, finding, host, stage
from check_reports import unreachable as gone

from pyinfra_gpu.drift.finding import Id
from pyinfra_gpu.host_names import brief, natural
from pyinfra_gpu.report.check.answer import Answer, HostAnswer
from pyinfra_gpu.report.check.render import render as check
from pyinfra_gpu.report.table import render as table

SCREEN, WIDTH = 24, 80
LAB = [f"ws{number}.lab.example" for number in range(1, 101)]
sizes = pytest.mark.parametrize("size", [1, 2, 25, 100])


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["gpu1"], "gpu1"),
        (["gpu2", "gpu1"], "gpu1, gpu2"),
        (["gpu10", "gpu9", "gpu8", "gpu2"], "gpu2, gpu8-gpu10"),
        (["gpu08", "gpu09", "gpu10"], "gpu08-gpu10"),
        (["gpu8", "gpu09", "gpu10"], "gpu8, gpu09, gpu10"),
        (["rack1-gpu9", "rack1-gpu10", "rack1-gpu11"], "rack1-gpu9 to rack1-gpu11"),
        (LAB[:20], "ws1.lab.example to ws20.lab.example"),
        (["10.0.0.9", "10.0.0.10", "10.0.0.11", "10.0.1.11"], "10.0.0.9 to 10.0.0.11, 10.0.1.11"),
        (["a1b1", "a1b2", "a2b2"], "a1b1, a1b2, a2b2"),
        (["a", "b", "c"], "a, b, c"),
        (["n\u00b2", "n1", "n" + "9" * 5000], None),
        ([], ""),
    ],
)
def test_names_are_natural_ranges(names: list[str], words: str | None) -> None:
    shuffled = random.Random(7).sample(names, len(names))
    told = brief(shuffled)
    assert all(name in told for name in names) if words is None else told == words


def test_gpu2_comes_before_gpu10() -> None:
    assert sorted(["gpu10", "gpu2", "b", "gpu1"], key=natural) == ["b", "gpu1", "gpu2", "gpu10"]


# What `check` prints.


def answer(*hosts: HostAnswer, **changes: Any) -> Answer:
    return Answer(inventory="x", checked="a day", seconds=3.2, hosts=hosts, **changes)


@sizes
def test_hosts_with_the_same_answer_are_one_line_of_check(size: int) -> None:
    lines = check(answer(*(host(name) for name in LAB[:size]))).splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= WIDTH
    assert (
        lines[0]
        == {
            1: "ws1.lab.example  as declared",
            2: "2 hosts as declared: ws1.lab.example, ws2.lab.example",
            25: "25 hosts as declared: ws1.lab.example to ws25.lab.example",
            100: "100 hosts as declared: ws1.lab.example to ws100.lab.example",
        }[size]
    )


def test_the_worst_hosts_are_on_top_and_in_natural_order() -> None:
    hosts = [
        *(host(f"gpu{number}") for number in (10, 3, 2)),
        host("gpu4", RESTART, SMOKE_OWED),
        *(host(f"gpu{number}", stage("libcuda", REPAIR)) for number in (20, 1)),
        gone("gpu7"),
    ]
    text = check(answer(*hosts))
    heads = [line for line in text.splitlines() if line.startswith(("gpu", "2 ", "3 "))]
    assert heads == [
        "gpu7  COULD NOT TELL",
        "2 hosts DRIFT, 1 deviation: gpu1, gpu20",
        "gpu4  RESTART OWED, 2 deviations",
        "3 hosts as declared: gpu2, gpu3, gpu10",
    ]
    assert text.count("libcuda.dangling is wrong") == 1


def test_a_note_that_many_hosts_share_is_said_once_with_its_hosts() -> None:
    noted = stage("smoke", NOTE)
    hosts = [host(f"gpu{number}", noted) for number in range(1, 21)]
    hosts += [host(f"gpu{number}") for number in range(21, 26)]
    text = " ".join(check(answer(*hosts)).split())
    assert "25 hosts as declared: gpu1-gpu25" in text
    assert text.count(NOTE.found) == 1
    assert f"note, gpu1-gpu20: {NOTE.found}" in text
    alone = check(answer(host("gpu1", noted), host("gpu2", stage("libcuda", REPAIR))))
    assert f"gpu1  as declared\n  note        {NOTE.found}" in alone


def test_the_same_upgrade_at_other_moments_is_one_finding_with_both_moments() -> None:
    def upgraded(when: str) -> Any:
        change = replace(UPGRADE, when=when)
        return stage("driver", finding(Id.DRIVER_MODULE_DIFFERS, "restart", since=change))

    times = ["2026-11-21T06:12:03", "2026-11-21T06:40:03", "2026-11-21T06:15:03"]
    hosts = [host(f"gpu{number}", upgraded(when)) for number, when in enumerate(times)]
    text = " ".join(check(answer(*hosts)).split())
    assert "3 hosts RESTART OWED, 1 deviation: gpu0-gpu2" in text
    assert "since 2026-11-21 06:12 to 2026-11-21 06:40: libcuda1" in text


def test_with_v_each_host_stands_by_itself_with_its_stages() -> None:
    hosts = [host(name, stage("driver", found="driver 580 loaded")) for name in ("b", "a")]
    lines = check(answer(*hosts), whole=True).splitlines()
    assert lines[:4] == ["a  as declared", "  driver      driver 580 loaded", "", "b  as declared"]


def test_a_name_is_never_cut() -> None:
    long = f"{'workstation-' * 7}1.physics.example.org"
    for text in (check(answer(host(long), gone("b"))), table(run({long: same()}))):
        assert long in text


# What a run prints.


def row(name: str = "driver", **changes: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {
        "found": ["driver 580.95.05 loaded"], "changed": [], "warnings": [], "deviations": [],
        "problem": None, "unreadable": False, "seconds": 0.1,
    }  # fmt: skip
    return {"stage": name, **empty, **changes}


def same(*stages: dict[str, Any], status: str = "as declared") -> dict[str, Any]:
    return {"status": status, "rehearsal": False, "stages": [row("preflight"), *stages]}


def run(hosts: dict[str, Any], *, dry: bool = False) -> dict[str, Any]:
    return {"dry": dry, "hosts": hosts}


@sizes
def test_hosts_with_nothing_to_do_are_one_line_of_a_run(size: int) -> None:
    lines = table(run({name: same(row()) for name in LAB[:size]})).splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= WIDTH
    assert "ws1.lab.example" in lines[0]
    assert lines[-1] == f"{size} host{'s' if size > 1 else ''}: {size} as declared"
    shown = table(run({name: same(row()) for name in LAB[:size]}), whole=True)
    assert "driver      driver 580.95.05 loaded" in shown


def test_hosts_to_which_the_same_happened_have_their_rows_once() -> None:
    changed = row("cuda", found=["no toolkit"], changed=["install it"], seconds=7.0)
    slow = {**changed, "seconds": 70.0}
    problem = row("driver", found=["nouveau"], problem="gpu3: it is in use")
    hosts = {
        "gpu10": same(changed, status="changed"),
        "gpu2": same(slow, status="changed"),
        "gpu1": same(),
        "gpu3": same(problem, status="failed"),
        "gpu4": {**same(), "status": "unreachable", "stages": []},
    }
    lines = table(run(hosts)).splitlines()
    assert [line for line in lines[2:] if line.startswith(("gpu", "2 "))] == [
        "gpu3  FAILED", "gpu4  UNREACHABLE", "2 hosts changed: gpu2, gpu10", "gpu1  as declared",
    ]  # fmt: skip
    rows = [line.split() for line in lines if line.startswith("cuda ")]
    assert rows == [["cuda", "no", "toolkit", "install", "it", "70.0"]]  # the slowest's
    assert lines[-1] == "5 hosts: 1 failed, 1 unreachable, 2 changed, 1 as declared"


def test_the_same_sentence_about_many_hosts_is_said_once() -> None:
    def warned(name: str) -> dict[str, Any]:
        return same(row(warnings=[f"{name}: no lock; expected one: write it"]))

    names = [f"gpu{number}" for number in range(1, 26)]
    text = table(run({name: warned(name) for name in names}))
    assert "! gpu1-gpu25: no lock; expected one: write it" in text
    assert len(text.splitlines()) <= 6


def test_a_host_with_a_finding_that_is_left_alone_is_not_called_as_declared() -> None:
    left = row("cuda", found=["another nvcc"], deviations=[{"effect": "report"}])
    lines = table(run({"gpu1": same(left), "gpu2": same()})).splitlines()
    assert "gpu1  not as declared, and left alone" in lines
    assert "gpu2  as declared" in lines
    assert lines[-1] == "2 hosts: 1 left alone, 1 as declared"
    noted = row("smoke", deviations=[{"effect": "note"}])
    assert table(run({"gpu1": same(noted)})).startswith("gpu1  as declared\n")


# The smoke tests of many hosts.


def smoke_tests(size: int, **changes: Any) -> dict[str, Any]:
    return {
        f"gpu{number}": verdicts.explained(
            verdicts.document(
                checks=[verdicts.check("S4.x")], duration_s=70.0 + number,
                metrics={"allreduce_busbw_gb_s": 24.0 + number / 10}, **changes,
            )
        )
        for number in range(1, size + 1)
    }  # fmt: skip


def run_of(size: int, tests: dict[str, Any], **options: Any) -> str:
    hosts = {f"gpu{number}": same(status="changed") for number in range(1, size + 1)}
    return table(run(hosts), tests, **options)


def test_the_tests_of_many_hosts_that_passed_are_a_block() -> None:
    text = run_of(25, smoke_tests(25))
    assert "gpu1-gpu25: smoke test PASS (rehearsal-cpu), 1 of 1 checks passed in 71.0 to" in text
    assert "all-reduce: 24.1 to 26.5 GB/s bus bandwidth" in text
    assert len(text.splitlines()) <= SCREEN
    assert max(map(len, text.splitlines())) <= WIDTH
    assert run_of(25, smoke_tests(25), whole=True).count("smoke test PASS") == 25
    assert run_of(2, smoke_tests(2)).count("smoke test PASS") == 2


def test_a_failure_that_many_hosts_share_is_explained_once() -> None:
    failed = verdicts.failed("S4.finished", "a rank raised", tail=["OSError: no room"])
    tests = smoke_tests(25, status="fail", failed=failed)
    text = run_of(25, tests)
    assert text.count("FAIL S4.finished: a rank raised") == 1
    assert "the same on gpu2-gpu25" in text
