"""The verdict of a run as a person reads it: 80 columns, nothing lost."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from pyinfra_gpu.report.run import _row, render


def stage(name: str, **changes: Any) -> dict[str, Any]:
    empty = {"found": [], "changed": [], "warnings": [], "problem": None, "seconds": 0.04}
    return {"stage": name, **empty, **changes}


VERDICT: dict[str, Any] = {
    "status": "pass",
    "mode": "rehearsal-cpu",
    "duration_s": 7.5,
    "finished": "2026-11-21T08:12:45Z",
    "checks": [{"id": "S4.grad_bitwise", "status": "pass", "detail": "bit for bit"}],
    "ranks": [{}, {}],
    "metrics": {
        "allreduce": [
            {"bytes": 4, "kind": "float32", "mb_per_s": 0.1},
            {"bytes": 67108864, "kind": "float32", "mb_per_s": 563.9},
        ],
        "loss0": 9.0537,
        "loss1": 9.0337,
        "taylor_ratio": 0.9992,
    },
}

RESULT: dict[str, Any] = {
    "schema_version": 1,
    "dry": False,
    "hosts": {
        "gpu1": {
            "status": "changed",
            "rehearsal": True,
            "stages": [
                stage("preflight", found=["Debian GNU/Linux 12 (bookworm), 2 CPUs, 24 GiB"]),
                stage("pytorch", found=["no torch"], changed=["torch 2.13.0+cpu"], seconds=8.24),
            ],
            "smoke": VERDICT,
        }
    },
}


def changed(**host: Any) -> dict[str, Any]:
    result = copy.deepcopy(RESULT)
    result["hosts"]["gpu1"].update(host)
    return result


def test_no_line_is_wider_than_a_terminal() -> None:
    long = "x" * 30 + " " + "word " * 60
    result = changed(stages=[stage("pytorch", found=[long], changed=[long], problem=long)])
    for text in (render(RESULT), render(result)):
        assert max(len(line) for line in text.splitlines()) <= 80


def test_what_was_found_and_changed_and_how_long_it_took_is_there() -> None:
    text = render(RESULT)
    assert "torch 2.13.0+cpu" in text
    assert "8.2" in text
    assert "1 host (rehearsal): 1 changed" in text


def test_the_smoke_tests_figures_are_there_with_their_mode_and_time() -> None:
    text = render(RESULT)
    for words in ("PASS (rehearsal-cpu)", "64 MiB", "564 MB/s", "9.0537 -> 9.0337", "08:12:45"):
        assert words in text


def test_a_check_that_did_not_pass_is_shown_and_passed_ones_are_counted() -> None:
    verdict = copy.deepcopy(VERDICT)
    verdict["status"] = "fail"
    verdict["checks"].append({"id": "S4.loss_drop", "status": "fail", "detail": "ratio 2.0"})
    text = render(changed(smoke=verdict))
    assert "FAIL S4.loss_drop: ratio 2.0" in text
    assert "1 of 2 checks passed" in text


def test_an_all_reduce_is_called_exact_only_if_that_check_passed() -> None:
    assert "exact" not in render(RESULT)
    verdict = copy.deepcopy(VERDICT)
    verdict["checks"].append({"id": "S4.allreduce_exact", "status": "pass"})
    assert "564 MB/s, every element exact" in render(changed(smoke=verdict))
    verdict["checks"][-1]["status"] = "fail"
    assert "every element exact" not in render(changed(smoke=verdict))


def test_a_failure_is_named_in_the_table_and_explained_below() -> None:
    sentence = "gpu1: apt is in use by pid 12 (apt-get) for more than 2 s"
    text = render(changed(status="failed", stages=[stage("packages", problem=sentence)]))
    assert "FAILED" in text
    assert "! gpu1: apt is in use by pid 12 (apt-get) for more than 2 s" in text
    assert "1 host (rehearsal): 1 failed" in text


def test_a_dry_run_says_would_change() -> None:
    result = changed(status="differs")
    result["dry"] = True
    text = render(result)
    assert "would change" in text
    assert "1 host (rehearsal): 1 would change" in text


def test_an_unreachable_host_has_a_row() -> None:
    text = render(changed(status="unreachable", stages=[], smoke=None))
    assert "gpu1     connect     unreachable" in text


@pytest.mark.parametrize("missing", ["metrics", "ranks", "checks", "finished"])
def test_an_incomplete_verdict_does_not_break_the_report(missing: str) -> None:
    verdict = {key: value for key, value in VERDICT.items() if key != missing}
    assert "smoke test PASS" in render(changed(smoke=verdict))


def test_a_path_in_a_cell_is_broken_behind_a_slash() -> None:
    found = "no key; /etc/apt/sources.list.d/pyinfra-gpu-nvidia.list is missing"
    table = _row(["gpu1", "driver", found, "-", "0.1"])
    assert [line[21:48].strip() for line in table.splitlines()] == [
        "no key; /etc/apt/",
        "sources.list.d/",
        "pyinfra-gpu-nvidia.list is",
        "missing",
    ]
