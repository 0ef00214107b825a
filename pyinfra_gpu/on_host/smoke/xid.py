"""What the kernel's log says of GPUs: the driver's error numbers (Xid, SXid), PCIe errors (AER).

The numbers are NVIDIA's ("XID errors" in the GPU deployment documentation, nverror.h of the open
kernel modules). A number that is not in the table is reported as unknown, never passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

# Of a GPU that is divided (MIG) the address is followed by whose it is: " GPU-I:05 GPU-CI:01".
_XID = re.compile(
    r"(?:NVRM: (?P<kind>Xid)|SXid) \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)(?P<part>(?: GPU-C?I:\d+)*)\)"
    r": (?P<number>\d+)(?:, (?P<text>.*))?"
)
_AER = re.compile(
    r"\S+ (?P<pci>[0-9a-fA-F]{4}:[0-9a-fA-F:.]+): "
    r"(?:AER: )?PCIe Bus Error: severity=(?P<severity>[^,]+)(?:, type=(?P<text>.*))?"
)
_FALLEN = re.compile(
    r"NVRM: GPU (?:at PCI:)?(?P<pci>[0-9a-fA-F]{4,8}(?::[0-9a-fA-F]{2}){2}(?:\.\d)?)"
    r".*fallen off the bus"
)
_RECOVERY = re.compile(r"changed from \S+ \([^)]*\) to \S+ \((?P<action>[^)]*)\)")
_ADVICE: tuple[tuple[tuple[int, ...], str], ...] = (
    (
        (13, 31, 32, 43, 45, 68, 69, 109),
        "a program did this, or a faulty GPU: run the test again, on this GPU alone",
    ),
    (
        (48, 63, 64, 92, 94, 95, 140, 168, 171, 172),
        "reset the GPU; if it returns, the memory is faulty",
    ),
    ((72, 74, 137, 149, 155, 156), "reseat the NVLink bridge or check the fabric manager"),
    ((62, 119, 120, 143, 169), "power the host off and on; a newer driver"),
    ((154,), "do what the driver asks for"),
    (
        (38, 79, 158, 167, 176),
        "the PCIe link: power cable, riser and seat; try the slot at Gen4",
    ),
)
_OF_NVLINK, _OF_THE_BUS = _ADVICE[2][1], _ADVICE[-1][1]
_UNKNOWN = "look the number up in NVIDIA's list of Xids"
_HARMLESS = (63, 92, 176)
"""Corrected, and recorded for later: a row to be remapped, corrected memory or link errors."""


def parse(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Return the GPU errors in the kernel log's `lines`, in their order.

    Each has kind ("xid", "sxid", "aer", "fallen"), number (None for the last two), pci, serious
    (False: corrected, nothing was lost), text and advice.
    """
    return [event for event in map(_event, lines) if event is not None]


def _event(line: str) -> dict[str, Any] | None:
    if found := _XID.search(line):
        number = int(found["number"])
        text = " ".join(filter(None, (found["part"].strip(), (found["text"] or "").strip())))
        if not found["kind"]:
            return _described("sxid", number, found["pci"], True, text, _OF_NVLINK)
        advice = next((each for numbers, each in _ADVICE if number in numbers), _UNKNOWN)
        serious = number not in _HARMLESS
        if action := _RECOVERY.search(text):
            serious = action["action"].strip().lower() not in ("none", "")
        return _described("xid", number, found["pci"], serious, text or "no text", advice)
    if found := _AER.search(line):
        # "Corrected" until Linux 5.x, "Correctable" since; "Uncorrected (Fatal)", ...
        serious = not found["severity"].strip().startswith("Correct")
        text = f"PCIe error, {found['severity']}: {found['text'] or 'no type given'}"
        return _described("aer", None, found["pci"], serious, text, _OF_THE_BUS)
    if found := _FALLEN.search(line):
        return _described("fallen", None, found["pci"], True, "fallen off the bus", _OF_THE_BUS)
    return None


def _described(
    kind: str, number: int | None, pci: str, serious: bool, text: str, advice: str
) -> dict[str, Any]:
    return {
        "kind": kind,
        "number": number,
        "pci": pci_address(pci) or pci.lower(),
        "serious": serious,
        "text": text[:300],
        "advice": advice,
    }


def pci_address(text: str) -> str | None:
    """Return a PCI address in the kernel's form: "0000:01:00.0" for "00000000:01:00.0", "01:00"."""
    found = re.fullmatch(
        r"(?:([0-9a-f]+):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.(\d))?\.?", text.strip().lower()
    )
    if found is None:
        return None
    return f"{int(found[1] or '0', 16):04x}:{found[2]}:{found[3]}.{found[4] or '0'}"
