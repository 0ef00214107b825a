"""S0 on GPU hosts: what nvidia-smi and /proc say before the test."""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import nvidia_smi
from .check import Fact, Facts, Want, fail, skip, unknown, warn
from .nvidia_smi import Run, integer, known

KINDS_FILE = "kinds.json"
"""Beside this file, in the bundle: what sound GPUs show, see `stacks.bundle.gpu_kinds`."""
_NEEDED_MIB = 6 * 1024
"""Free GPU memory for one process: 1 GiB pattern, 2 GiB to copy, 256 MiB reduced, CUDA itself."""
_MEMORY_TOLERANCE = 0.02
_DESKTOP = "C+G"
"""A type of process that draws and may compute: a desktop's programs, not somebody's work."""


_GPU: nvidia_smi.Fields = {
    "index": ("index", lambda text: -1 if integer(text) is None else integer(text)),
    "uuid": ("uuid", known),
    "name": ("name", lambda text: known(text) or "unnamed GPU"),
    "driver": ("driver_version", known),
    "memory_mib": ("memory.total", integer),
    "memory_used_mib": ("memory.used", integer),
    "compute_mode": ("compute_mode", known),
    "persistence": ("persistence_mode", known),
    "mig": ("mig.mode.current", known),
    "ecc_uncorrected": ("ecc.errors.uncorrected.volatile.total", integer),
    "remap_pending": ("remapped_rows.pending", known),
    "remap_failure": ("remapped_rows.failure", known),
    "gen_max": ("pcie.link.gen.max", integer),
    "width_max": ("pcie.link.width.max", integer),
}
"""A fact of a GPU, nvidia-smi's field for it, and how that is read; None where it is not told."""

_STATES: Mapping[tuple[str, str], tuple[Callable[[str, int], Any], str]] = {
    ("compute_mode", "Prohibited"): (
        fail,
        "compute mode Prohibited forbids this test: {at} -c DEFAULT",
    ),
    ("compute_mode", "Exclusive_Process"): (
        warn,
        "compute mode Exclusive_Process: one program at a time may use it; {at} -c DEFAULT",
    ),
    ("remap_failure", "Yes"): (
        fail,
        "its memory has failed rows that cannot be replaced: exchange the GPU",
    ),
    ("remap_pending", "Yes"): (warn, "failed memory rows wait to be replaced: reset the GPU"),
    ("persistence", "Disabled"): (
        warn,
        "persistence is off, each first use takes seconds: systemctl enable --now "
        "nvidia-persistenced, with --persistence-mode",
    ),
}
"""A fact of a GPU and the value that is wrong -> how that is judged, and what is said."""

Gpu = Mapping[str, Any]


def kinds() -> Sequence[Mapping[str, Any]]:
    """Return what this bundle knows of GPUs; raises OSError where it was packed without."""
    found: list[Mapping[str, Any]] = json.loads(pkgutil.get_data(__package__, KINDS_FILE) or "[]")
    return found


