"""The verdict of a run as a person reads it: 80 columns, nothing lost."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import verdicts

from pyinfra_gpu.diagnosis.explained import Explained
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.parse import parse
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.facts.verdict import Verdict
from pyinfra_gpu.report import run
from pyinfra_gpu.report.table import _row, render

FIXTURES = Path(__file__).parent / "fixtures" / "probe"


def stage(name: str, **changes: Any) -> dict[str, Any]:
    empty = {
        "found": [], "changed": [], "warnings": [], "deviations": [], "problem": None,
        "unreadable": False, "seconds": 0.04,
    }  # fmt: skip
    return {"stage": name, **empty, **changes}


VERDICT: dict[str, Any] = verdicts.document(
    duration_s=7.5,
    checks=[verdicts.check("S4.grad_bitwise", detail="bit for bit")],
    metrics={
        "allreduce": [
            {"bytes": 4, "kind": "float32", "seconds": 0.1, "mb_per_s": 0.1},
            {"bytes": 67108864, "kind": "float32", "seconds": 0.1, "mb_per_s": 563.9},
        ],
        "loss0": 9.0537,
        "loss1": 9.0337,
        "taylor_ratio": 0.9992,
    },
)

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
        }
    },
}


def record(name: str, key: str, value: str) -> Record:
    """A recorded look, with this in place of what the host's owner said there."""
    lines = (FIXTURES / f"{name}.txt").read_text().splitlines()
    first = lines.index("pyinfra-gpu-probe 1")
    told = json.loads("\n".join(lines[first + 1 : -1]))
    owner = json.dumps({**json.loads(told["owner"]), key: value})
    text = json.dumps({**told, "owner": owner})
    return parse([lines[first], text, lines[-1]])


def changed(**host: Any) -> dict[str, Any]:
    result = copy.deepcopy(RESULT)
    result["hosts"]["gpu1"].update(host)
    return result


def shown(verdict: dict[str, Any] = VERDICT) -> str:
    """The report of a run whose host has this verdict."""
    return render(RESULT, {"gpu1": verdicts.explained(verdict)})


def test_no_line_is_wider_than_a_terminal() -> None:
    long = "x" * 30 + " " + "word " * 60
    result = changed(stages=[stage("pytorch", found=[long], changed=[long], problem=long)])
    for text in (render(RESULT), shown(), render(result)):
        assert max(len(line) for line in text.splitlines()) <= 80


def test_what_was_found_and_changed_and_how_long_it_took_is_there() -> None:
    text = render(RESULT)
    assert "torch 2.13.0+cpu" in text
    assert "8.2" in text
    assert "1 host (rehearsal): 1 changed" in text


def test_the_smoke_tests_figures_are_there_with_their_mode_and_time() -> None:
    text = shown()
    for words in ("PASS (rehearsal-cpu)", "64 MiB", "564 MB/s", "9.0537 -> 9.0337", "08:12:45"):
        assert words in text


def test_a_check_that_did_not_pass_is_shown_and_passed_ones_are_counted() -> None:
    verdict = copy.deepcopy(VERDICT)
    verdict["status"] = "fail"
    verdict["failed"] = verdicts.failed("S4.finished", "rank 1 raised")
    verdict["checks"].append(verdicts.check("S4.loss_drop", "fail", detail="ratio 2.0"))
    text = shown(verdict)
    assert "FAIL S4.finished: rank 1 raised" in text
    assert "FAIL S4.loss_drop: ratio 2.0" in text
    assert "1 of 2 checks passed" in text


def test_an_all_reduce_is_called_exact_only_if_that_check_passed() -> None:
    assert "exact" not in shown()
    verdict = copy.deepcopy(VERDICT)
    verdict["checks"].append(verdicts.check("S4.allreduce_exact"))
    assert "564 MB/s, every element exact" in shown(verdict)
    verdict["checks"][-1]["status"] = "warn"
    assert "every element exact" not in shown({**verdict, "status": "warn"})


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


def test_a_stage_that_was_refused_before_it_was_judged_is_not_called_as_declared() -> None:
    result = copy.deepcopy(RESULT)
    refused = stage("pytorch", problem="gpu1: bob@desk works on it")
    result["hosts"]["gpu1"] |= {"status": "failed", "stages": [refused]}
    row = next(line for line in render(result).splitlines() if line.lstrip().startswith("pytorch"))
    assert row.split()[:4] == ["pytorch", "not", "judged", "FAILED"]


def test_an_unreachable_host_has_a_row() -> None:
    text = render(changed(status="unreachable", stages=[]))
    assert text.startswith("gpu1 (rehearsal)  UNREACHABLE\n")


@pytest.mark.parametrize("missing", ["metrics", "ranks", "checks", "finished"])
def test_an_incomplete_verdict_is_none_and_the_report_goes_on(missing: str) -> None:
    text = json.dumps({key: value for key, value in VERDICT.items() if key != missing})
    found = Verdict.read(text)
    assert isinstance(found, Unknown)
    assert missing in found.reason
    assert run.last_smoke(record("ubuntu2404-2x-rtx5090", "smoke.verdict", text)) == found
    assert "1 host (rehearsal): 1 changed" in render(RESULT)


def test_the_verdict_of_a_failed_test_that_a_look_found_comes_with_its_diagnosis() -> None:
    failed = verdicts.failed(
        "S4.finished", "rank 1 raised", tail=["OSError: [Errno 28] No space left on device"]
    )
    text = json.dumps({**VERDICT, "status": "fail", "failed": failed})
    found = run.last_smoke(record("ubuntu2404-2x-rtx5090", "smoke.verdict", text))
    assert isinstance(found, Explained)
    assert found.root is not None
    assert found.as_json()["diagnosis"]["findings"][0]["id"] == "HOST-01"
    assert run.last_smoke(None) is None


def test_a_path_in_a_cell_is_broken_behind_a_slash() -> None:
    found = "no key; /etc/apt/sources.list.d/pyinfra-gpu-nvidia.list is missing"
    table = _row(["driver", found, "-", "0.1"])
    assert [line[12:44].strip() for line in table.splitlines()] == [
        "no key; /etc/apt/sources.list.d/",
        "pyinfra-gpu-nvidia.list is",
        "missing",
    ]
