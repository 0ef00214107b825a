"""S0 on GPU hosts: whether the GPUs, their driver and their users let a test begin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..judge.check import Check, Expected, Facts, Finding
from . import expected as known
from .ranks import REHEARSAL_1GPU

NEEDED_MIB = 6 * 1024
"""Free GPU memory for one process: 1 GiB pattern, 2 GiB to copy, 256 MiB reduced, CUDA itself."""

Gpu = Mapping[str, Any]
_BLACKWELL = 10
"""From this major capability on, only the open kernel modules drive a GPU."""


def _host(facts: Facts) -> Mapping[str, Any]:
    found: Mapping[str, Any] = facts[0]["gpu_host"]
    return found


def _warn(measured: Any, expected: Any, detail: str) -> Finding:
    return Finding(True, measured, expected, detail, status="warn")


def _gpus(facts: Facts, expected: Expected) -> Finding:
    host = _host(facts)
    names = [gpu["name"] for gpu in host["gpus"]]
    module = host["seen_by_module"]
    if host["error"]:
        return Finding(False, names, expected.gpus, f"nvidia-smi: {host['error']}")
    if module is not None and len(module) > len(names):
        detail = f"the kernel module drives {len(module)} GPUs, nvidia-smi lists {len(names)}"
        return Finding(False, len(names), len(module), detail)
    if len(names) < expected.gpus or not names:
        detail = f"nvidia-smi lists {len(names)} GPUs, {expected.gpus} are declared"
        return Finding(False, len(names), expected.gpus, detail)
    if len(names) > expected.gpus:
        detail = f"nvidia-smi lists {len(names)} GPUs, only {expected.gpus} declared and tested"
        return _warn(len(names), expected.gpus, detail)
    return Finding(True, names, expected.gpus, ", ".join(sorted(set(names))))


def _nothing_to_look_at(wanted: str) -> Finding:
    """Return the skip of a check of GPUs where none is listed, which S0.gpus fails."""
    return Finding(True, None, wanted, "nvidia-smi lists no GPU", status="skip")


def _uuids(facts: Facts, _: Expected) -> Finding:
    uuids = [gpu["uuid"] for gpu in _host(facts)["gpus"]]
    if not uuids:
        return _nothing_to_look_at("distinct")
    if None in uuids:
        detail = f"nvidia-smi names no UUID for GPU {uuids.index(None)}"
        return Finding(False, uuids, "one UUID a GPU", detail, status="unknown")
    distinct = len(set(uuids)) == len(uuids)
    detail = "" if distinct else "two GPUs have the same UUID"
    return Finding(distinct, uuids, "distinct", detail)


def _driver(facts: Facts, _: Expected) -> Finding:
    """Whether kernel module, management library and what nvidia-smi reports are one version."""
    host = _host(facts)
    drivers = sorted({gpu["driver"] for gpu in host["gpus"] if gpu["driver"]})
    module, library = host["module"], host["versions"].get("nvml")
    measured = {"driver": drivers, "module": module, "nvml": library}
    if len(drivers) != 1:
        detail = "nvidia-smi does not name one driver version"
        return Finding(False, measured, "one version", detail, status="unknown")
    driver = drivers[0]
    if module is not None and module != driver:
        detail = f"the loaded module is {module}, the driver's libraries are {driver}: reboot"
        return Finding(False, measured, driver, detail)
    if library is not None and not _same(library, driver):
        detail = f"the NVML library is {library}, the driver is {driver}"
        return Finding(False, measured, driver, detail)
    if module is None:
        detail = f"driver {driver}; the loaded module's own version cannot be read"
        return _warn(measured, driver, detail)
    return Finding(True, measured, driver, f"driver {driver}")


def _same(library: str, driver: str) -> bool:
    """NVML's version may be the driver's without the last number: 580.95 of 580.95.05."""
    return driver == library or driver.startswith(f"{library}.")


def _open_module(facts: Facts, _: Expected) -> Finding:
    host = _host(facts)
    kind = host["module_kind"]
    need = [gpu["name"] for gpu in host["gpus"] if _major(gpu) >= _BLACKWELL]
    if kind is None:
        return _warn(None, "open", "the loaded module's kind cannot be read")
    if kind == "proprietary" and need:
        detail = f"the proprietary kernel module is loaded, {need[0]} needs the open one"
        return Finding(False, kind, "open", detail)
    return Finding(True, kind, "open" if need else "open or proprietary", f"{kind} kernel module")


def _major(gpu: Gpu) -> int:
    return int(gpu["capability"][0]) if gpu["capability"] else 0


Bad = Callable[[Gpu, Expected], tuple[str, str] | None]
"""Returns (status, sentence) of a GPU on which something is wrong, None of a sound one."""


def _each_gpu(key: str, wanted: str, bad: Bad) -> Callable[[Facts, Expected], Finding]:
    """Judge every tested GPU's `key`; the first failure counts, or else the first warning."""

    def decide(facts: Facts, expected: Expected) -> Finding:
        gpus = _tested(_host(facts)["gpus"], expected)
        if not gpus:
            return _nothing_to_look_at(wanted)
        measured = [gpu[key] for gpu in gpus]
        found = [(gpu["index"], *verdict) for gpu in gpus if (verdict := bad(gpu, expected))]
        for level in ("fail", "unknown", "warn"):
            for index, status, sentence in found:
                if status == level:
                    detail = f"GPU {index}: {sentence}"
                    override = None if status == "fail" else status
                    return Finding(status == "warn", measured, wanted, detail, index, override)
        return Finding(True, measured, wanted)

    return decide


