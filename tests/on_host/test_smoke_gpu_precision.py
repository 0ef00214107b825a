"""The precision ladder: exact inputs, real operations where the CPU has them, and the judgement."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from pyinfra_gpu.on_host.smoke.gpu import checks, formats, precision
from pyinfra_gpu.on_host.smoke.judge.check import Finding
from smoke_gpu_simulated import expected

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
CPU = torch.device("cpu")
_SCALED_MM = torch._scaled_mm
_products: dict[tuple[bytes, ...], Any] = {}


def _product(*operands: Any, **given: Any) -> Any:
    """What the CPU makes of them, once for the same ones: it takes ten seconds for that."""
    key = tuple(bytes(each.reshape(-1).view(torch.uint8).tolist()) for each in operands)
    if key not in _products:
        _products[key] = _SCALED_MM(*operands, **given)
    return _products[key].clone()


@pytest.mark.parametrize("name", ["bf16", "fp8"])
def test_a_real_product_is_as_exact_as_its_format(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "_scaled_mm", _product)
    result = formats.probe(torch, CPU, name)
    assert result["elements"] == 384 * 256
    assert result["non_finite"] == 0
    assert 0 < result["ratio"] < precision.TOLERANCE / 2


def _operand(name: str, rows: int = 256, depth: int = 512) -> formats.Operand:
    generator = torch.Generator().manual_seed(1)
    return formats._MAKERS[name](torch, generator, rows, depth)


def _read(code: int) -> float:
    """Return a 4-bit float by its bits: sign, two of exponent with bias 1, one of mantissa."""
    sign, exponent, mantissa = code >> 3, code >> 1 & 3, code & 1
    size = 2.0 ** (exponent - 1) * (1 + mantissa / 2) if exponent else mantissa / 2
    return -size if sign else size


def _place(row: int, column: int, columns: int) -> int:
    """Return where the scale of a row and column lies, tile by tile."""
    tile = 512 * (row // 128 * (columns // 4) + column // 4)
    return tile + row % 32 * 16 + row % 128 // 32 * 4 + column % 4


@pytest.mark.parametrize(("name", "block"), [("mxfp8", 32), ("nvfp4", 16), ("mxfp4", 32)])
def test_the_exact_values_are_codes_times_their_blocks_scale(name: str, block: int) -> None:
    rows, depth = 128, 256
    operand = _operand(name, rows, depth)
    assert operand.scale is not None
    scales = operand.scale.float().tolist()
    if name == "mxfp8":
        values = operand.data.double().tolist()
    else:
        packed = operand.data.view(torch.uint8).tolist()
        values = [[_read(byte >> s & 15) for byte in row for s in (0, 4)] for row in packed]
    for row in range(rows):
        for column in range(depth):
            scale = scales[_place(row, column // block, depth // block)]
            assert operand.exact[row, column].item() == values[row][column] * scale


@pytest.mark.parametrize(("rows", "columns"), [(128, 4), (256, 16), (384, 32)])
def test_scales_are_laid_out_as_the_tensor_cores_read_them(rows: int, columns: int) -> None:
    scale = torch.rand(rows, columns).to(torch.float8_e4m3fn)
    laid_out = formats.swizzled(torch, scale).float().tolist()
    given = scale.float().tolist()
    for row in range(rows):
        for column in range(columns):
            assert laid_out[_place(row, column, columns)] == given[row][column]


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "mxfp4"])
def test_a_device_without_the_format_refuses_with_an_error_of_its_own(name: str) -> None:
    with pytest.raises((RuntimeError, ValueError, NotImplementedError)):
        formats.probe(torch, CPU, name)


class _Older:
    """Stands for a torch that lacks some names."""

    def __init__(self, *without: str) -> None:
        self._without = without

    def __getattr__(self, name: str) -> Any:
        if name in self._without:
            raise AttributeError(name)
        return getattr(torch, name)


@pytest.mark.parametrize(
    ("name", "lacks"),
    [("mxfp8", "float8_e8m0fnu"), ("nvfp4", "float4_e2m1fn_x2"), ("fp8", "float8_e4m3fn")],
)
def test_a_torch_without_the_type_says_so(name: str, lacks: str) -> None:
    with pytest.raises(formats.MissingError, match=f"has no torch.{lacks}"):
        formats.probe(_Older(lacks), CPU, name)  # type: ignore[arg-type]


def test_a_torch_without_recipes_has_no_mxfp4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.nn.functional, "scaled_mm", raising=False)
    with pytest.raises(formats.MissingError, match=r"no torch.nn.functional.scaled_mm"):
        formats.probe(torch, CPU, "mxfp4")


@pytest.mark.parametrize("wrong", ["a scale", "a transposed product", "zeros"])
def test_wrong_numbers_are_far_outside_the_tolerance(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoiled(a: Any, b: Any, scale_a: Any, scale_b: Any, **given: Any) -> Any:
        if wrong == "a scale":
            return _product(a, b, scale_a * 1.06, scale_b, **given)
        product = _product(a, b, scale_a, scale_b, **given)
        return torch.zeros_like(product) if wrong == "zeros" else product.flip(0)

    monkeypatch.setattr(torch, "_scaled_mm", spoiled)
    assert formats.probe(torch, CPU, "fp8")["ratio"] > 4 * precision.TOLERANCE


RTX_5090 = [12, 0]
MXFP4_GATE = "NotImplementedError: MXFP4 scaling only supported in CUDA for B200/B300"
MXFP4_BUILD = "NotImplementedError: MXFP4 scaling supported on ROCM and CUDA+FBGEMM_GENAI only"
TOO_OLD = (
    "RuntimeError: torch._scaled_mm is only supported on CUDA devices with compute capability "
    ">= 9.0 or 8.9, or ROCm MI300+"
)
# The wording is torch's own (CUDABlas.cpp and its TORCH_CUDABLAS_CHECK); the arguments shortened.
CUBLAS = (
    "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling "
    "`cublasLtMatmulAlgoGetHeuristic( ltHandle, computeDesc.descriptor(), Adesc.descriptor(), ...)`"
)
ARCH = CUBLAS.replace("NOT_SUPPORTED", "ARCH_MISMATCH")
NOT_INITIALIZED = CUBLAS.replace("NOT_SUPPORTED", "NOT_INITIALIZED")
ILLEGAL = "AcceleratorError: CUDA error: an illegal memory access was encountered"
FINE = {"ratio": 2e-3, "non_finite": 0, "tflops": 400.0}


@pytest.mark.parametrize(
    ("name", "outcome", "capability", "status"),
    [
        ("bf16", FINE, RTX_5090, "native"),
        ("nvfp4", FINE, RTX_5090, "native"),
        ("mxfp4", FINE, RTX_5090, "native"),  # what works is native, whatever the table says
        ("nvfp4", FINE | {"ratio": 0.5}, RTX_5090, "failed"),
        ("nvfp4", FINE | {"ratio": float("nan")}, RTX_5090, "failed"),
        ("mxfp8", FINE | {"non_finite": 1}, RTX_5090, "failed"),
        ("mxfp4", FINE | {"ratio": 0.5}, RTX_5090, "failed"),
        ("mxfp4", {"error": MXFP4_GATE}, RTX_5090, "unsupported (expected)"),
        ("mxfp4", {"error": MXFP4_BUILD}, [10, 0], "unsupported (expected)"),
        ("mxfp4", {"error": CUBLAS}, [10, 0], "failed"),
        ("fp8", {"error": TOO_OLD}, [8, 6], "unsupported (expected)"),
        ("mxfp8", {"error": CUBLAS}, RTX_5090, "failed"),
        ("mxfp8", {"error": CUBLAS}, [8, 9], "unsupported (expected)"),
        ("nvfp4", {"error": CUBLAS}, [9, 0], "unsupported (expected)"),
        ("nvfp4", {"error": ARCH}, [8, 9], "unsupported (expected)"),
        ("fp8", {"error": CUBLAS}, [8, 9], "failed"),
        ("nvfp4", {"error": CUBLAS}, None, "failed"),
        ("nvfp4", {"error": NOT_INITIALIZED}, [8, 9], "failed"),
        (
            "mxfp8",
            {"error": "ValueError: Invalid scaling configuration."},
            [9, 0],
            "unsupported (expected)",
        ),
        ("nvfp4", {"error": ILLEGAL}, [9, 0], "failed"),
        ("nvfp4", {"error": "RuntimeError: anything"}, None, "failed"),
        (
            "mxfp8",
            {"missing": "torch 2.6 has no torch.float8_e8m0fnu"},
            RTX_5090,
            "unsupported (expected)",
        ),
        ("fp8", {"crash": "ended with signal 11: without a word"}, [8, 0], "failed"),
    ],
)
def test_each_outcome_has_one_status(
    name: str, outcome: dict[str, Any], capability: list[int] | None, status: str
) -> None:
    judged = precision.judged(name, outcome, capability)
    assert judged["status"] == status
    assert judged["reason"] or status == "native"


def _child(folder: Path, outcomes: dict[str, str]) -> list[str]:
    """Return a command that stands for the child: it does what is written for its format."""
    program = folder / "child.py"
    program.write_text(
        "import json, os, signal, sys, time\n"
        f"outcomes = {outcomes!r}\n"
        "name, device = sys.argv[2], sys.argv[4]\n"
        "assert sys.argv[1::2] == ['--gpu-precision', '--device'] and device == '0'\n"
        "def say(**what):\n"
        "    print('some warning')\n"
        "    print('precision: ' + json.dumps({'capability': [12, 0], **what}))\n"
        "exec(outcomes[name])\n"
    )
    return [sys.executable, str(program)]


_GOOD = "say(ratio=1e-3, non_finite=0, tflops=100)"


def test_a_ladder_tries_each_format_in_a_process_of_its_own(tmp_path: Path) -> None:
    outcomes = {
        "bf16": _GOOD,
        "fp8": f"{_GOOD}; os._exit(0)",
        "mxfp8": _GOOD,
        "nvfp4": "os.kill(os.getpid(), signal.SIGSEGV)",
        "mxfp4": f"say(error={MXFP4_GATE!r})",
    }
    outcomes["fp8"] = _GOOD
    found = precision.ladder(_child(tmp_path, outcomes), os.environ, 0)
    statuses = {name: entry["status"] for name, entry in found["formats"].items()}
    assert statuses == {
        "bf16": "native",
        "fp8": "native",
        "mxfp8": "native",
        "nvfp4": "failed",
        "mxfp4": "unsupported (expected)",
    }
    assert found["best"] == "mxfp8"
    assert found["formats"]["nvfp4"]["reason"] == "ended with signal 11: without a word"
    assert found["capability"] == [12, 0]


def test_a_child_that_hangs_is_ended_and_the_rest_not_run_when_time_is_up(tmp_path: Path) -> None:
    outcomes = dict.fromkeys(formats.FORMATS, "time.sleep(60)")
    found = precision.ladder(_child(tmp_path, outcomes), os.environ, 0, 2.0, limit=3.5)
    statuses = [entry["status"] for entry in found["formats"].values()]
    assert statuses[:2] == ["failed", "failed"]
    assert statuses[2:] == ["not run"] * 3
    assert "did not end within" in found["formats"]["bf16"]["reason"]
    assert found["best"] is None


def test_what_a_child_says_last_explains_its_end() -> None:
    text = "Traceback (most recent call last):\n  ...\nImportError: libcudart.so.13: cannot open\n"
    crash = precision.outcome(1, text)["crash"]
    assert crash.startswith("ended with exit code 1: ")
    assert "ImportError: libcudart.so.13" in crash
    line = "precision: " + json.dumps({"ratio": 1.0})
    assert precision.outcome(-6, f"{line}\nterminate called\n") == {"ratio": 1.0}


def test_the_child_itself_says_what_went_wrong_where_there_is_no_gpu(
    capsys: pytest.CaptureFixture[str],
) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU: tests/gpu runs the child there")
    assert precision.main("bf16", 0) == 0
    found = precision.outcome(0, capsys.readouterr().out)
    assert found["format"] == "bf16"
    assert "CUDA" in found["error"] or "NVIDIA" in found["error"]


def _decide(**statuses: dict[str, Any]) -> Finding:
    entries = {name: {"status": "native", "reason": "", "ratio": 1e-3} for name in formats.FORMATS}
    entries |= statuses
    fact = {"device": 0, "formats": entries, "best": precision.best(entries)}
    check = next(check for check in checks.RUN_CHECKS if check.id == "S4.precision")
    return check.decide({0: {"precision": fact}}, expected())


def _status(finding: Finding) -> str:
    return finding.status or ("pass" if finding.ok else "fail")


def test_what_is_expected_to_be_missing_is_no_degradation() -> None:
    gate = {"status": "unsupported (expected)", "reason": MXFP4_GATE}
    finding = _decide(mxfp4=gate)
    assert _status(finding) == "pass"
    assert finding.detail == "bf16 native, fp8 native, mxfp8 native, nvfp4 native, " + (
        "mxfp4 unsupported; best nvfp4"
    )


def test_a_format_that_fails_without_wrong_numbers_warns_and_names_the_fallback() -> None:
    finding = _decide(
        nvfp4={"status": "failed", "reason": CUBLAS}, mxfp4={"status": "not run", "reason": "-"}
    )
    assert _status(finding) == "warn"
    assert "nvfp4 failed" in finding.detail
    assert finding.detail.endswith("use mxfp8")


@pytest.mark.parametrize("name", formats.FORMATS)
def test_wrong_numbers_fail_in_any_format(name: str) -> None:
    finding = _decide(**{name: {"status": "failed", "reason": "wrong numbers", "ratio": 0.5}})
    assert _status(finding) == "fail"
    assert finding.detail == f"{name} failed: wrong numbers"


def test_without_bf16_nothing_trains() -> None:
    finding = _decide(bf16={"status": "failed", "reason": "ended with signal 11"})
    assert _status(finding) == "fail"
