"""What the kernel log says of GPUs: the driver's error numbers (Xid, SXid) and PCIe errors (AER).

The numbers are NVIDIA's ("XID errors" in the GPU deployment documentation, nverror.h of the open
kernel modules). A number that is not in the table is reported as unknown, never passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

# Of a GPU that is divided (MIG) the address is followed by whose it is: " GPU-I:05 GPU-CI:01".
_WHERE = r"\((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)(?P<part>(?: GPU-C?I:\d+)*)\)"
_REST = r"(?P<number>\d+)(?:, (?P<text>.*))?"
_XID = re.compile(rf"NVRM: Xid {_WHERE}: {_REST}")
_SXID = re.compile(rf"SXid {_WHERE}: {_REST}")
_AER = re.compile(
    r"(?P<driver>\S+) (?P<pci>[0-9a-fA-F]{4}:[0-9a-fA-F:.]+): "
    r"(?:AER: )?PCIe Bus Error: severity=(?P<severity>[^,]+)(?:, type=(?P<text>.*))?"
)
_FALLEN = re.compile(
    r"NVRM: GPU (?:at PCI:)?(?P<pci>[0-9a-fA-F]{4,8}(?::[0-9a-fA-F]{2}){2}(?:\.\d)?)"
    r".*fallen off the bus"
)
_PID = re.compile(r"pid='?(?P<pid>\d+)")
_RECOVERY = re.compile(r"changed from \S+ \([^)]*\) to \S+ \((?P<action>[^)]*)\)")

_CLASSES = {
    "application": (13, 31, 32, 43, 45, 68, 69, 109),
    "memory": (48, 63, 64, 92, 94, 95, 140, 168, 171, 172),
    "bus": (38, 79, 158, 167, 176),
    "nvlink": (72, 74, 137, 149, 155, 156),
    "firmware": (62, 119, 120, 143, 169),
    "recovery": (154,),
}
_HARMLESS = frozenset({63, 92, 176})
"""Corrected, and recorded for later: a row to be remapped, corrected memory or link errors."""
_ADVICE = {
    "application": "a program did this, or a faulty GPU: run the test again, on this GPU alone",
    "memory": "reset the GPU; if it returns, the memory is faulty",
    "bus": "the PCIe link: power cable, riser and seat; try the slot at Gen4",
    "nvlink": "reseat the NVLink bridge or check the fabric manager",
    "firmware": "power the host off and on; a newer driver",
    "recovery": "do what the driver asks for",
    "unknown": "look the number up in NVIDIA's list of Xids",
}


def parse(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Return the GPU errors in the kernel log's `lines`, in their order.

    Each has kind ("xid", "sxid", "aer", "fallen"), number (None for the last two), class, pci,
    pid (None if not said), serious (False: corrected, nothing was lost), text and advice.
    """
    return [event for event in map(_event, lines) if event is not None]


def _event(line: str) -> dict[str, Any] | None:
    if found := _XID.search(line):
        return _xid("xid", found)
    if found := _SXID.search(line):
        return _xid("sxid", found)
    if found := _AER.search(line):
        # "Corrected" until Linux 5.x, "Correctable" since; "Uncorrected (Fatal)", ...
        serious = not found["severity"].strip().startswith("Correct")
        text = f"PCIe error, {found['severity']}: {found['text'] or 'no type given'}"
        return _described("aer", None, "bus", found["pci"], None, serious, text)
    if found := _FALLEN.search(line):
        return _described("fallen", None, "bus", found["pci"], None, True, "fallen off the bus")
    return None


def _xid(kind: str, found: re.Match[str]) -> dict[str, Any]:
    number = int(found["number"])
    text = " ".join(filter(None, (found["part"].strip(), (found["text"] or "").strip())))
    group = _class(number) if kind == "xid" else "nvlink"
    serious = number not in _HARMLESS or kind == "sxid"
    if action := _RECOVERY.search(text):
        serious = action["action"].strip().lower() not in ("none", "")
    pid = _PID.search(text)
    known = text or ("" if group != "unknown" else f"unknown Xid {number}")
    process = int(pid["pid"]) if pid else None
    return _described(kind, number, group, found["pci"], process, serious, known)


def _class(number: int) -> str:
    return next((name for name, numbers in _CLASSES.items() if number in numbers), "unknown")


def _described(
    kind: str,
    number: int | None,
    group: str,
    pci: str,
    pid: int | None,
    serious: bool,
    text: str,
) -> dict[str, Any]:
    return {
        "kind": kind,
        "number": number,
        "class": group,
        "pci": _normal(pci),
        "pid": pid,
        "serious": serious,
        "text": text[:300],
        "advice": _ADVICE[group],
    }


def _normal(pci: str) -> str:
    """Return "0000:01:00.0" for the log's "0000:01:00" and "00000000:01:00.0"."""
    parts = pci.lower().rstrip(".").split(":")
    if len(parts) != 3:
        return pci.lower()
    device, _, function = parts[2].partition(".")
    return f"{int(parts[0], 16):04x}:{parts[1]}:{device}.{function or '0'}"
