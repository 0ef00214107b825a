"""What a run shows on a terminal: the same once, the worst first, and nothing that it obeys."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import snapshots
import verdicts
from hostile_texts import CONTROL, HOSTILE

from pyinfra_gpu.diagnosis.explained import Explained
from pyinfra_gpu.facts.parse import parse
from pyinfra_gpu.report import smoke
from pyinfra_gpu.report.run import render

PROBE = Path(__file__).parent / "fixtures" / "probe" / "ubuntu2404-2x-rtx5090.txt"
SEEN = parse(PROBE.read_text().splitlines())
NO_KEY = "no key of the repository; /etc/apt/sources.list.d/pyinfra-gpu-nvidia.list is missing"


def stage(name: str = "driver", **changes: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {
        "found": ["driver 580.95.05 loaded"], "changed": [], "warnings": [], "deviations": [],
        "unfinished": [], "problem": None, "unreadable": False, "seconds": 0.1,
    }  # fmt: skip
    return {"stage": name, **empty, **changes}


def deviation(effect: str = "repair", **changes: Any) -> dict[str, Any]:
    empty = {"id": "x", "found": "x is missing", "action": "install x", "since": None}
    return {**empty, "effect": effect, **changes}


def host(*stages: dict[str, Any], status: str = "as declared", **changes: Any) -> dict[str, Any]:
    return {
        "status": status,
        "rehearsal": False,
        "stages": [stage("preflight"), *stages],
        **changes,
    }


def run(hosts: dict[str, Any], *, dry: bool = False) -> dict[str, Any]:
    return {"dry": dry, "hosts": hosts}


RATES = [{"kind": "float32", "bytes": 2**28, "seconds": 0.01, "mb_per_s": 25000.0}]
PASS = verdicts.document(
    mode="gpu",
    proof=True,
    duration_s=71.24,
    gpus=[verdicts.gpu(0), verdicts.gpu(1)],
    checks=[
        verdicts.check("S4.allreduce_exact", detail="4 B to 256 MiB, fp32 and bf16"),
        verdicts.check("S4.bandwidth", detail="25.3 GB/s, 40% of the loaded link's 63 GB/s"),
        verdicts.check("S5.kernel_log", "skip", detail="no permission"),
    ],
    metrics={"allreduce": RATES},
    rerun_command="/opt/pyinfra-gpu/venv/bin/python /opt/pyinfra-gpu/smoke/smoke_test.pyz"
    " --mode gpu --host ws1 --gpus 2 --deadline 180 --output /opt/pyinfra-gpu/smoke/by-hand.json",
)
FINDING = verdicts.found()
FAIL: dict[str, Any] = {
    **PASS,
    "status": "fail",
    "proof": False,
    "checks": [
        verdicts.check("S4.finished", "fail", detail="rank 1 raised", seconds=None),
        verdicts.check("S5.leftovers", "fail", detail="/dev/shm/nccl-x is left"),
    ],
    "failed": verdicts.failed(
        "S4.finished",
        "rank 1 (pid 12) raised at 'all-reduce of 64 MiB': ncclSystemError",
        tail=[f"line {n}" for n in range(10, 40)],
    ),
}
KNOWN, UNKNOWN = verdicts.answer(FINDING), verdicts.answer(unexplained="line 39")


def hosts_of_a_plan() -> dict[str, Any]:
    lacking = stage("cuda", found=["no toolkit", NO_KEY], changed=["install cuda-toolkit-13-0"])
    refused = stage(found=["nouveau"], problem="gpu3: nouveau is bound to the GPUs: run `reboot`")
    left = stage("cuda", found=["another nvcc"], deviations=[deviation("report")])
    warned = stage(warnings=["gpu2: no lock is there; expected one: write it with `lock`"])
    return {
        "gpu10": host(lacking, status="differs"),
        "gpu2": host({**lacking, "seconds": 70.0}, warned, status="differs"),
        "gpu1": host(rehearsal=True),
        "gpu3": host(refused, status="failed"),
        "gpu4": {**host(), "status": "unreachable", "stages": []},
        "gpu5": host(left, status="left alone"),
    }


UPGRADE = {"when": "2026-11-21T06:12:03", "by": "alice: apt", "change": "libcuda1 580 -> 590"}
OLD = deviation("restart", found="module 580 is loaded", action="reload", since=UPGRADE)
CAUSE = "module 580 is loaded, since 2026-11-21 06:12: libcuda1 580 -> 590, by alice: apt"


def test_a_plan() -> None:
    planned = host(stage(deviations=[OLD], changed=["reload"]), status="differs")
    assert "repaired" not in render(run({"ws1": planned}, dry=True))
    for width in (50, 80):
        text = render(run(hosts_of_a_plan(), dry=True), width=width)
        assert max(map(len, text.splitlines())) <= width
    snapshots.same("plan.txt", f"{text}\n")


MANY = stage(found=["x" * 1000, "b", "c", "d", "e"], changed=["x" * 1000, "b", "c", "d", "e"])
LEFT = stage("environment", found=["a variable for all"], deviations=[deviation("report")])
LONG = f"{'workstation-' * 7}1.physics.example.org"


@pytest.mark.parametrize(
    ("told", "words", "not_said"),
    [
        (
            host(stage(deviations=[OLD], changed=["reload"])),
            f"- ws1: repaired: {CAUSE}",
            "- ws1: m",
        ),
        (host(stage(deviations=[OLD])), f"- ws1: {CAUSE}", "repaired"),
        (
            host(stage(changed=["a"]), LEFT),
            "ws1 changed (still not as declared)",
            "left alone: ws1",
        ),
        (host(MANY), "...; b; c; and 2 more", "; d"),
        (host(stage(problem=f"ws1: {LONG} is off")), f"! ws1: {LONG} is off", "- ws1"),
    ],
    ids=["repaired", "not repaired", "still not as declared", "many findings", "a long name"],
)
def test_a_run_tells(told: dict[str, Any], words: str, not_said: str) -> None:
    text = " ".join(render(run({"ws1": {**told, "status": "changed"}}), width=200).split())
    assert words in text
    assert not_said not in text


def test_a_run_with_its_smoke_tests() -> None:
    changed = stage("cuda", found=["no toolkit"], changed=["install cuda-toolkit-13-0"])
    hosts = {f"ws{n}": host(changed, status="changed") for n in (1, 2, 3)}
    told = {
        "ws1": verdicts.explained(PASS),
        "ws2": verdicts.explained(FAIL, KNOWN),
        "ws3": verdicts.explained(FAIL, UNKNOWN),
    }
    open_to = {"ws2": "systemd has set no address limit"}
    across = dict.fromkeys(("ws1", "ws2"), verdicts.across_stamped(open_to_others=open_to))
    text = render(run(hosts), told, across)
    snapshots.same("run.txt", f"{text}\n")
    command = f"    {FAIL['rerun_command']}"  # whole, to be copied: the terminal breaks it
    assert [line for line in text.splitlines() if len(line) > 80] == [command] * 2


def test_what_many_hosts_share_is_said_once() -> None:
    hosts = {f"ws{n}.lab.example": host(stage()) for n in range(1, 26)}
    first, _, last = render(run(hosts)).splitlines()
    assert first == "25 hosts as declared: ws1.lab.example to ws25.lab.example"
    assert last == "25 hosts: 25 as declared"
    assert "  driver         driver 580.95.05 loaded" in render(run(hosts), whole=True)
    hosts = {f"gpu{n}": host(stage(warnings=[f"gpu{n}: no lock"])) for n in range(1, 26)}
    assert "- gpu1-gpu25: no lock\n" in render(run(hosts))


def test_of_many_hosts_the_smoke_tests_that_passed_are_a_block_and_a_failure_is_told_once() -> None:
    def shown(**changes: Any) -> str:
        tests = {}
        for n in range(1, 26):
            figures = {"allreduce": [{**RATES[0], "mb_per_s": 24.0 + n}]}
            told = {"host": f"gpu{n}", "duration_s": 70.0 + n, "metrics": figures, **changes}
            document = verdicts.document(checks=[verdicts.check("S4.x")], **told)
            tests[f"gpu{n}"] = verdicts.explained(document)
        return render(run({name: host(status="changed") for name in tests}), tests)

    assert "gpu1-gpu25  smoke test PASS (rehearsal-cpu), 1 of 1 checks passed\n" in shown()
    assert len(shown().splitlines()) <= 24
    text = shown(status="fail", failed=verdicts.failed("S4.x", "a rank raised", tail=["no room"]))
    assert text.count("S4.x: a rank raised") == 1
    assert "gpu1-gpu25  smoke test FAIL (rehearsal-cpu), 1 of 1 checks passed" in text


MEASURED = {
    **FAIL,
    "checks": [verdicts.check("S4.collectives", "fail", detail="wrong")],
    "failed": verdicts.failed("S4.collectives", "1 element wrong", tail=["a stack"]),
}
LOST = verdicts.verdict(
    **verdicts.across(
        status="fail",
        proof=False,
        failed={**verdicts.failed("S6.finished", "ws2 did not answer ws1 for 15 s"), "host": "ws2"},
    )
)
SLOW = {"status": "warn", "checks": [verdicts.check("S4.link", "warn", detail="x8")]}
UNPROVEN = [verdicts.check("S4.allreduce_exact", "warn"), verdicts.check("S4.x")]
CPU = {"mode": "rehearsal-cpu", "gpus": [], "proof": False}


@pytest.mark.parametrize(
    ("test", "words", "not_said"),
    [
        (verdicts.explained({**PASS, **CPU}), "this proves nothing about GPUs", "ranks on"),
        (verdicts.explained({**PASS, **SLOW}), "PASS, degraded (gpu), 0 of 1", "smoke test PASS ("),
        (
            verdicts.explained({**PASS, "listens": {"to": "anyone", "how": "no systemd"}}),
            "other machines could connect while it ran: no systemd",
            "proves nothing",
        ),
        (verdicts.explained(PASS), "exact sums 4 B to 256 MiB", "could connect"),
        (
            verdicts.explained({**PASS, "status": "warn", "checks": UNPROVEN}),
            "warn S4.allreduce_exact",
            "exact sums",
        ),
        (verdicts.explained(MEASURED), "S4.collectives: 1 element wrong", "a stack"),
        (Explained(LOST), "multi-node step on ws1, ws2 FAIL (gpu)", "run it again"),
        (Explained(LOST), "failed S6.finished: ws2 did not answer ws1 for 15 s", "PASS"),
    ],
    ids=["no GPU", "degraded", "open", "exact", "not exact", "measured", "across", "lost"],
)
def test_a_test_says_what_it_proves_and_what_it_does_not(
    test: Explained, words: str, not_said: str
) -> None:
    text = " ".join(render(run({"ws1": host()}), {"ws1": test}, width=200).split())
    assert words.strip() in text
    assert not_said not in text


# What a host wrote.


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_host_reaches_the_terminal_or_another_hosts_lines(kind: str) -> None:
    good, evil = {"good": host(stage(changed=["a"]), status="changed")}, HOSTILE[kind]
    odd = stage(evil, found=[evil], changed=[evil], warnings=[evil], problem=f"odd: {evil}")
    document = copy.deepcopy(FAIL)
    document |= {"logs": evil, "rerun_command": f"x{evil}"}
    document["failed"] |= {"sentence": f"x{evil}", "tail": [evil]}
    document["checks"][1]["detail"] = evil
    told = {"odd": verdicts.explained(document, UNKNOWN)}
    text = render(run({**good, "odd": host(odd, status="failed")}), told)
    assert not CONTROL.search(text)
    text.encode("utf-8")
    (alone,) = [each for each in render(run(good)).split("\n\n") if each.startswith("good  ")]
    assert alone in text


def test_a_verdict_that_a_probe_found_comes_with_its_diagnosis() -> None:
    verdict = verdicts.explained(MEASURED).verdict
    told = smoke.last_smoke(replace(SEEN, smoke=replace(SEEN.smoke, verdict=verdict)))
    assert isinstance(told, Explained)
    assert told.as_json()["diagnosis"]["found"][0]["name"] == "smoke-data-wrong"
    assert smoke.last_smoke(None) is None
