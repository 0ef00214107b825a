"""Stages, their clock, what is learnt from a hang, and the evidence that is kept."""

from __future__ import annotations

import json
import os
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
from pyinfra_gpu.on_host.smoke.checks import compile_check
from pyinfra_gpu.on_host.smoke.judge import failure, ranks
from pyinfra_gpu.on_host.smoke.judge.check import Expected
from pyinfra_gpu.on_host.smoke.judge.verdict import CheckResult
from pyinfra_gpu.on_host.smoke.launcher import evidence, hang, stages
from pyinfra_gpu.on_host.smoke.launcher.group import Group, Plan
from pyinfra_gpu.on_host.smoke.torch_location import TorchLocation

from pyinfra_gpu.on_host.smoke.journal import Writer

_MODES = ("gpu", "rehearsal-1gpu", "rehearsal-cpu")


@pytest.mark.parametrize("mode", _MODES)
def test_every_check_is_in_the_stage_its_id_names_and_only_once(mode: str) -> None:
    checks = stages.checks_of(mode)
    assert list(checks) == list(stages.UNTIL) == ["S0", "S1", "S2", "S3", "S4", "S5"]
    for stage, of_stage in checks.items():
        assert of_stage
        assert {check.id.partition(".")[0] for check in of_stage} == {stage}
    ids = [check.id for of_stage in checks.values() for check in of_stage]
    assert len(ids) == len(set(ids))


def test_one_gpu_is_not_asked_for_what_only_two_can_do() -> None:
    two, one, none = (
        {check.id for checks in stages.checks_of(mode).values() for check in checks}
        for mode in _MODES
    )
    assert none < one < two
    assert "S4.bandwidth" in two - one


def test_deadlines_grow_to_the_whole_and_never_beyond() -> None:
    shares = list(stages.UNTIL.values())
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_the_clock_gives_a_stage_what_those_before_it_left() -> None:
    began = time.monotonic()
    clock = stages.Clock(began, 100)
    assert clock.start("S0") == pytest.approx(began + 6)
    assert clock.start("S1") == pytest.approx(began + 25)
    assert clock.start("S1") == pytest.approx(began + 25)  # asked again, it is the same
    assert clock.limit("S1") == 25
    clock.stop()
    results = [
        CheckResult("S0.disk", "pass", seconds=0.1),
        CheckResult("S1.torch", "fail", seconds=0.1),
        CheckResult("S2.libuv", "skip"),
    ]
    entries = {entry["id"]: entry for entry in clock.as_json(results)}
    assert [entry["status"] for entry in entries.values()] == [
        *("pass", "fail", "skip", "skip", "skip", "skip"),
    ]
    assert entries["S1"]["deadline_s"] == pytest.approx(25, abs=0.1)
    assert (entries["S2"]["seconds"], entries["S2"]["deadline_s"]) == (None, None)


_A, _B, _C = (hang.Variant(name, {"X": name}, f"layer {name}") for name in "abc")


@pytest.mark.parametrize(
    ("passing", "tried", "words"),
    [
        ("a", "a", "passes here, so the hang is not in its layers"),
        ("b", "ab", "it passes with b, which points to this: layer b"),
        ("c", "abc", "it passes with c, which points to this: layer c"),
        ("", "abc", "none of 3 tries"),
    ],
)
def test_the_first_variant_that_passes_names_the_layer(
    passing: str, tried: str, words: str
) -> None:
    until = time.monotonic() + 60

    def attempt(variant: hang.Variant, _: float) -> str:
        return hang.PASSED if variant.name == passing else hang.HUNG

    results, sentence = hang.locate((_A, _B, _C), attempt, until, lambda: False)
    assert "".join(result["name"] for result in results) == tried
    assert {result["result"] for result in results[:-1]} <= {hang.HUNG}
    assert words in sentence


def test_without_time_or_after_a_signal_nothing_is_tried() -> None:
    def never(variant: hang.Variant, until: float) -> str:
        raise AssertionError(variant)

    for until, stopped in ((time.monotonic(), False), (time.monotonic() + 60, True)):
        results, sentence = hang.locate((_A,), never, until, lambda stopped=stopped: stopped)
        assert results == []
        assert "no time left" in sentence