def _tested(gpus: Iterable[Gpu], expected: Expected) -> list[Gpu]:
    return [gpu for gpu in gpus if gpu["index"] < max(expected.gpus, 1)]


def _compute_mode(gpu: Gpu, expected: Expected) -> tuple[str, str] | None:
    mode = gpu["compute_mode"]
    fix = f"nvidia-smi -i {gpu['index']} -c DEFAULT"
    if mode == "Default":
        return None
    if mode is None:
        return "warn", "its compute mode cannot be read"
    if mode == "Exclusive_Process" and expected.mode != REHEARSAL_1GPU:
        return "warn", f"compute mode {mode}: one program at a time may use it; {fix}"
    return "fail", f"compute mode {mode} forbids this test: {fix}"


def _mig(gpu: Gpu, expected: Expected) -> tuple[str, str] | None:
    if gpu["mig"] != "Enabled":
        return None
    sentence = "it is divided (MIG), and ranks need whole GPUs: nvidia-smi -i {} -mig 0"
    status = "warn" if expected.mode == REHEARSAL_1GPU else "fail"
    return status, sentence.format(gpu["index"])


def _ecc(gpu: Gpu, _: Expected) -> tuple[str, str] | None:
    if gpu["remap_failure"] == "Yes":
        return "fail", "its memory has failed rows that cannot be replaced: exchange the GPU"
    if gpu["ecc_uncorrected"]:
        count = gpu["ecc_uncorrected"]
        return "fail", f"{count} uncorrected memory errors since its last reset: reset the GPU"
    if gpu["remap_pending"] == "Yes":
        return "warn", "failed memory rows wait to be replaced: reset the GPU"
    return None


def _memory(gpu: Gpu, expected: Expected) -> tuple[str, str] | None:
    total, used = gpu["memory_mib"], gpu["memory_used_mib"]
    needed = NEEDED_MIB * (2 if expected.mode == REHEARSAL_1GPU else 1)
    if total is None or used is None:
        return "warn", "its free memory cannot be read"
    if total - used < needed:
        return "fail", f"{total - used} MiB of {total} MiB are free, the test needs {needed}"
    kind = known.kind_of(gpu["name"], expected.gpu_kinds)
    size = kind.memory_mib if kind else None
    if size and abs(total - size) > known.MEMORY_TOLERANCE * size:
        return "warn", f"{total} MiB of memory, a {gpu['name']} has {size}"
    return None


def _persistence(gpu: Gpu, _: Expected) -> tuple[str, str] | None:
    if gpu["persistence"] == "Disabled":
        fix = "systemctl enable --now nvidia-persistenced, with --persistence-mode"
        return "warn", f"persistence is off, each first use takes seconds: {fix}"
    return None


def _processes(facts: Facts, _: Expected) -> Finding:
    """Whether somebody computes here. Their work and this test would disturb each other."""
    processes = _host(facts)["processes"]
    if processes is None:
        return _warn(None, [], "it cannot be read who else uses the GPUs")
    if not processes:
        return Finding(True, [], [], "nobody else uses the GPUs")
    computing = [process for process in processes if process["type"] != _DESKTOP]
    if not computing:
        return _warn(processes, [], f"the GPUs also draw for {_names(processes)}")
    detail = f"GPUs are in use by {_names(computing)}: try again when that has ended"
    return Finding(False, processes, [], detail, status="unknown")


_DESKTOP = "C+G"
"""A type of process that draws and may compute: a desktop's programs, not somebody's work."""


def _names(processes: list[dict[str, Any]]) -> str:
    return ", ".join(f"{p['name'] or 'a program'} (pid {p['pid']})" for p in processes[:3])


_NEEDS = ("gpu_host",)
HOST_CHECKS: tuple[Check, ...] = (
    Check("S0.gpus", _NEEDS, _gpus),
    Check("S0.gpu_uuids", _NEEDS, _uuids),
    Check("S0.driver", _NEEDS, _driver),
    Check("S0.open_module", _NEEDS, _open_module),
    Check("S0.compute_mode", _NEEDS, _each_gpu("compute_mode", "Default", _compute_mode)),
    Check("S0.mig", _NEEDS, _each_gpu("mig", "not Enabled", _mig)),
    Check("S0.ecc", _NEEDS, _each_gpu("ecc_uncorrected", "no memory errors", _ecc)),
    Check("S0.gpu_processes", _NEEDS, _processes),
    Check("S0.gpu_memory", _NEEDS, _each_gpu("memory_used_mib", "enough free", _memory)),
    Check("S0.persistence", _NEEDS, _each_gpu("persistence", "Enabled", _persistence)),
)
