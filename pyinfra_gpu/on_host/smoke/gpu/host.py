"""What a GPU host says of itself before and after the test: nvidia-smi, /proc and /sys."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from . import nvidia_smi
from .nvidia_smi import Run, integer, known, number

_FIELDS = (
    *("index", "uuid", "name", "pci.bus_id", "driver_version", "compute_cap"),
    *("memory.total", "memory.used", "compute_mode", "persistence_mode", "mig.mode.current"),
    *("ecc.mode.current", "ecc.errors.uncorrected.volatile.total"),
    *("remapped_rows.pending", "remapped_rows.failure"),
    *("pcie.link.gen.current", "pcie.link.gen.max", "pcie.link.gen.gpumax"),
    *("pcie.link.width.current", "pcie.link.width.max"),
    *("power.limit", "temperature.gpu", "clocks_event_reasons.active"),
)
_PROCESS_FIELDS = ("pid", "process_name", "used_gpu_memory", "gpu_uuid")


def read(run: Run = nvidia_smi.run, root: Path = Path("/")) -> dict[str, Any]:
    """Return the fact `gpu_host`. Never raises: what could not be read is None or an error text.

    + run: how nvidia-smi is called
    + root: where /proc and /sys are
    """
    table = nvidia_smi.query(run, "gpu", _FIELDS)
    gpus = [_gpu(row) for row in table.rows]
    many = len(gpus) > 1
    return {
        "gpus": sorted(gpus, key=lambda gpu: gpu["index"]),
        "error": table.error,
        "seen_by_module": _seen_by_module(root),
        "module": _text(root / "sys/module/nvidia/version") or _module_version(root),
        "module_kind": module_kind(_text(root / "proc/driver/nvidia/version")),
        "versions": nvidia_smi.versions(run(["nvidia-smi", "--version"]).text) if gpus else {},
        "processes": _processes(run) if gpus else None,
        "links": _links(run) if many else {},
    }


def _gpu(row: Mapping[str, str]) -> dict[str, Any]:
    """Return one GPU's facts; what this driver or GPU does not tell is None."""
    return {
        "index": integer(row["index"]) if integer(row.get("index")) is not None else -1,
        "uuid": known(row.get("uuid")),
        "name": known(row.get("name")) or "unnamed GPU",
        "pci": pci_address(row.get("pci.bus_id", "")),
        "driver": known(row.get("driver_version")),
        "capability": _capability(row.get("compute_cap")),
        "memory_mib": integer(row.get("memory.total")),
        "memory_used_mib": integer(row.get("memory.used")),
        "compute_mode": known(row.get("compute_mode")),
        "persistence": known(row.get("persistence_mode")),
        "mig": known(row.get("mig.mode.current")),
        "ecc": known(row.get("ecc.mode.current")),
        "ecc_uncorrected": integer(row.get("ecc.errors.uncorrected.volatile.total")),
        "remap_pending": known(row.get("remapped_rows.pending")),
        "remap_failure": known(row.get("remapped_rows.failure")),
        "gen_max": integer(row.get("pcie.link.gen.max")),
        "gen_gpu_max": integer(row.get("pcie.link.gen.gpumax")),
        "width_max": integer(row.get("pcie.link.width.max")),
        "gen_idle": integer(row.get("pcie.link.gen.current")),
        "width_idle": integer(row.get("pcie.link.width.current")),
        "power_limit_w": number(row.get("power.limit")),
        "temperature_c": integer(row.get("temperature.gpu")),
        "throttle_mask": nvidia_smi.bitmask(row.get("clocks_event_reasons.active")),
    }


def _capability(text: str | None) -> list[int] | None:
    found = re.fullmatch(r"(\d+)\.(\d+)", known(text) or "")
    return [int(found[1]), int(found[2])] if found else None


