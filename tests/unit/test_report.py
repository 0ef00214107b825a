"""What a run shows on a terminal: the same once, the worst first, and nothing that it obeys."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import snapshots
import verdicts
from check_reports import UPGRADE, finding
from hostile_texts import CONTROL, HOSTILE

from pyinfra_gpu.diagnosis.explained import Explained
from pyinfra_gpu.engine.journal import Entry
from pyinfra_gpu.report.run import HostRun, render
from pyinfra_gpu.stages.finding import Finding, Id

NO_KEY = "no key of the repository; /etc/apt/sources.list.d/pyinfra-gpu-nvidia.list is missing"


def stage(name: str = "driver", *findings: Finding, **changes: Any) -> Entry:
    values = {"summaries": ["driver 580.95.05 loaded"], "seconds": 0.1, **changes}
    return Entry("ws1", name, findings=[*findings], **values)


def differs(found: str, action: str = "", effect: Any = "repair", **changes: Any) -> Finding:
    return finding(Id.CUDA_NOT_INSTALLED, effect, found=found, action=action, **changes)


def host(name: str, *stages: Entry, status: str = "as declared", **changes: Any) -> HostRun:
    return HostRun(name=name, status=status, entries=[stage("preflight"), *stages], **changes)


RATES = [{"kind": "float32", "bytes": 2**28, "seconds": 0.01, "mb_per_s": 25000.0}]
PASS = verdicts.document(
    mode="gpu",
    proof=True,
    duration_s=71.24,
    gpus=[verdicts.GPU] * 2,
    checks=[
        verdicts.check("S4.collectives", detail="exact from 4 B to 256 MiB, fp32 and bf16"),
        verdicts.check("S4.bandwidth", detail="25.3 GB/s, 40% of the loaded link's 63 GB/s"),
        verdicts.check("S5.kernel_log", "skip", detail="no permission"),
    ],
    allreduce=RATES,
    rerun_command="/opt/pyinfra-gpu/venv/bin/python /opt/pyinfra-gpu/smoke/smoke_test.pyz"
    """ '{"mode": "gpu", "output": "/opt/pyinfra-gpu/state/verdict.by-hand.json"}'""",
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


LEFT = differs("another nvcc", effect="report")
REFUSAL = "gpu3: nouveau is bound to the GPUs: run `reboot`"
WARNING = "gpu2: no lock is there; expected one: write it with `lock`"
CHANGE = replace(UPGRADE, old="580", new="590", by="alice", command="apt")
OLD = differs("module 580 is loaded", "reload", "restart", since=CHANGE)
CAUSE = "module 580 is loaded, since 2026-11-21 06:12: libcuda1 580 -> 590, by alice: apt"


def test_a_plan() -> None:
    nothing: dict[str, Any] = {"dry": True, "status": "differs"}
    lacking = stage(
        "cuda", differs("no toolkit", "install cuda-toolkit-13-0"), differs(NO_KEY, "add it")
    )
    hosts = [
        host("gpu10", lacking, **nothing),
        host("gpu2", replace(lacking, seconds=70.0), stage(warnings=[WARNING]), **nothing),
        host("gpu1", dry=True, rehearsal=True),
        host("gpu3", stage(summaries=["nouveau"], problem=REFUSAL), dry=True, status="failed"),
        HostRun(name="gpu4", status="unreachable", dry=True),
        host("gpu5", stage("cuda", LEFT), dry=True, status="left alone"),
    ]
    assert "repaired" not in render([host("ws1", stage("driver", OLD), **nothing)])
    for width in (50, 80):
        text = render(hosts, width=width)
        assert max(map(len, text.splitlines())) <= width
    snapshots.same("plan.txt", f"{text}\n")


MANY = [differs(each, each) for each in ("x" * 1000, "b", "c", "d", "e")]
LONG = f"{'workstation-' * 7}1.physics.example.org is off"


@pytest.mark.parametrize(
    ("stages", "status", "words", "not_said"),
    [
        ([stage("driver", OLD)], "changed", f"- ws1: repaired: {CAUSE}", "- ws1: m"),
        ([stage("driver", OLD, problem="ws1: x")], "failed", f"- ws1: {CAUSE}", "repaired"),
        (
            [stage("driver", OLD), stage("cuda", LEFT)],
            "changed",
            "ws1 changed (still not as declared)",
            "left alone: ws1",
        ),
        ([stage("cuda", *MANY)], "changed", "...; b; c; and 2 more", "; d"),
        ([stage(problem=f"ws1: {LONG}")], "failed", f"! ws1: {LONG}", "- ws1"),
        ([stage(), stage("driver", OLD)], "cut off", "-> CUT OFF", "-> reload"),
        ([stage("driver", OLD), stage()], "cut off", "-> reload", "not reached"),
        ([stage(unreadable=True, summaries=[])], "failed", "driver not judged", "->"),
    ],
)
def test_a_run_says(stages: list[Entry], status: str, words: str, not_said: str) -> None:
    run = HostRun(name="ws1", status=status, entries=stages)
    text = " ".join(render([run], width=200).split())
    assert words in text
    assert not_said not in text


def test_a_run_with_its_smoke_tests() -> None:
    across = Explained(verdicts.verdict(**verdicts.across(others_kept_out=False)))
    toolkit = stage("cuda", differs("no toolkit", "install cuda-toolkit-13-0"))
    tests = {
        "ws1": (verdicts.explained(PASS), across),
        "ws2": (verdicts.explained(FAIL, KNOWN), across),
        "ws3": (verdicts.explained(FAIL, UNKNOWN), None),
    }
    runs = [
        HostRun(name=name, status="changed", entries=[toolkit], smoke=own, across=step)
        for name, (own, step) in tests.items()
    ]
    text = render(runs)
    snapshots.same("run.txt", f"{text}\n")
    command = f"    {FAIL['rerun_command']}"  # whole, to be copied: the terminal breaks it
    assert [line for line in text.splitlines() if len(line) > 80] == [command] * 2


def test_what_many_hosts_share_is_said_once() -> None:
    runs = [host(f"ws{n}.lab.example", stage()) for n in range(1, 26)]
    first, _, last = render(runs).splitlines()
    assert first == "25 hosts as declared: ws1.lab.example to ws25.lab.example"
    assert last == "25 hosts: 25 as declared"
    assert "  driver         driver 580.95.05 loaded" in render(runs, whole=True)
    warned = [host(f"gpu{n}", stage(warnings=[f"gpu{n}: no lock"])) for n in range(1, 26)]
    assert "- gpu1-gpu25: no lock\n" in render(warned)


def test_of_many_hosts_the_smoke_tests_that_passed_are_a_block_and_a_failure_is_told_once() -> None:
    def shown(**changes: Any) -> str:
        runs = []
        for n in range(1, 26):
            figures = [{**RATES[0], "mb_per_s": 24.0 + n}]
            own = {"host": f"gpu{n}", "duration_s": 70.0 + n, "allreduce": figures, **changes}
            test = verdicts.explained(verdicts.document(checks=[verdicts.check("S4.x")], **own))
            runs.append(host(f"gpu{n}", status="changed", smoke=test))
        return render(runs)

    assert "gpu1-gpu25  smoke test PASS (rehearsal-cpu), 1 of 1 checks passed\n" in shown()
    assert "after 71.0 s to 2026-11-21T08:12:45Z, after 95.0 s" in " ".join(shown().split())
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
        failed=verdicts.failed("S6.finished", "ws2 did not answer ws1 for 15 s"),
    )
)
SLOW = {"status": "warn", "checks": [verdicts.check("S4.link", "warn", detail="x8")]}
UNPROVEN = [verdicts.check("S4.collectives", "warn"), verdicts.check("S4.x")]
CPU = {"mode": "rehearsal-cpu", "gpus": [], "proof": False}


@pytest.mark.parametrize(
    ("test", "words", "not_said"),
    [
        (
            verdicts.explained({**PASS, **CPU}),
            "no proof no GPU was used: this proves nothing about GPUs",
            "ranks on",
        ),
        (verdicts.explained({**PASS, **SLOW}), "PASS, degraded (gpu), 0 of 1", "smoke test PASS ("),
        (
            verdicts.explained({**PASS, "others_kept_out": False}),
            "other machines could connect while it ran",
            "proves nothing",
        ),
        (verdicts.explained(PASS), "collectives exact from 4 B to 256 MiB", "could connect"),
        (
            verdicts.explained({**PASS, "status": "warn", "checks": UNPROVEN}),
            "warn S4.collectives",
            "collectives exact",
        ),
        (verdicts.explained(MEASURED), "S4.collectives: 1 element wrong", "a stack"),
        (Explained(LOST), "multi-node step on ws1, ws2 FAIL (gpu), 1 of", "run it again"),
        (Explained(LOST), "failed S6.finished: ws2 did not answer ws1 for 15 s", "PASS"),
    ],
    ids=["no GPU", "degraded", "open", "exact", "not exact", "measured", "across", "lost"],
)
def test_a_test_says_what_it_proves_and_what_it_does_not(
    test: Explained, words: str, not_said: str
) -> None:
    text = " ".join(render([host("ws1", smoke=test)], width=200).split())
    assert words.strip() in text
    assert not_said not in text


# What a host wrote.


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_host_reaches_the_terminal_or_another_hosts_lines(kind: str) -> None:
    good, evil = host("good", stage("cuda", differs("a", "a")), status="changed"), HOSTILE[kind]
    odd = stage(evil, differs(evil, evil), warnings=[evil], problem=f"odd: {evil}")
    document = copy.deepcopy(FAIL)
    document |= {"logs": evil, "rerun_command": f"x{evil}"}
    document["failed"] |= {"sentence": f"x{evil}", "tail": [evil]}
    document["checks"][1]["detail"] = evil
    test = verdicts.explained(document, UNKNOWN)
    text = render([good, host("odd", odd, status="failed", smoke=test)])
    assert not CONTROL.search(text)
    text.encode("utf-8")
    (alone,) = [each for each in render([good]).split("\n\n") if each.startswith("good  ")]
    assert alone in text
