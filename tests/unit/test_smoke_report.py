"""The smoke test on one screen: a pass with its figures, a failure with its cause."""

from __future__ import annotations

import json
from typing import Any

import pytest
import verdicts

from pyinfra_gpu.diagnosis.advice import ADVICE
from pyinfra_gpu.diagnosis.explained import Explained, ended_by_the_test, of_file, of_verdict
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.verdict import Stamp, Verdict
from pyinfra_gpu.on_host.diagnosis.causes import Step
from pyinfra_gpu.on_host.diagnosis.explain import Answer
from pyinfra_gpu.report import smoke as smoke_report

PASS: dict[str, Any] = verdicts.document(
    mode="gpu",
    proof=True,
    duration_s=71.24,
    gpus=[verdicts.gpu(0), verdicts.gpu(1)],
    stages=[verdicts.stage(n, seconds=1.5 * n) for n in range(6)],
    checks=[
        verdicts.check("S4.allreduce_exact"),
        verdicts.check("S5.kernel_log", "skip", detail="no permission"),
    ],
    metrics={
        "allreduce": [{"kind": "float32", "bytes": 2**28, "seconds": 0.01, "mb_per_s": 25000.0}],
        "allreduce_busbw_gb_s": 25.31,
        "allreduce_bytes": 2**28,
        "link": {n: {"gen": 5, "width": 16, "gb_s": 63.0} for n in ("0", "1")},
        "transport": {"SHM/direct": 4},
        "precision": {
            "bf16": {"status": "native", "tflops": 210},
            "mxfp8": {"status": "native"},
            "mxfp4": {"status": "unsupported (expected)"},
        },
        "precision_best": "mxfp8",
        "loss0": 9.0537,
        "loss1": 9.0337,
        "taylor_ratio": 0.9992,
    },
    rerun_command="/opt/pyinfra-gpu/venv/bin/python /opt/pyinfra-gpu/smoke/smoke_test.pyz"
    " --mode gpu --host ws1 --gpus 2 --deadline 180 --output /opt/pyinfra-gpu/smoke/by-hand.json",
)
SHM_FULL = verdicts.answer(
    verdicts.found(
        fix=(
            Step("See what is free", "df -h /dev/shm"),
            Step("Remove what ended runs left", "rm /dev/shm/nccl-*"),
            Step("In a container, start it with `docker run --shm-size=1g` " + "and so on " * 12),
        )
    )
)
UNKNOWN = verdicts.answer(unexplained="line 39")
FAIL: dict[str, Any] = {
    **PASS,
    "status": "fail",
    "proof": False,
    "checks": [
        verdicts.check("S4.finished", "fail", detail="rank 1 raised", seconds=None),
        verdicts.check("S5.leftovers", "fail", detail="/dev/shm/nccl-x is left"),
    ],
    "failed": {
        "id": "S4.finished",
        "sentence": "rank 1 (pid 12) raised at 'all-reduce of 64 MiB': ncclSystemError",
        "rank": 1,
        "log": None,
        "tail": [f"line {n}" for n in range(10, 40)],
    },
}
STAMP: dict[str, Any] = verdicts.across_stamp()


def shown(verdict: dict[str, Any], diagnosis: Answer | None = None) -> str:
    return "\n".join(smoke_report.lines("ws1", verdicts.explained(verdict, diagnosis)))


@pytest.mark.parametrize(
    ("verdict", "diagnosis"),
    [(PASS, None), (FAIL, SHM_FULL), (FAIL, UNKNOWN)],
    ids=["pass", "fail", "unknown"],
)
def test_it_fits_a_terminal(verdict: dict[str, Any], diagnosis: Answer | None) -> None:
    lines = shown(verdict, diagnosis).splitlines()
    assert len(lines) < 25
    assert max(map(len, lines)) <= 80


def test_a_pass_shows_ranks_bandwidth_link_transport_formats_step_and_seconds() -> None:
    text = " ".join(shown(PASS).split())
    for words in (
        "PASS (gpu), 1 of 2 checks passed in 71.2 s",
        "2 ranks on 2 x NVIDIA GeForce RTX 5090",
        "all-reduce of 256 MiB: 25.3 GB/s bus bandwidth",
        "PCIe gen 5 x16",
        "transport SHM/direct",
        "bf16, mxfp8 native; mxfp4 unsupported (expected); fall back to mxfp8",
        "0.999 of the drop",
        "S4 6.0",
        "not made here: S5.kernel_log",
    ):
        assert words in text


