"""S0 and S5 on GPU hosts: what nvidia-smi, /proc and /sys say before and after the test."""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import nvidia_smi
from .check import Facts, Want, fail, skip, unknown, warn
from .nvidia_smi import Run, bitmask, integer, known, number, reasons
from .xid import pci_address

KINDS_FILE = "kinds.json"
"""Beside this file, in the bundle: what sound GPUs show, see `stacks.bundle.gpu_kinds`."""
_NEEDED_MIB = 6 * 1024
"""Free GPU memory for one process: 1 GiB pattern, 2 GiB to copy, 256 MiB reduced, CUDA itself."""
_MEMORY_TOLERANCE = 0.02
_GROWN_MIB = 1024
"""More than what a driver keeps for itself after a first use."""
_BLACKWELL = 10
"""From this major capability on, only the open kernel modules drive a GPU."""
_DESKTOP = "C+G"
"""A type of process that draws and may compute: a desktop's programs, not somebody's work."""
_HARMFUL = {
    "hw_slowdown": "the hardware halves its clock or worse",
    "sw_thermal_slowdown": "too hot, check fans and air flow",
    "hw_thermal_slowdown": "far too hot, check fans and air flow",
    "hw_power_brake_slowdown": "the power supply asks for less, check its cables",
}
"""What a sound host does not show. Reaching the power limit under load is what GPUs do."""


def _capability(text: str | None) -> list[int] | None:
    found = re.fullmatch(r"(\d+)\.(\d+)", known(text) or "")
    return [int(part) for part in found.groups()] if found else None


