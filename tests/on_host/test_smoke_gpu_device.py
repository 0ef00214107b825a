"""What one GPU does alone, with the CPU in its place; and how the facts are judged."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyinfra_gpu.on_host.smoke.gpu import checks, device
from pyinfra_gpu.on_host.smoke.gpu.checks_device import MATMUL_BOUNDS
from pyinfra_gpu.on_host.smoke.judge.check import Finding
from smoke_gpu_simulated import expected, sound_host

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
CPU = torch.device("cpu")


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_a_right_product_stays_well_within_its_bound(kind: str) -> None:
    result = device.matmul(torch, CPU, kind)
    assert result["elements"] == 512 * 512
    assert result["non_finite"] == 0
    assert 0 < result["ratio"] < MATMUL_BOUNDS[kind] / 2


class Broken:
    """Stands for torch, and spoils what its tensors' `to(device)` brings to the GPU."""

    def __init__(self, spoil: Callable[[Any], Any]) -> None:
        self._spoil = spoil

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def randn(self, *sizes: int, **given: Any) -> Any:
        return _Spoiled(torch.randn(*sizes, **given), self._spoil)


class _Spoiled:
    def __init__(self, tensor: Any, spoil: Callable[[Any], Any]) -> None:
        self._tensor, self._spoil = tensor, spoil

    def to(self, what: Any) -> Any:
        if isinstance(what, torch.device):
            return self._spoil(self._tensor.clone())
        return _Spoiled(self._tensor.to(what), self._spoil)

    def double(self) -> Any:
        return self._tensor.double()


def _as_tf32(tensor: Any) -> Any:
    return ((tensor.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def _one_bit(tensor: Any) -> Any:
    tensor[3, 5] += 2.0**-3
    return tensor


@pytest.mark.parametrize("spoil", [_as_tf32, _one_bit, lambda t: t.t(), torch.zeros_like])
def test_reduced_or_wrong_arithmetic_leaves_the_bound(spoil: Callable[[Any], Any]) -> None:
    assert device.matmul(Broken(spoil), CPU, "float32")["ratio"] > MATMUL_BOUNDS["float32"]  # type: ignore[arg-type]


def test_memory_that_keeps_everything_reads_back_right() -> None:
    assert device.memory(torch, CPU, 2**20) == {
        "bytes": 2**20,
        "words": 2**17,
        "passes": 2,
        "wrong": 0,
        "first": None,
    }


class Faulty(torch.Tensor):  # type: ignore[misc]
    """A buffer with two faults: word 1000 has one bit stuck, word 5000 answers for word 4000."""

    def __getitem__(self, index: Any) -> Any:
        seen = torch.Tensor.clone(self.as_subclass(torch.Tensor))
        seen[1000] = seen[1000] | 1 << 40
        seen[5000] = seen[4000]
        return seen[index]


def test_a_stuck_bit_and_an_aliased_word_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *a, **k: empty(*a, **k).as_subclass(Faulty))
    result = device.memory(torch, CPU, 2**16)
    assert result["wrong"] in (3, 4)  # the stuck bit may be right in one of the two passes
    assert result["first"][0] in (1000, 5000)


def test_speed_has_both_figures() -> None:
    result = device.speed(torch, CPU, 64, 2**20)
    assert result["bf16_tflops"] >= 0
    assert result["memory_gb_s"] > 0


def test_what_this_torch_is_built_for_is_told() -> None:
    software = device.software(torch)
    assert software["torch"] == torch.__version__
    assert software["torch_cuda"] == torch.version.cuda
    assert software["devices"] == torch.cuda.device_count()


WHEEL = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]


@pytest.mark.parametrize(
    ("archs", "capability", "way"),
    [
        (WHEEL, (12, 0), "binary"),
        (WHEEL, (12, 1), "binary"),
        (WHEEL, (8, 9), "binary"),
        (WHEEL, (9, 0), "binary"),
        (WHEEL, (7, 0), None),
        (["sm_50", "sm_80", "sm_90"], (12, 0), None),
        (["sm_90", "compute_90"], (12, 0), "ptx"),
        (["sm_90", "compute_120"], (12, 0), "ptx"),
        (["compute_90a"], (12, 0), None),
        (["sm_90a"], (9, 0), "binary"),
        (["sm_100a"], (10, 3), None),
        (["sm_100f"], (10, 3), "binary"),
        (["compute_100f"], (12, 0), None),
        (["sm_86"], (8, 0), None),
        (["sm_121"], (12, 0), None),
        ([], (12, 0), None),
        (["gfx90a"], (9, 0), None),
    ],
)
def test_which_architectures_serve_which_gpu(
    archs: list[str], capability: tuple[int, int], way: str | None
) -> None:
    assert device.covers(archs, capability) == way


def _sound(index: int) -> dict[str, Any]:
    return {
        "cuda": {
            "torch": "2.14.1+cu130",
            "torch_cuda": "13.0",
            "arch_list": WHEEL,
            "nccl": [2, 30, 7],
            "cudnn": 91400,
            "available": True,
            "devices": 2,
        },
        "device": {
            "index": index,
            "uuid": f"GPU-{index:08d}-1111-2222-3333-444444444444",
            "name": "NVIDIA GeForce RTX 5090",
            "capability": [12, 0],
            "memory_mib": 32111,
            "multiprocessors": 170,
        },
        "matmul_float32": {"size": 512, "elements": 262144, "non_finite": 0, "ratio": 1.2e-7},
        "matmul_bfloat16": {"size": 512, "elements": 262144, "non_finite": 0, "ratio": 8e-4},
        "memory": {"bytes": 2**30, "words": 2**27, "passes": 2, "wrong": 0, "first": None},
        "speed": {"bf16_tflops": 224.0, "memory_gb_s": 1630.0},
    }