@pytest.mark.parametrize(("mode", "words"), [
    ("rehearsal-1gpu", "the two-GPU gate is not satisfied"),
    ("rehearsal-cpu", "this proves nothing about GPUs"),
])  # fmt: skip
def test_a_pass_that_is_less_than_proof_says_so(mode: str, words: str) -> None:
    assert words in " ".join(shown({**PASS, "mode": mode, "proof": False, "gpus": []}).split())


def test_a_degraded_pass_shows_its_warnings() -> None:
    check = verdicts.check("S4.link", "warn", detail="x8 where x16 is possible")
    text = shown({**PASS, "status": "warn", "checks": [*PASS["checks"], check]})
    assert "PASS, degraded" in text
    assert "WARN S4.link: x8 where x16 is possible" in text


def test_a_failure_says_what_the_line_why_what_to_do_and_where() -> None:
    text = shown(FAIL, SHM_FULL)
    order = [
        "FAIL S4.finished: rank 1",
        "FAIL S5.leftovers",
        "  /dev/shm is full. NCCL puts",
        "nccl-shm-full",
        "> Error while creating",
        "  1. See what is free:\n       df -h /dev/shm\n",
        "  2. Remove what ended runs left:\n       rm /dev/shm/nccl-*\n",
        "docker run --shm-size=1g",
        "all there is: /opt",
        "by hand there:\n    /opt/pyinfra-gpu/venv/bin/python",
    ]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    assert "line 39" not in text


def test_a_failure_that_nothing_explains_shows_its_last_lines() -> None:
    text = shown(FAIL, UNKNOWN)
    assert "no known failure explains it" in text
    assert "  | line 39" in text
    assert "1. " not in text


def test_a_wrong_number_that_was_measured_comes_with_what_to_do_and_no_log() -> None:
    check = verdicts.check("S4.collectives", "fail", detail="wrong")
    failed = verdicts.failed("S4.collectives", "1 element wrong", tail=["a stack"])
    text = shown({**FAIL, "checks": [check], "failed": failed}, UNKNOWN)
    assert "1. Run the test again by hand" in text
    assert "a stack" not in text


def test_advice_is_for_checks_that_there_are() -> None:
    from pyinfra_gpu.on_host.smoke import across
    from pyinfra_gpu.on_host.smoke.plans import checks_of

    known = {check.id for check in (*across.CHECKS, *checks_of("gpu"))}
    assert {*ADVICE} <= known


def test_a_long_list_of_steps_is_cut_and_says_so() -> None:
    fix = tuple(Step(f"do this, {'x ' * 60}") for _ in range(9))
    text = shown(FAIL, verdicts.answer(verdicts.found(fix=fix)))
    assert len(text.splitlines()) < 25
    assert "more steps, in the JSON report" in text
    assert "by hand there" in text


def test_the_command_by_hand_is_one_that_a_shell_takes() -> None:
    lines = shown(FAIL).splitlines()
    start = lines.index("  again, by hand there:") + 1
    joined = "\n".join(lines[start:]).replace("\\\n", " ")
    assert joined.split() == FAIL["rerun_command"].split()


def test_a_long_command_is_broken_where_a_shell_does_not_mind() -> None:
    command = "run --with 'a quoted part that is not broken' " + "--more words " * 9 + '"and " \''
    fix = (Step("first", command),)
    lines = shown(FAIL, verdicts.answer(verdicts.found(fix=fix))).splitlines()
    assert max(map(len, lines)) <= 80
    start = next(number for number, line in enumerate(lines) if "run --with" in line)
    assert "'a quoted part that is not broken'" in lines[start]
    assert lines[start].endswith(" \\")


DAMAGE = [None, 3, "text", [], {}, [None, 3], 10**30, "\x1b[2Jtext"]


@pytest.mark.parametrize("damage", DAMAGE, ids=str)
@pytest.mark.parametrize("name", sorted({*PASS, *FAIL}))
def test_a_damaged_verdict_is_none_or_can_be_shown(name: str, damage: object) -> None:
    for verdict, diagnosis in ((PASS, None), (FAIL, SHM_FULL), (FAIL, UNKNOWN)):
        found = Verdict.read(json.dumps({**verdict, name: damage}))
        if isinstance(found, Unknown):
            assert found.reason
            continue
        assert isinstance(found, Verdict)
        lines = smoke_report.lines("ws1", Explained(found, diagnosis))
        assert lines
        assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("damage", DAMAGE, ids=str)