_GPU: Mapping[str, tuple[str, Callable[[str | None], Any]]] = {
    "index": ("index", lambda text: -1 if integer(text) is None else integer(text)),
    "uuid": ("uuid", known),
    "name": ("name", lambda text: known(text) or "unnamed GPU"),
    "pci": ("pci.bus_id", lambda text: pci_address(text or "")),
    "driver": ("driver_version", known),
    "cc": ("compute_cap", _capability),
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
    "power_limit_w": ("power.limit", number),
    "throttle_mask": ("clocks_event_reasons.active", bitmask),
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


def kind_of(name: str, kinds: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return what is expected of the GPU nvidia-smi calls `name`, None if it is not known."""
    return next((each for each in kinds if re.search(each["pattern"], name)), None)


def read(run: Run = nvidia_smi.run, root: Path = Path("/")) -> dict[str, Any]:
    """Return the fact `gpu_host`. Never raises: what could not be read is None or an error text.

    + run: how nvidia-smi is called; root: where /proc and /sys are
    """
    found, error = nvidia_smi.read(run, _GPU)
    word = _text(root / "proc/driver/nvidia/version") or ""
    version = re.search(r"NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", word)
    driven = root / "proc/driver/nvidia/gpus"
    nvml = re.search(r"NVML version\s*:\s*([\d.]+)", run(["nvidia-smi", "--version"]).text)
    return {
        "gpus": sorted(found, key=lambda gpu: int(gpu["index"])),
        "error": error,
        "driven": len(list(driven.iterdir())) if driven.is_dir() else None,
        "module": _text(root / "sys/module/nvidia/version") or (version[1] if version else None),
        # The loaded module's own word; a package's name is only that of what is installed.
        "open": "Open Kernel Module" in word if "NVRM version" in word else None,
        "nvml": nvml[1] if nvml else None,
        "processes": _processes(run) if found else None,
        "links": _links(run(["nvidia-smi", "topo", "-m"]).text) if len(found) > 1 else {},
    }


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def _processes(run: Run) -> list[dict[str, Any]] | None:
    """Return the processes with a CUDA context on any GPU, None where that cannot be read."""
    fields = {"pid": ("pid", integer), "name": ("process_name", known)}
    found, error = nvidia_smi.read(run, fields, "compute-apps")
    text = run(["nvidia-smi", "-q", "-d", "PIDS"]).text if found else ""
    types = dict(re.findall(r"Process ID\s*:\s*(\d+)\s+Type\s*:\s*(\S+)", text))
    return None if error else [{**each, "type": types.get(str(each["pid"]))} for each in found]


def _links(text: str) -> dict[str, str]:
    """Return the GPU-to-GPU part of `nvidia-smi topo`, as "0-1" -> "NV18", "PHB", "GNS", ..."""
    # Header cells are underlined with escapes on a terminal, and on some drivers off it too.
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    rows = [line.split() for line in plain.splitlines() if line.startswith("GPU")]
    return {
        f"{row}-{column}": cell
        for row, cells in enumerate(rows)
        for column, cell in enumerate(cells[1 : len(rows) + 1])
        if column > row
    }


def on_nvlink(want: Want) -> str | None:
    """Return the link between two GPUs where NVLink connects all, None elsewhere."""
    links = [*((want.gpu_host.get("links") or {}).values())]
    return links[0] if links and all(way.startswith("NV") for way in links) else None


def tested(want: Want) -> list[Gpu]:
    """Return the GPUs that this test uses, as nvidia-smi lists them."""
    return [gpu for gpu in want.gpu_host.get("gpus", []) if gpu["index"] < max(want.gpus, 1)]


# -- S0


def listed(facts: Facts, want: Want) -> str:
    """Judge whether nvidia-smi lists the GPUs that are declared."""
    host = facts[0]["gpu_host"]
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


def driver(facts: Facts, _: Want) -> str:
    """Judge whether kernel module, management library and nvidia-smi are of one version."""
    host = facts[0]["gpu_host"]
    drivers = sorted({gpu["driver"] for gpu in host["gpus"] if gpu["driver"]})
    module, nvml = host["module"], host["nvml"]
    if len(drivers) != 1:
        unknown("nvidia-smi does not name one driver version")
    driver = drivers[0]
    if module is not None and module != driver:
        fail(f"the loaded module is {module}, the driver's libraries are {driver}: reboot")
    # NVML's version may be the driver's without the last number: 580.95 of 580.95.05.
    if nvml is not None and not f"{driver}.".startswith(f"{nvml}."):
        fail(f"the NVML library is {nvml}, the driver is {driver}")
    need = [gpu["name"] for gpu in host["gpus"] if (gpu["cc"] or [0])[0] >= _BLACKWELL]
    if host["open"] is False and need:
        fail(f"the proprietary kernel module is loaded, {need[0]} needs the open one")
    if module is None or host["open"] is None:
        warn(f"driver {driver}; the loaded module's own version and kind cannot be read")
    return f"driver {driver}, {'open' if host['open'] else 'proprietary'} kernel module"


def state(_: Facts, want: Want) -> str:
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
    size = (kind_of(gpu["name"], want.kinds) or {}).get("memory_mib")
    if None in (total, used):
        yield warn, "its free memory cannot be read"
    elif total - used < _NEEDED_MIB:
        yield fail, f"{total - used} MiB of {total} MiB are free, the test needs {_NEEDED_MIB}"
    elif size and abs(total - size) > _MEMORY_TOLERANCE * size:
        yield warn, f"{total} MiB of memory, a {gpu['name']} has {size}"


def processes(facts: Facts, _: Want) -> str:
    """Judge who else uses the GPUs: somebody's work and this test would disturb each other."""
    found = facts[0]["gpu_host"]["processes"]
    if found is None:
        warn("it cannot be read who else uses the GPUs")
    names = ", ".join(f"{each['name'] or 'a program'} (pid {each['pid']})" for each in found[:3])
    if any(each["type"] != _DESKTOP for each in found):
        unknown(f"GPUs are in use by {names}: try again when that has ended")
    if found:
        warn(f"the GPUs also draw for {names}")
    return "nobody else uses the GPUs"


# -- S5


def after(pids: Collection[int], loaded: Any, run: Run = nvidia_smi.run) -> dict[str, Any]:
    """Return the fact `gpu_after`.

    + pids: every process the test started; those alone can be blamed on it
    + loaded: what rank 0 saw of the GPUs under load, None if it did not come so far
    """
    found, error = nvidia_smi.read(run, _GPU)
    own = [each["pid"] for each in _processes(run) or [] if each["pid"] in pids]
    return {"gpus": found, "error": error, "loaded": loaded, "own": own}


def throttle(facts: Facts, want: Want) -> str:
    """Judge what slowed the GPUs down, under load or, failing that, right afterwards."""
    after = facts[0]["gpu_after"]
    masks = {gpu["index"]: gpu["throttle_mask"] for gpu in after["gpus"]}
    seen = {index: reasons(mask) for index, mask in masks.items() if mask is not None}
    loaded = {int(index): gpu["throttle"] for index, gpu in (after["loaded"] or {}).items()}
    seen |= {index: names for index, names in loaded.items() if names is not None}
    if not seen:
        skip("nvidia-smi does not tell why clocks are low")
    for index, names in seen.items():
        bad = next((name for name in names if name in _HARMFUL), None)
        if bad and index < max(want.gpus, 1):
            warn(f"GPU {index} is slowed down ({bad}): {_HARMFUL[bad]}", index)
    return "under load" if loaded else "right after the test"


def leftovers(facts: Facts, want: Want) -> str:
    """Judge what the test has left on the GPUs."""
    after, before = facts[0]["gpu_after"], want.gpu_host.get("gpus", [])
    if after["error"]:
        fail(f"nvidia-smi, after the test: {after['error']}")
    if len(after["gpus"]) < len(before):
        fail(f"{len(before) - len(after['gpus'])} GPUs are lost")
    if after["own"]:
        fail(f"processes of this test still hold a GPU: {', '.join(map(str, after['own']))}")
    used = {gpu["uuid"]: gpu["memory_used_mib"] for gpu in before}
    for gpu in after["gpus"]:
        now, earlier = gpu["memory_used_mib"], used.get(gpu["uuid"])
        if None not in (now, earlier) and now - earlier > _GROWN_MIB:
            warn(f"memory in use has grown on GPU {gpu['index']}", gpu["index"])
    return "no process and no memory is left"


def xids(facts: Facts, _: Want) -> str:
    """Judge what the kernel said of GPUs meanwhile; see `xid`."""
    events = facts[0]["xids"]
    if events is None:
        skip("the kernel's log cannot be read")
    for serious, sentence in sorted(events, key=lambda event: not event[0]):
        (fail if serious else warn)(sentence)
    return "no new GPU error in the kernel's log"
