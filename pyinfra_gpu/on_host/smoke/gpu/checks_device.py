"""S1 on GPU hosts: what each GPU does alone. Facts are keyed by the GPU's index."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..judge.check import Check, Expected, Facts, Finding
from . import expected as known
from .device import covers

MATMUL_BOUNDS = {"float32": 2.0**-20, "bfloat16": 2.0**-8}
"""On |error| / (|A| |B|) for sums of 512 products. Single precision shows some 1e-7 and TF32 in
its place 1e-4; bfloat16's result is rounded to 2^-9, and twice that covers a split sum."""


def host_gpu(expected: Expected, index: int) -> Mapping[str, Any]:
    """Return what nvidia-smi says of the GPU `index`, empty if it does not list it."""
    gpus = (expected.gpu_host or {}).get("gpus", [])
    return next((gpu for gpu in gpus if gpu["index"] == index), {})


def _warn(measured: Any, wanted: Any, detail: str, index: int) -> Finding:
    return Finding(True, measured, wanted, detail, index, status="warn")


def _cuda(facts: Facts, expected: Expected) -> Finding:
    for index, fact in facts.items():
        cuda = fact["cuda"]
        if cuda["torch_cuda"] is None:
            detail = f"torch {cuda['torch']} is built for the CPU: install one built for CUDA"
            return Finding(False, None, "a CUDA version", detail, index)
        if not cuda["available"] or cuda["devices"] < expected.gpus:
            detail = f"torch sees {cuda['devices']} GPUs, {expected.gpus} are declared"
            return Finding(False, cuda["devices"], expected.gpus, detail, index)
    nccl = ".".join(map(str, cuda["nccl"] or [])) or None
    if nccl is None:
        return Finding(False, None, "an NCCL version", f"torch {cuda['torch']} has no NCCL")
    measured = {"cuda": cuda["torch_cuda"], "nccl": nccl, "cudnn": cuda["cudnn"]}
    return Finding(True, measured, None, f"CUDA {cuda['torch_cuda']}, NCCL {nccl}")


def _device(facts: Facts, expected: Expected) -> Finding:
    """Whether torch's GPU n is nvidia-smi's GPU n, and a GPU of a known kind what it must be."""
    for index, fact in facts.items():
        device, host = fact["device"], host_gpu(expected, index)
        if host.get("mig") == "Enabled":
            continue  # torch names the part it may use, nvidia-smi the whole
        if device["uuid"] is not None and host.get("uuid") != device["uuid"]:
            detail = f"torch's GPU {index} is {device['uuid']}, nvidia-smi's {host.get('uuid')}"
            return Finding(False, device["uuid"], host.get("uuid"), detail, index)
        kind = known.kind_of(device["name"], expected.gpu_kinds)
        if kind and [*device["capability"]] != [*kind.capability]:
            detail = f"{device['name']} reports capability {device['capability']}"
            return Finding(False, device["capability"], [*kind.capability], detail, index)
    names = [fact["device"]["name"] for fact in facts.values()]
    return Finding(True, names, None, names[0] if len(set(names)) == 1 else ", ".join(names))


def _arch(facts: Facts, _: Expected) -> Finding:
    for index, fact in facts.items():
        archs, capability = fact["cuda"]["arch_list"], tuple(fact["device"]["capability"])
        wanted = f"sm_{capability[0]}{capability[1]} or one that runs there"
        way = covers(archs, (capability[0], capability[1]))
        if way is None:
            detail = f"torch has no kernels for GPU {index} ({wanted}): {' '.join(archs)}"
            return Finding(False, archs, wanted, detail, index)
        if way == "ptx":
            detail = f"torch has only PTX for GPU {index}, compiled at first use: {' '.join(archs)}"
            return _warn(archs, wanted, detail, index)
    return Finding(True, archs, wanted, wanted.partition(" ")[0])


