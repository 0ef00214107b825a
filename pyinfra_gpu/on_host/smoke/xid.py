"""What the kernel's log says of GPUs: the driver's error numbers (Xid, SXid), PCIe errors (AER).

The numbers are NVIDIA's ("XID errors" in the GPU deployment documentation). What to do about one is
in the catalogue of known failures, which reads the same lines.
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
_HARMLESS = (63, 92, 176)
"""Corrected, and recorded for later: a row to be remapped, corrected memory or link errors."""


def parse(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Return the GPU errors in the kernel log's `lines`, in their order.

    Each has kind ("Xid", "SXid", "PCIe error" or "GPU"), number (None for the last two), pci,
    serious (False: corrected, nothing was lost) and text. An unknown number is serious.
    """
    return [event for event in map(_event, lines) if event is not None]


def _event(line: str) -> dict[str, Any] | None:
    if found := _XID.search(line):
        number, kind = int(found["number"]), found["kind"] or "SXid"
        text = " ".join(filter(None, (found["part"].strip(), (found["text"] or "").strip())))
        serious = kind == "SXid" or number not in _HARMLESS
        if action := _RECOVERY.search(text):
            serious = action["action"].strip().lower() not in ("none", "")
    elif found := _AER.search(line):
        # "Corrected" until Linux 5.x, "Correctable" since; "Uncorrected (Fatal)", ...
        number, kind, serious = None, "PCIe error", not found["severity"].strip().startswith("Corr")
        text = f"{found['severity']}: {found['text'] or 'no type given'}"
    elif found := _FALLEN.search(line):
        number, kind, serious, text = None, "GPU", True, "fallen off the bus"
    else:
        return None
    pci = pci_address(found["pci"]) or found["pci"].lower()
    text = text[:300] or "no text"
    return {"kind": kind, "number": number, "pci": pci, "serious": serious, "text": text}


def pci_address(text: str) -> str | None:
    """Return a PCI address in the kernel's form: "0000:01:00.0" for "00000000:01:00.0", "01:00"."""
    found = re.fullmatch(
        r"(?:([0-9a-f]+):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.(\d))?\.?", text.strip().lower()
    )
    if found is None:
        return None
    return f"{int(found[1] or '0', 16):04x}:{found[2]}:{found[3]}.{found[4] or '0'}"
