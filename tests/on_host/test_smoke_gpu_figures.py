"""Which GPU each rank has, which checks a mode has, and what goes into the verdict."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from pyinfra_gpu.on_host.smoke.gpu import checks, host, metrics, one_gpu, xid
from smoke_gpu_simulated import Simulated, bandwidth_facts, expected, rtx_5090, sound_host


def _gpus(*uuids: str | None, nccl: tuple[int, ...] = (2, 30, 7)) -> dict[int, dict[str, Any]]:
    return {
        rank: {"gpu": {"uuid": uuid, "nccl": list(nccl), "capability": [12, 0]}}
        for rank, uuid in enumerate(uuids)
    }


_A, _B = rtx_5090(0)["uuid"], rtx_5090(1)["uuid"]


@pytest.mark.parametrize(
    ("uuids", "mode", "status", "words"),
    [
        ((_A, _B), "gpu", "pass", "2 ranks, 2 GPUs"),
        ((_A, _A), "gpu", "fail", "two ranks share a GPU"),
        ((_A, "GPU-x"), "gpu", "fail", "rank 1 is on GPU-x, which nvidia-smi does not list"),
        ((_A, None), "gpu", "warn", "does not tell"),
        ((_A, _A), "rehearsal-1gpu", "pass", "2 ranks on one GPU"),
        ((_A, _B), "rehearsal-1gpu", "fail", "on different GPUs"),
    ],
)
def test_which_gpus_the_ranks_may_have(
    uuids: tuple[str | None, ...], mode: str, status: str, words: str, tmp_path: Path
) -> None:
    check = next(check for check in checks.RANK_CHECKS if check.id == "S4.gpu_identity")
    finding = check.decide(_gpus(*uuids), expected(mode, gpu_host=sound_host(tmp_path)))
    assert (finding.status or ("pass" if finding.ok else "fail")) == status
    assert words in finding.detail


def test_ranks_with_different_nccl_are_told_apart(tmp_path: Path) -> None:
    facts = _gpus(_A, _B)
    facts[1]["gpu"]["nccl"] = [2, 27, 3]
    check = next(check for check in checks.RANK_CHECKS if check.id == "S4.gpu_identity")
    assert not check.decide(facts, expected(gpu_host=sound_host(tmp_path))).ok


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ([2, 27, 3], "NCCL_HOSTID"),
        ([2, 29, 7], "NCCL_HOSTID"),
        ([2, 30, 3], "NCCL_MULTI_RANK_GPU_ENABLE"),
        ([3, 0, 0], "NCCL_MULTI_RANK_GPU_ENABLE"),
        (None, "NCCL_HOSTID"),
    ],
)
def test_the_way_to_two_ranks_on_a_gpu_follows_nccls_version(version: Any, name: str) -> None:
    assert one_gpu.route(version) == name
    first, second = (one_gpu.environment(name, rank) for rank in range(2))
    assert (first[name] != second[name]) == (name == "NCCL_HOSTID")
    assert set(first) <= one_gpu.NAMES


def test_a_mode_on_one_gpu_leaves_out_what_is_nobodys_speed() -> None:
    everything = [
        *checks.HOST_CHECKS,
        *checks.DEVICE_CHECKS,
        *checks.PAIR_CHECKS,
        *checks.RANK_CHECKS,
    ]
    everything += [*checks.RUN_CHECKS, *checks.AFTER_CHECKS]
    ids = [check.id for check in everything]
    assert len(ids) == len(set(ids))
    assert all(checks.applies(check_id, "gpu") for check_id in ids)
    left_out = {check_id for check_id in ids if not checks.applies(check_id, "rehearsal-1gpu")}
    assert left_out == {"S4.pairs_exact", "S4.link", "S4.bandwidth"}


def test_the_verdicts_figures_are_all_that_was_measured(tmp_path: Path) -> None:
    host = sound_host(tmp_path)
    devices = {0: {"speed": {"bf16_tflops": 224.0, "memory_gb_s": 1630.0}}, 1: {}}
    run = {
        "transport": {"ways": {"SHM/direct/direct": 4}, "versions": ["2.30.7"]},
        "precision": {
            "formats": {"bf16": {"status": "native", "reason": "", "tflops": 224.0}},
            "best": "bf16",
        },
    }
    found = metrics.figures(devices, bandwidth_facts(), run)
    assert found["allreduce_busbw_gb_s"] == 26.0
    assert found["link"]["1"]["gb_s"] == pytest.approx(63, abs=0.1)
    assert found["bf16_tflops"] == {"0": 224.0}
    assert found["precision"] == {"bf16": {"status": "native", "tflops": 224.0}}
    assert found["transport"] == {"SHM/direct/direct": 4}
    assert metrics.figures({}, {}, {}) == {}
    records = metrics.gpu_records(host, bandwidth_facts())
    assert records[1]["pcie"] == {
        "gen_loaded": 5,
        "width_loaded": 16,
        "gen_max": 5,
        "width_max": 16,
    }
    assert records[1]["throttle"] == ["sw_power_cap"]
    idle = metrics.gpu_records(copy.deepcopy(host), {})
    assert idle[0]["pcie"]["gen_loaded"] is None
    assert metrics.gpu_records(None, {}) == []


def test_what_goes_into_a_verdict_fits_the_published_schema(tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(Path("pyinfra_gpu/on_host/verdict.schema.json").read_text())
    run = {
        "transport": {"ways": {"SHM/direct/direct": 4}, "versions": ["2.30.7"]},
        "precision": {
            "formats": {
                "bf16": {"status": "native", "reason": "", "tflops": 224.0, "ratio": 1e-3},
                "fp8": {"status": "failed", "reason": "wrong numbers", "ratio": 0.5},
                "mxfp4": {"status": "unsupported (expected)", "reason": "only B200/B300"},
                "nvfp4": {"status": "not run", "reason": "no time was left"},
            },
            "best": None,
        },
    }
    devices = {0: {"speed": {"bf16_tflops": 224.0, "memory_gb_s": 1630.0}}}
    blind = {"samples": 1, **dict.fromkeys(("gen", "width", "sm_mhz", "power_w"))}
    facts = bandwidth_facts()
    facts[0]["bandwidth"]["link"]["1"] = {**blind, "temperature_c": None, "throttle": None}
    unknown = {key: "[N/A]" for key in rtx_5090(0) if key not in ("index", "name")}
    silent = host.read(Simulated([rtx_5090(0) | unknown]), tmp_path)
    made = {
        "metrics": metrics.figures(devices, facts, run),
        "gpus": metrics.gpu_records(sound_host(tmp_path / "2"), facts)
        + metrics.gpu_records(silent, {}),
        "xids_new": xid.parse(["NVRM: Xid (PCI:0000:01:00): 79, pid=1, GPU has fallen off"]),
    }
    for name, value in made.items():
        part = {**schema["properties"][name], "$defs": schema["$defs"]}
        jsonschema.validate(value, part)