def test_a_host_too_slow_for_a_try_is_not_given_a_cause() -> None:
    until = time.monotonic() + 60
    tries = (_A, _B)
    results, sentence = hang.locate(tries, lambda *_: hang.UNREACHED, until, lambda: False)
    assert [result["name"] for result in results] == ["a"]
    assert "where it hangs is not known" in sentence


@pytest.mark.parametrize("mode", _MODES)
def test_the_first_try_is_always_the_unchanged_one(mode: str) -> None:
    tries = hang.variants(mode)
    assert tries[0].variables == {}
    assert all(each.variables and each.layer for each in tries[1:])


def test_the_flight_recorder_is_asked_through_its_pipe_and_read(tmp_path: Path) -> None:
    pipe = tmp_path / "flight_recorder_ask_1.pipe"
    os.mkfifo(pipe)
    entry = {
        "collective_seq_id": 7,
        "profiling_name": "nccl:all_reduce",
        "input_sizes": [[4]],
        "state": "started",
    }
    (tmp_path / "flight_recorder_1").write_bytes(pickle.dumps({"entries": [entry]}))
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        hang.ask_flight_recorder(tmp_path)
        assert os.read(reader, 10) == b"1\n"
    finally:
        os.close(reader)
    assert hang.recordings(tmp_path) == [tmp_path / "flight_recorder_1"]
    assert hang.recorded(tmp_path / "flight_recorder_1") == [
        "collective 7 nccl:all_reduce [[4]]: started"
    ]


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("/nowhere/at/all",)


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", pickle.dumps(_Evil()), pickle.dumps({"other": 1})]
)
def test_a_recording_that_is_not_one_is_said_to_be_unreadable(
    content: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "flight_recorder_0"
    file.write_bytes(content)
    (line,) = hang.recorded(file)
    assert "cannot be read" in line


def test_a_rank_that_nccls_watchdog_ended_counts_as_hung() -> None:
    line = "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALL"
    assert hang.watchdog_spoke(["a", line])
    assert not hang.watchdog_spoke(["a", "b"])


def _group(directory: Path) -> Group:
    log = directory / "torchrun.log"
    plan = Plan([], {}, 2, "rank", failure.RANKS, (), ranks.FINISHED, log, "rank{}.log")
    for rank in (0, 1):
        writer = Writer(directory, rank)
        writer.started(pid=70 + rank)
        if rank == 1:
            writer.error(ValueError("spilt milk"))
        (directory / f"rank{rank}.log").write_text(f"output of {rank}\n")
        (directory / f"nccl.box.{70 + rank}.log").write_text(f"NCCL WARN of {rank}\n")
    log.write_text("Root Cause (first observed failure):\n")
    (directory / "rank0.stack").write_text("Thread 0x1\n")
    group = Group(plan)
    group._reader.follow()
    return group


def test_evidence_begins_with_the_failed_rank_and_names_sources(tmp_path: Path) -> None:
    entries = evidence.collect([_group(tmp_path)], 1, ["NVRM: Xid"], ["S4.x: no"])
    assert [(entry["source"], entry["rank"], entry["text"]) for entry in entries] == [
        ("rank", 1, "ValueError: spilt milk"),
        ("rank", 1, "output of 1"),
        ("nccl", 1, "NCCL WARN of 1"),
        ("stage", None, "S4.x: no"),
        ("kernel", None, "NVRM: Xid"),
        ("torchrun", None, "Root Cause (first observed failure):"),
        ("rank", 0, "output of 0"),
        ("nccl", 0, "NCCL WARN of 0"),
        ("stage", 0, "Thread 0x1"),
    ]
    assert json.loads(evidence.write(tmp_path, entries).read_text()) == entries


def test_evidence_holds_the_log_of_a_process_that_died_before_its_journal(tmp_path: Path) -> None:
    group = _group(tmp_path)
    (tmp_path / "rank1.jsonl").unlink()
    early = Group(group.plan)
    early._reader.follow()
    entries = evidence.collect([early], 1, None, [])
    assert tuple(entries[0].values()) == ("rank", 1, "output of 1")


def test_evidence_has_bounds(tmp_path: Path) -> None:
    group = _group(tmp_path)
    long = tmp_path / "rank1.log"
    filling = "\x01" * 300
    long.write_text("".join(f"{filling} line {number}\n" for number in range(3000)))
    many = [group] * 20
    entries = evidence.collect(many, 1, None, ["é" * 200_000])
    for entry in entries:
        assert len(entry["text"].encode()) <= 64 * 1024
        assert len(entry["text"].splitlines()) <= 400
    assert entries[1]["text"].endswith("line 2999")
    file = evidence.write(tmp_path, entries)
    assert file.stat().st_size < 512 * 1024


_TORCH = TorchLocation("/venv/lib/torch", "2.13.0+cpu", "/venv/lib")
_COMPILED = {
    "device": "cpu",
    "disabled": False,
    "error": None,
    "compiler": "/usr/bin/g++",
    "python_headers": True,
    "elements": 64,
    "wrong": 0,
    "graphs": 1,
    "kernels": 1,
    "operations": {"eager": ["aten::mul"], "compiled": []},
    "binaries": ["a.so"],
}
_ERROR = {"error": "InvalidCxxCompiler: none"}


@pytest.mark.parametrize(
    ("changes", "mode", "statuses", "words"),
    [
        ({}, "gpu", "pass pass pass", "1 kernel(s)"),
        ({"disabled": True}, "gpu", "warn skip skip", "TORCHDYNAMO_DISABLE is set"),
        (_ERROR, "gpu", "fail skip skip", "InvalidCxxCompiler: none"),
        (_ERROR, "rehearsal-cpu", "fail skip skip", "InvalidCxxCompiler: none"),
        ({**_ERROR, "compiler": None}, "rehearsal-cpu", "warn skip skip", "no C++ compiler"),
        ({**_ERROR, "compiler": None}, "gpu", "fail skip skip", "no C++ compiler"),
        ({**_ERROR, "python_headers": False}, "rehearsal-cpu", "warn skip skip", "Python.h"),
        ({"kernels": 0}, "gpu", "pass fail pass", "0 kernels"),
        ({"graphs": 0}, "gpu", "pass fail pass", "0 graphs"),
        ({"binaries": []}, "gpu", "pass fail pass", "0 binaries"),
        (
            {"operations": {"eager": ["aten::mul"], "compiled": ["aten::mul"]}},
            "gpu",
            "pass fail pass",
            "it ran aten::mul",
        ),
        ({"operations": {"eager": [], "compiled": []}}, "gpu", "pass fail pass", "shows nothing"),
        (
            {"wrong": 3, "first": [5, 1.0, 2.0]},
            "gpu",
            "pass pass fail",
            "3 of 64 elements are wrong, the first is element 5: 1.0 in place of 2.0",
        ),
    ],
)
def test_what_was_compiled_is_judged(
    changes: dict[str, Any], mode: str, statuses: str, words: str
) -> None:
    expected = Expected(2, 4, _TORCH, [], mode=mode)
    facts = {0: {"compile": {**_COMPILED, **changes}}}
    found = [check.decide(facts, expected) for check in compile_check.CHECKS]
    shown = [each.status or ("pass" if each.ok else "fail") for each in found]
    assert " ".join(shown) == statuses
    assert any(words in each.detail for each in found)


def test_a_compiler_that_is_not_used_by_data_is_left_out_without_a_warning() -> None:
    expected = Expected(2, 4, _TORCH, [], compile=False)
    facts = {0: {"compile": {**_COMPILED, "disabled": True}}}
    found = [check.decide(facts, expected) for check in compile_check.CHECKS]
    assert [each.status for each in found] == ["skip", "skip", "skip"]
    assert found[0].detail == "not used on this host, by data"