def _matmul(kind: str) -> Callable[[Facts, Expected], Finding]:
    bound = MATMUL_BOUNDS[kind]

    def decide(facts: Facts, _: Expected) -> Finding:
        for index, fact in facts.items():
            result = fact[f"matmul_{kind}"]
            ratio = result["ratio"]
            if result["non_finite"] or not ratio <= bound:
                what = (
                    f"{result['non_finite']} infinite or undefined" if result["non_finite"] else ""
                )
                detail = f"GPU {index} multiplies wrongly in {kind}: {what or f'error {ratio:.2g}'}"
                return Finding(False, ratio, bound, f"{detail}, bound {bound:.2g}", index)
        largest = max(fact[f"matmul_{kind}"]["ratio"] for fact in facts.values())
        return Finding(True, largest, bound, f"error {largest:.1e}, bound {bound:.1e}")

    return decide


def _memory(facts: Facts, _: Expected) -> Finding:
    for index, fact in facts.items():
        result = fact["memory"]
        if result["wrong"]:
            place, measured, wanted = result["first"]
            detail = (
                f"GPU {index}: {result['wrong']} of {result['words']} words read back wrong, "
                f"the first is {place}: {measured:#x} in place of {wanted:#x}"
            )
            return Finding(False, result["wrong"], 0, detail, index)
        if not result["words"]:
            return Finding(False, 0, "words compared", f"GPU {index} compared none", index)
    return Finding(True, 0, 0, f"{result['bytes'] // 2**20} MiB, {result['passes']} passes")


def _speed(facts: Facts, expected: Expected) -> Finding:
    """Against what a GPU of this kind shows; of an unknown kind, only shown."""
    measured = {
        index: {key: fact["speed"][key] for key in ("bf16_tflops", "memory_gb_s")}
        for index, fact in facts.items()
    }
    shown = {index: f"{m['bf16_tflops']:.0f} TFLOP/s" for index, m in measured.items()}
    slow = None
    for index, fact in facts.items():
        kind = known.kind_of(fact["device"]["name"], expected.gpu_kinds)
        if kind is None:
            continue
        figures = {"bf16_tflops": kind.bf16_tflops, "memory_gb_s": kind.memory_gb_s}
        for key, nominal in figures.items():
            share = measured[index][key] / nominal
            if share >= kind.warn:
                continue
            detail = (
                f"GPU {index} reaches {measured[index][key]:.0f} {_UNITS[key]}, "
                f"{share:.0%} of {nominal:g} ({kind.source})"
            )
            if share < kind.fail:
                return Finding(False, measured, nominal, detail, index)
            slow = slow or _warn(measured, nominal, detail, index)
    return slow or _uneven(measured) or Finding(True, measured, None, ", ".join(shown.values()))


_UNITS = {"bf16_tflops": "bf16 TFLOP/s", "memory_gb_s": "GB/s of memory"}
_APART = 0.85
"""Equal GPUs differ by less, in silicon and cooling; the slowest sets everyone's pace."""


def _uneven(measured: Mapping[int, Mapping[str, float]]) -> Finding | None:
    slowest = min(measured, key=lambda index: measured[index]["bf16_tflops"])
    fastest = max(m["bf16_tflops"] for m in measured.values())
    reached = measured[slowest]["bf16_tflops"]
    if reached >= _APART * fastest:
        return None
    detail = f"GPU {slowest} reaches {reached:.0f} bf16 TFLOP/s, another {fastest:.0f}"
    return _warn(measured, f"at least {_APART:.0%} of the fastest", detail, slowest)


DEVICE_CHECKS: tuple[Check, ...] = (
    Check("S1.cuda", ("cuda",), _cuda, each=True),
    Check("S1.device", ("device",), _device, each=True),
    Check("S1.arch", ("cuda", "device"), _arch, each=True),
    Check("S1.matmul_fp32", ("matmul_float32",), _matmul("float32"), each=True),
    Check("S1.matmul_bf16", ("matmul_bfloat16",), _matmul("bfloat16"), each=True),
    Check("S1.memory", ("memory",), _memory, each=True),
    Check("S1.speed", ("device", "speed"), _speed, each=True),
)