def pci_address(text: str) -> str | None:
    """Return a PCI address in the kernel's form, "0000:01:00.0" for "00000000:01:00.0"."""
    found = re.fullmatch(
        r"(?:([0-9a-f]+):)?([0-9a-f]{2}):([0-9a-f]{2})\.(\d)", text.strip().lower()
    )
    return f"{int(found[1] or '0', 16):04x}:{found[2]}:{found[3]}.{found[4]}" if found else None


def module_kind(version_file: str | None) -> str | None:
    """Return "open" or "proprietary" from /proc/driver/nvidia/version, None if it cannot be told.

    The file is the loaded module's own word; a package's name is only that of what is installed.
    """
    if version_file is None or "NVRM version" not in version_file:
        return None
    return "open" if "Open Kernel Module" in version_file else "proprietary"


def _module_version(root: Path) -> str | None:
    """Return the module's version where sysfs does not show it (some containers)."""
    text = _text(root / "proc/driver/nvidia/version") or ""
    found = re.search(r"NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return found[1] if found else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def _seen_by_module(root: Path) -> list[str] | None:
    """Return the PCI addresses of the GPUs the loaded module drives."""
    try:
        entries = list((root / "proc/driver/nvidia/gpus").iterdir())
    except OSError:
        return None
    return sorted(entry.name for entry in entries)


def _processes(run: Run) -> list[dict[str, Any]] | None:
    """Return the processes with a CUDA context on any GPU, None where that cannot be read."""
    table = nvidia_smi.query(run, "compute-apps", _PROCESS_FIELDS)
    if table.error is not None:
        return None
    kinds = nvidia_smi.process_types(
        run(["nvidia-smi", "-q", "-d", "PIDS"]).text if table.rows else ""
    )
    return [
        {
            "pid": integer(row.get("pid")),
            "type": kinds.get(integer(row.get("pid"))),
            "name": known(row.get("process_name")),
            "memory_mib": integer(row.get("used_gpu_memory")),
            "uuid": known(row.get("gpu_uuid")),
        }
        for row in table.rows
    ]


def _links(run: Run) -> dict[str, str] | None:
    """Return how each two GPUs are connected, None where that cannot be read."""
    answer = run(["nvidia-smi", "topo", "-m"])
    return nvidia_smi.matrix(answer.text) or None if answer.ok else None


def shm_files(directory: Path = Path("/dev/shm")) -> list[str] | None:  # noqa: S108 - NCCL's own
    """Return the names of NCCL's shared-memory segments, None where they cannot be listed."""
    try:
        return sorted(path.name for path in directory.iterdir() if path.name.startswith("nccl-"))
    except OSError:
        return None


def after(
    before: Mapping[str, Any],
    own_pids: Collection[int],
    files_before: Collection[str] | None,
    loaded: Mapping[str, Any] | None = None,
    run: Run = nvidia_smi.run,
    directory: Path = Path("/dev/shm"),  # noqa: S108
) -> dict[str, Any]:
    """Return the fact `gpu_after`: what the test has left, compared with the fact `before`.

    + own_pids: every process the test started; those alone can be blamed on it
    + files_before: `shm_files` as it was before the test
    + loaded: "link" of rank 0's fact `bandwidth`, what was seen under load; None if it has none
    """
    table = nvidia_smi.query(run, "gpu", _FIELDS)
    processes = _processes(run) if table.rows else None
    files = shm_files(directory)
    readable = files is not None and files_before is not None
    return {
        "gpus": [_gpu(row) for row in table.rows],
        "error": table.error,
        "loaded": None if loaded is None else dict(loaded),
        "expected_gpus": len(before["gpus"]),
        "own_processes": _own(processes, own_pids),
        "shm_left": sorted(set(files or ()) - set(files_before or ())) if readable else None,
    }


def _own(
    processes: list[dict[str, Any]] | None, own_pids: Collection[int]
) -> list[dict[str, Any]] | None:
    return None if processes is None else [p for p in processes if p["pid"] in own_pids]
