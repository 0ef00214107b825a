"""Every measurement on a real GPU, and a whole test with two ranks on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from full_run import Run, keep, run
from pyinfra_gpu.on_host.smoke.gpu import device, expected, formats, host, link, one_gpu, precision
from pyinfra_gpu.on_host.smoke.gpu.checks_device import MATMUL_BOUNDS

from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu.stacks.bundle import gpu_kinds, smoke_bundle

pytestmark = [pytest.mark.gpu, pytest.mark.torch]


@pytest.fixture
def torch() -> Any:
    import torch

    return torch


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a whole run with two ranks on GPU 0, whose evidence is kept."""
    made = run(tmp_path_factory.mktemp("run"), "rehearsal-1gpu", "--gpus", "1")
    print(keep(made))
    return made


def test_two_ranks_on_one_gpu_pass_every_check_and_prove_nothing(whole: Run) -> None:
    assert whole.checks("fail", "unknown") == {}
    assert (whole.code, whole.verdict["proof"], whole.verdict["mode"]) == (
        3,
        False,
        "rehearsal-1gpu",
    )


def test_every_stage_ran_within_its_deadline(whole: Run) -> None:
    stages = {stage["id"]: stage for stage in whole.verdict["stages"]}
    assert sorted(stages) == ["S0", "S1", "S2", "S3", "S4", "S5"]
    assert all(stage["status"] in ("pass", "warn") for stage in stages.values())
    assert whole.verdict["duration_s"] < 180


def test_the_figures_are_those_of_a_gpu(whole: Run) -> None:
    metrics, gpu = whole.verdict["metrics"], whole.verdict["gpus"][0]
    assert metrics["bf16_tflops"]["0"] > 5
    assert metrics["memory_gb_s"]["0"] > 50
    assert metrics["precision"]["bf16"]["status"] == "native"
    assert metrics["transport"]
    assert gpu["uuid"].startswith("GPU-")
    assert "allreduce_busbw_gb_s" not in metrics


def test_mode_gpu_on_one_gpu_says_so_and_proves_nothing(tmp_path: Path) -> None:
    made = run(tmp_path, "gpu", "--gpus", "1")
    assert made.checks("fail", "unknown") == {}
    assert (made.code, made.verdict["mode"]) == (3, "rehearsal-1gpu")


def test_a_second_gpu_that_is_declared_and_missing_fails(tmp_path: Path, torch: Any) -> None:
    declared = torch.cuda.device_count() + 1
    made = run(tmp_path, "gpu", "--gpus", str(declared))
    assert (made.code, made.verdict["failed"]["id"]) == (2, "S0.gpus")


def test_the_host_is_what_torch_sees(torch: Any) -> None:
    found = host.read()
    assert found["error"] is None
    for gpu in found["gpus"]:
        seen = device.identity(torch, gpu["index"])
        assert (seen["uuid"], seen["name"]) == (gpu["uuid"], gpu["name"])
        assert seen["capability"] == gpu["capability"]
        assert abs(seen["memory_mib"] - gpu["memory_mib"]) < 0.03 * gpu["memory_mib"]


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_arithmetic_stays_within_half_its_bound(torch: Any, kind: str) -> None:
    result = device.matmul(torch, torch.device("cuda", 0), kind)
    assert result["non_finite"] == 0
    assert 0 < result["ratio"] < MATMUL_BOUNDS[kind] / 2


def test_tf32_in_place_of_fp32_leaves_the_bound(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if torch.cuda.get_device_capability(0) < (8, 0):
        pytest.skip("TF32 came with capability 8.0")
    real = torch.set_float32_matmul_precision
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda _: real("high"))
    result = device.matmul(torch, torch.device("cuda", 0), "float32")
    real("highest")
    assert result["ratio"] > MATMUL_BOUNDS["float32"]