Change = Callable[[dict[str, Any]], object]


def _decide(tmp_path: Path, *changes: Change) -> dict[str, Finding]:
    facts = {index: copy.deepcopy(_sound(index)) for index in range(2)}
    for change in changes:
        change(facts[1])
    wanted = expected(gpu_host=sound_host(tmp_path))
    return {check.id: check.decide(facts, wanted) for check in checks.DEVICE_CHECKS}


def _status(finding: Finding) -> str:
    return finding.status or ("pass" if finding.ok else "fail")


def test_two_sound_gpus_pass_every_check(tmp_path: Path) -> None:
    findings = _decide(tmp_path)
    assert {_status(finding) for finding in findings.values()} == {"pass"}
    assert findings["S1.speed"].detail == "224 TFLOP/s, 224 TFLOP/s"


WRONGS: dict[str, tuple[Change, str, str, str]] = {
    "a CPU build": (
        lambda f: f["cuda"].update(torch_cuda=None),
        "S1.cuda",
        "fail",
        "built for the CPU",
    ),
    "one GPU hidden": (
        lambda f: f["cuda"].update(devices=1),
        "S1.cuda",
        "fail",
        "torch sees 1 GPUs, 2 are declared",
    ),
    "CUDA not available": (
        lambda f: f["cuda"].update(available=False, devices=0),
        "S1.cuda",
        "fail",
        "sees 0 GPUs",
    ),
    "no NCCL": (lambda f: f["cuda"].update(nccl=None), "S1.cuda", "fail", "has no NCCL"),
    "the GPUs swapped": (
        lambda f: f["device"].update(uuid="GPU-00000000-1111-2222-3333-444444444444"),
        "S1.device",
        "fail",
        "torch's GPU 1 is GPU-00000000",
    ),
    "another capability": (
        lambda f: f["device"].update(capability=[12, 1]),
        "S1.device",
        "fail",
        "reports capability [12, 1]",
    ),
    "no kernels": (
        lambda f: f["cuda"].update(arch_list=["sm_80", "sm_90"]),
        "S1.arch",
        "fail",
        "torch has no kernels for GPU 1 (sm_120 or one that runs there): sm_80 sm_90",
    ),
    "only PTX": (
        lambda f: f["cuda"].update(arch_list=["sm_90", "compute_90"]),
        "S1.arch",
        "warn",
        "only PTX",
    ),
    "wrong products": (
        lambda f: f["matmul_float32"].update(ratio=1e-4),
        "S1.matmul_fp32",
        "fail",
        "GPU 1 multiplies wrongly in float32: error 0.0001",
    ),
    "a product that is not a number": (
        lambda f: f["matmul_bfloat16"].update(ratio=float("nan")),
        "S1.matmul_bf16",
        "fail",
        "multiplies wrongly in bfloat16",
    ),
    "infinite products": (
        lambda f: f["matmul_bfloat16"].update(non_finite=9),
        "S1.matmul_bf16",
        "fail",
        "9 infinite or undefined",
    ),
    "a wrong word": (
        lambda f: f["memory"].update(wrong=1, first=[77, 16, 17]),
        "S1.memory",
        "fail",
        "1 of 134217728 words read back wrong, the first is 77: 0x10 in place of 0x11",
    ),
    "nothing compared": (lambda f: f["memory"].update(words=0), "S1.memory", "fail", "none"),
    "a slow GPU": (
        lambda f: f["speed"].update(bf16_tflops=150.0),
        "S1.speed",
        "warn",
        "GPU 1 reaches 150 bf16 TFLOP/s, 72% of 209.5",
    ),
    "a crawling GPU": (
        lambda f: f["speed"].update(bf16_tflops=60.0),
        "S1.speed",
        "fail",
        "29% of 209.5",
    ),
    "slow memory": (
        lambda f: f["speed"].update(memory_gb_s=1200.0),
        "S1.speed",
        "warn",
        "1200 GB/s of memory, 67% of 1792",
    ),
    "one GPU behind the other": (
        lambda f: f["speed"].update(bf16_tflops=175.0),
        "S1.speed",
        "warn",
        "GPU 1 reaches 175 bf16 TFLOP/s, another 224",
    ),
}


@pytest.mark.parametrize("name", WRONGS)
def test_each_wrong_shows_in_its_check_alone(name: str, tmp_path: Path) -> None:
    change, check, status, words = WRONGS[name]
    findings = _decide(tmp_path, change)
    assert {n: _status(f) for n, f in findings.items() if _status(f) != "pass"} == {check: status}
    assert words in findings[check].detail


def test_a_gpu_nobody_listed_is_shown_and_not_judged_by_a_guess(tmp_path: Path) -> None:
    facts = {0: _sound(0)}
    facts[0]["device"].update(name="NVIDIA RTX 9090")
    facts[0]["speed"] = {"bf16_tflops": 3.0, "memory_gb_s": 40.0}
    wanted = expected(gpus=1, gpu_host=sound_host(tmp_path))
    finding = next(c for c in checks.DEVICE_CHECKS if c.id == "S1.speed").decide(facts, wanted)
    assert _status(finding) == "pass"
    assert finding.detail == "3 TFLOP/s"
