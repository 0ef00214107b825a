"""What `check` shows on a terminal: hosts with the same answer once, and the worst on top."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import snapshots
from check_reports import (
    NOTE,
    REPAIR,
    REPORT,
    RESTART,
    SMOKE_OWED,
    STOP,
    UPGRADE,
    finding,
    host,
    stage,
    unreachable,
)
from hostile_texts import CONTROL, HOSTILE

from pyinfra_gpu.drift.finding import Id
from pyinfra_gpu.report.check.answer import Answer, HostAnswer
from pyinfra_gpu.report.check.render import render, summary


def answer(*hosts: HostAnswer, **changes: Any) -> Answer:
    return Answer(inventory="x", checked="a day", seconds=3.2, hosts=hosts, **changes)


def everything() -> Answer:
    """One host of every verdict, with everything that can be shown."""
    hosts = [
        *(host(f"gpu{number}") for number in (10, 3)),
        host("gpu2", stage("smoke", NOTE)),
        host("gpu4", RESTART, SMOKE_OWED),
        *(host(f"gpu{number}", stage("libcuda", REPAIR)) for number in (20, 1)),
        host("gpu5", stage("cuda", REPORT), rehearsal=True),
        host("gpu6", stage("preflight", STOP)),
        unreachable("gpu7"),
    ]
    return answer(*hosts, reasons=("the inventory holds gpu9 twice: remove one of them",))


@pytest.mark.parametrize("width", [80, 50])
def test_everything_that_a_check_shows(width: int) -> None:
    text = render(everything(), width=width)
    assert max(map(len, text.splitlines())) <= width
    if width == 80:
        snapshots.same("check.txt", f"{text}\n")


def test_hosts_with_the_same_answer_are_one_line() -> None:
    first, *rest = render(answer(*(host(f"ws{n}.lab.example") for n in range(1, 101)))).splitlines()
    assert first == "100 hosts as declared: ws1.lab.example to ws100.lab.example"
    assert rest == ["", "100 hosts: 100 as declared; 3.2 s, exit code 0"]
    assert "1 host (rehearsal): " in summary(answer(host("gpu1", rehearsal=True)))


def test_a_note_that_many_hosts_share_is_said_once_with_its_hosts() -> None:
    noted = [host(f"gpu{number}", stage("smoke", NOTE)) for number in range(1, 21)]
    text = render(answer(*noted, *(host(f"gpu{number}") for number in range(21, 26))))
    assert "25 hosts as declared: gpu1-gpu25" in text
    assert text.count(NOTE.found) == 1
    assert f"- gpu1-gpu20: {NOTE.found}" in text


def test_the_same_upgrade_at_other_moments_is_one_finding_with_both_moments() -> None:
    def upgraded(when: str) -> Any:
        change = replace(UPGRADE, when=when)
        return stage("driver", finding(Id.DRIVER_MODULE_DIFFERS, "restart", since=change))

    times = ["2026-11-21T06:12:03", "2026-11-21T06:40:03", "2026-11-21T06:15:03"]
    hosts = [host(f"gpu{number}", upgraded(when)) for number, when in enumerate(times)]
    text = " ".join(render(answer(*hosts)).split())
    assert "3 hosts RESTART PENDING, 1 deviation: gpu0-gpu2" in text
    assert "since 2026-11-21 06:12 to 2026-11-21 06:40: libcuda1" in text


def test_a_new_host_is_a_line_for_each_deviation_and_what_stops_it_in_full() -> None:
    lacks = [finding(id_) for id_ in [*Id][-9:]]
    text = render(answer(host("new1", stage("preflight", STOP), stage("smoke", *lacks))))
    assert f"  {lacks[0].id}: {lacks[0].found}\n" in text
    assert text.count("expected  ") == 1
    assert "stops here: check seating and power" in text
    assert render(answer(host("new1", stage("smoke", *lacks))), whole=True).count("expected  ") == 9


def test_with_v_each_host_stands_by_itself_with_its_stages() -> None:
    hosts = [host(name, stage("driver", found="driver 580 loaded")) for name in ("b", "a")]
    lines = render(answer(*hosts), whole=True).splitlines()
    assert lines[:4] == [
        "a  as declared",
        "  driver         driver 580 loaded",
        "",
        "b  as declared",
    ]


def test_on_a_terminal_the_state_of_a_host_is_coloured_and_nothing_else_changes() -> None:
    coloured = render(everything(), coloured=True)
    assert "gpu7  \x1b[1;31mUNDETERMINED\x1b[0m" in coloured
    assert coloured.count("\x1b[") > 10
    assert re.sub("\x1b\\[[0-9;]*m", "", coloured) == render(everything())


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_host_reaches_the_terminal_or_another_hosts_lines(kind: str) -> None:
    evil = HOSTILE[kind]
    change = replace(UPGRADE, command=evil, name=evil)
    texts = {"found": evil, "expected": evil, "action": evil, "command": evil, "since": change}
    odd = host("odd", stage("driver", finding(Id.DRIVER_MODULE_DIFFERS, "report", **texts)))
    noted = stage("smoke", replace(NOTE, found=evil))
    hosts = [host("good"), odd, unreachable("gone", evil), host("noted", noted)]
    text = render(answer(*hosts))
    assert not CONTROL.search(text)
    text.encode("utf-8")
    good = [line for line in text.splitlines() if "good" in line and "as declared" in line]
    assert "2 hosts as declared: good, noted" in good