def kind_of(name: str, kinds: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return what is expected of the GPU nvidia-smi calls `name`, nothing if it is not known."""
    return next((each for each in kinds if re.search(each["pattern"], name)), {})


def read(run: Run = nvidia_smi.run, root: Path = Path("/")) -> dict[str, Any]:
    """Return the fact `gpu_host`. Never raises: what could not be read is None or an error text.

    + run: how nvidia-smi is called; root: where /proc is
    """
    found, error = nvidia_smi.read(run, _GPU)
    driven = root / "proc/driver/nvidia/gpus"
    return {
        "gpus": [gpu for gpu in found if gpu["index"] is not None],
        "error": error,
        "driven": len(list(driven.iterdir())) if driven.is_dir() else None,
        "processes": _processes(run) if found else None,
        "links": _links(run(["nvidia-smi", "topo", "-m"]).text) if len(found) > 1 else [],
    }


def _processes(run: Run) -> list[dict[str, Any]] | None:
    """Return the processes with a CUDA context on any GPU, None where that cannot be read."""
    fields = {"pid": ("pid", integer), "name": ("process_name", known)}
    found, error = nvidia_smi.read(run, fields, "compute-apps")
    text = run(["nvidia-smi", "-q", "-d", "PIDS"]).text if found else ""
    types = dict(re.findall(r"Process ID\s*:\s*(\d+)\s+Type\s*:\s*(\S+)", text))
    return None if error else [{**each, "type": types.get(str(each["pid"]))} for each in found]


def _links(text: str) -> list[str]:
    """Return what `nvidia-smi topo` has for each pair of GPUs: "NV18", "PHB", "GNS", ..."""
    # Header cells are underlined with escapes on a terminal, and on some drivers off it too.
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    rows = [line.split() for line in plain.splitlines() if line.startswith("GPU")]
    return [cell for row, cells in enumerate(rows) for cell in cells[row + 2 : len(rows) + 1]]


def on_nvlink(want: Want) -> str | None:
    """Return the link between two GPUs where NVLink connects all, None elsewhere."""
    links = want.gpu_host.get("links")
    return str(links[0]) if links and all(way.startswith("NV") for way in links) else None


def tested(want: Want) -> list[Gpu]:
    """Return the GPUs that this test uses, as nvidia-smi lists them."""
    return [gpu for gpu in want.gpu_host.get("gpus", []) if gpu["index"] < max(want.gpus, 1)]


# -- S0


def listed(mine: Fact, want: Want, _: Facts) -> str:
    """Judge whether nvidia-smi lists the GPUs that are declared."""
    host = mine["gpu_host"]
    names, uuids = ([gpu[key] for gpu in host["gpus"]] for key in ("name", "uuid"))
    counted = f"nvidia-smi lists {len(names)} GPUs"
    if host["error"]:
        fail(f"nvidia-smi: {host['error']}")
    if (host["driven"] or 0) > len(names):
        fail(f"the kernel module drives {host['driven']} GPUs, {counted}")
    if len(names) < want.gpus or not names:
        fail(f"{counted}, {want.gpus} are declared")
    if None in uuids:
        unknown(f"nvidia-smi names no UUID for GPU {uuids.index(None)}")
    if len(set(uuids)) < len(uuids):
        fail("two GPUs have the same UUID")
    if len(names) > want.gpus:
        warn(f"{counted}, only {want.gpus} declared and tested")
    return ", ".join(sorted(set(names)))


def state(_: Fact, want: Want, __: Facts) -> str:
    """Judge the state of the tested GPUs: the first failure counts, or else the first warning."""
    if not (gpus := tested(want)):
        skip("nvidia-smi lists no GPU")
    found = [(gpu["index"], *each) for gpu in gpus for each in _faults(gpu, want)]
    for index, judge, sentence in sorted(found, key=lambda each: each[1] is warn):
        judge(f"GPU {index}: {sentence}", index)
    free = [gpu["memory_mib"] - gpu["memory_used_mib"] for gpu in gpus]
    return f"compute mode, MIG, memory rows, persistence; {min(free)} MiB free"


def _faults(gpu: Gpu, want: Want) -> Iterator[tuple[Callable[[str, int], Any], str]]:
    """Yield what is wrong with one GPU, and whether that fails the test."""
    at = f"nvidia-smi -i {gpu['index']}"
    for (name, value), (judge, sentence) in _STATES.items():
        if gpu[name] == value:
            yield judge, sentence.format(at=at)
    if gpu["mig"] == "Enabled":
        divided = f"it is divided (MIG), and ranks need whole GPUs: {at} -mig 0"
        yield fail if want.ranks > 1 else warn, divided
    if count := gpu["ecc_uncorrected"]:
        yield fail, f"{count} uncorrected memory errors since its last reset: reset the GPU"
    total, used = gpu["memory_mib"], gpu["memory_used_mib"]
    size = kind_of(gpu["name"], want.kinds).get("memory_mib")
    if None in (total, used):
        yield warn, "its free memory cannot be read"
    elif total - used < _NEEDED_MIB:
        yield fail, f"{total - used} MiB of {total} MiB are free, the test needs {_NEEDED_MIB}"
    elif size and abs(total - size) > _MEMORY_TOLERANCE * size:
        yield warn, f"{total} MiB of memory, a {gpu['name']} has {size}"


def processes(mine: Fact, _: Want, __: Facts) -> str:
    """Judge who else uses the GPUs: somebody's work and this test would disturb each other."""
    found = mine["gpu_host"]["processes"]
    if found is None:
        warn("it cannot be read who else uses the GPUs")
    names = ", ".join(f"{each['name'] or 'a program'} (pid {each['pid']})" for each in found[:3])
    if any(each["type"] != _DESKTOP for each in found):
        unknown(f"GPUs are in use by {names}: try again when that has ended")
    if found:
        warn(f"the GPUs also draw for {names}")
    return "nobody else uses the GPUs"