@pytest.mark.parametrize("name", sorted(STAMP))
def test_a_damaged_stamp_is_none_or_can_be_shown(name: str, damage: object) -> None:
    text = json.dumps(verdicts.stamp(across={**STAMP, name: damage}))
    found = Stamp.read(text)
    if isinstance(found, Unknown):
        assert "across" in found.reason
        return
    assert isinstance(found, Stamp)
    assert smoke_report.across_lines({"ws1": found.across})


def test_what_all_hosts_say_of_a_step_together_is_said_once() -> None:
    stamped = verdicts.across_stamped()
    text = "\n".join(smoke_report.across_lines({"ws1": stamped, "ws2": stamped, "ws3": None}))
    assert text.count("step across 2 hosts PASS (gpu), 4 ranks, 40.0 s") == 1
    assert "ws1, ws2: " in text
    assert "64 MiB: 1100 MB/s" in text


def test_what_was_open_to_others_is_said_and_what_was_not_is_not() -> None:
    how = "a network namespace of its own is not possible here: unshare: Operation not permitted"
    said = "while it ran, others could connect to it"
    assert said in shown({**PASS, "listens": {"to": "anyone", "how": how}})
    for listens in ({"listens": {"to": "itself", "how": "in a network namespace"}}, {}):
        assert said not in shown({**PASS, **listens})
    stamped = verdicts.across_stamped(open_to_others={"ws2": "systemd has set no address limit"})
    text = "\n".join(smoke_report.across_lines({"ws1": stamped, "ws2": stamped}))
    assert "others could connect to ws2: systemd has set no address limit" in text


def test_a_failed_step_across_hosts_names_the_host_that_was_lost() -> None:
    failed = {**verdicts.failed("S6.finished", "ws2 did not answer ws1 for 15 s"), "host": "ws2"}
    verdict = verdicts.across_verdict(status="fail", proof=False, failed=failed)
    text = "\n".join(smoke_report.across_lines({"ws1": Explained(verdict), "ws2": None}))
    assert "ws1: step across ws1, ws2 FAIL (gpu), 40.0 s" in text
    assert "FAIL S6.finished: ws2 did not answer ws1 for 15 s" in text


def test_evidence_is_read_as_far_as_it_is_evidence() -> None:
    text = '[{"source": "rank", "rank": 1, "text": "a"}, {"rank": 2}, 3, {"text": "b"}]'
    assert of_file(text) == {"rank 1": "a", "log": "b"}
    two = '[{"rank": 1, "text": "a"}, {"rank": 1, "text": "b"}, {"rank": 0, "text": "c"}]'
    assert of_file(two) == {"rank 1": "a\nb", "rank 0": "c"}
    assert of_file('[{"text": "cut o') == {}
    assert of_file("3") == {}
    assert of_file("[" * 60_000) == {}


@pytest.mark.parametrize(
    ("check", "sentence", "ended"),
    [
        ({}, "rank 0 reports world_size 3", True),
        ({"seconds": None}, "rank 1 was ended by signal 9 (SIGKILL)", False),
        ({"seconds": None}, "rank 1 was still at 'init' after 150 s (the deadline)", True),
    ],
    ids=["measured", "killed", "deadline"],
)
def test_torchruns_log_is_no_evidence_where_the_test_itself_ended_it(
    check: dict[str, Any], sentence: str, ended: bool
) -> None:
    failed = verdicts.failed("S4.x", sentence)
    verdict = verdicts.verdict(
        status="fail", failed=failed, checks=[verdicts.check("S4.x", "fail", **check)]
    )
    assert ended_by_the_test(verdict) is ended
    text = '[{"source": "torchrun", "text": "got signal: 15"}, {"source": "rank", "text": "a"}]'
    assert len(of_file(text, ended=ended)) == (1 if ended else 2)


def test_the_verdicts_own_lines_stand_in_for_evidence() -> None:
    ((source, text),) = of_verdict(verdicts.explained(FAIL).verdict).items()
    assert (source, text.splitlines()[-1]) == ("rank 1", "line 39")
    assert of_verdict(verdicts.explained(PASS).verdict) == {}