def test_memory_keeps_a_pattern_and_a_flipped_bit_is_seen(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = torch.device("cuda", 0)
    assert device.memory(torch, gpu, 2**30)["wrong"] == 0
    real = device._values
    calls = []

    def flipped(*given: Any) -> Any:
        values = real(*given)
        calls.append(given)
        if len(calls) == 2:  # 128 MiB are two blocks: the second one written
            values[77] ^= 1 << 20
        return values

    monkeypatch.setattr(device, "_values", flipped)
    result = device.memory(torch, gpu, 2**27)
    assert (result["wrong"], result["first"][0]) == (1, 2**23 + 77)


def test_this_torch_serves_this_gpu(torch: Any) -> None:
    archs = torch.cuda.get_arch_list()
    assert device.covers(archs, torch.cuda.get_device_capability(0)) in ("binary", "ptx")


@pytest.mark.parametrize("name", formats.FORMATS)
def test_each_format_gives_right_numbers_or_an_excuse(name: str, tmp_path: Path) -> None:
    bundle = tmp_path / "smoke_test.pyz"
    bundle.write_bytes(smoke_bundle())
    command = [sys.executable, str(bundle), "--gpu-precision", name, "--device", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    found = precision.outcome(done.returncode, done.stdout)
    judged = precision.judged(name, found, found.get("capability"))
    print(name, judged)
    assert judged["status"] in (precision.NATIVE, precision.UNSUPPORTED), judged
    if judged["status"] == precision.NATIVE:
        assert judged["ratio"] < precision.TOLERANCE / 2


def test_a_known_gpu_is_as_fast_as_its_kind(torch: Any) -> None:
    known = expected.kind_of(torch.cuda.get_device_name(0), [*gpu_kinds(catalogue())])
    if known is None:
        pytest.skip("nothing is known of this kind of GPU")
    speed = device.speed(torch, torch.device("cuda", 0), 8192, 2**30)
    print(speed)
    assert speed["bf16_tflops"] > known.fail * known.bf16_tflops
    assert speed["memory_gb_s"] > known.fail * known.memory_gb_s


def test_a_loaded_gpu_is_seen_at_work(torch: Any) -> None:
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    with link.Sampler() as sampler:
        import time

        began = time.monotonic()
        while time.monotonic() < began + 3:
            for _ in range(50):
                a @ a
            torch.cuda.synchronize()
        seen = link.summary(sampler.samples, began, time.monotonic())["0"]
    print(seen)
    assert seen["samples"] >= 2
    assert seen["sm_mhz"] is None or seen["sm_mhz"] > 300


def test_this_process_is_found_on_the_gpu_it_uses(torch: Any) -> None:
    before = host.read()
    kept = torch.ones(2**20, device="cuda")
    found = host.after(before, {os.getpid()}, host.shm_files())
    del kept
    assert len(found["gpus"]) == len(before["gpus"])
    if not found["own_processes"]:
        pytest.skip("nvidia-smi does not show this container's process ids")
    assert [process["pid"] for process in found["own_processes"]] == [os.getpid()]


_TWO = """
import os, sys, json, torch, torch.distributed as dist
from datetime import timedelta
from pyinfra_gpu.on_host.smoke.gpu import ranks
rank = int(os.environ["RANK"])
gpu = ranks.prepare(torch, "rehearsal-1gpu", rank, rank, sys.argv[1])
dist.init_process_group("nccl", device_id=gpu, timeout=timedelta(seconds=60))
x = torch.full((2**20,), float(rank + 1), device=gpu)
dist.all_reduce(x)
torch.cuda.synchronize()
print("result " + json.dumps([float(x.min()), float(x.max())]))
dist.destroy_process_group()
"""


@pytest.mark.parametrize("route", [one_gpu.HOST_ID, one_gpu.MULTI_RANK])
def test_each_way_to_two_ranks_on_a_gpu_works_where_nccl_has_it(route: str, torch: Any) -> None:
    version = device.nccl_version(torch)
    if route == one_gpu.MULTI_RANK and one_gpu.route(version) != route:
        pytest.skip(f"NCCL {version} does not know {route}")
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29417", "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", _TWO, route],
            env={**os.environ, **common, "RANK": str(rank), "PYTHONPATH": str(Path.cwd())},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for output in outputs:
        line = next((line for line in output.splitlines() if line.startswith("result ")), None)
        assert line is not None, output
        assert json.loads(line.removeprefix("result ")) == [3.0, 3.0]
