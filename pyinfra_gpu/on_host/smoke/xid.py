"""What the kernel's log says of GPUs: the driver's error numbers (Xid), PCIe errors (AER).

The numbers are NVIDIA's ("XID errors" in the GPU deployment documentation). What to do about one is
in the catalogue of known failures, which reads the same lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_PCI = r"(?P<pci>[0-9a-fA-F]{4,8}(?::[0-9a-fA-F]{2}){2}(?:\.\d)?)"
# Of a GPU that is divided (MIG) the address is followed by whose it is: " GPU-I:05 GPU-CI:01".
_XID = re.compile(rf"NVRM: Xid \((?:PCI:)?{_PCI}[^)]*\): (?P<number>\d+)(?:, (?P<text>.*))?")
_AER = re.compile(rf"\S+ {_PCI}: (?:AER: )?PCIe Bus Error: severity=(?P<text>[^,]+, type=.*)")
_FALLEN = re.compile(rf"NVRM: GPU (?:at PCI:)?{_PCI}.*fallen off the bus")
_HARMLESS = ("63", "92", "176")
"""Corrected, and recorded for later: a row to be remapped, corrected memory or link errors."""
_NO_ACTION = re.compile(r"recovery action changed .* to \S+ \(None\)")


def parse(lines: Iterable[str]) -> list[tuple[bool, str]]:
    """Return the GPU errors in the kernel log's `lines`, in their order.

    Each is whether it is serious (else it was corrected, and nothing was lost), and a sentence. An
    unknown number is serious.
    """
    return [event for line in lines for event in _events(line)]


def _events(line: str) -> Iterator[tuple[bool, str]]:
    if found := _XID.search(line):
        number, text = found["number"], found["text"] or "no text"
        serious = number not in _HARMLESS and not _NO_ACTION.search(text)
        yield serious, f"Xid {number} on {pci_address(found['pci'])}: {text[:300]}"
    elif found := _AER.search(line):
        # "Corrected" until Linux 5.x, "Correctable" since; "Uncorrected (Fatal)", ...
        text = found["text"].strip()
        serious = not text.startswith("Corr")
        yield serious, f"PCIe error on {pci_address(found['pci'])}: {text[:300]}"
    elif found := _FALLEN.search(line):
        yield True, f"GPU on {pci_address(found['pci'])}: fallen off the bus"


def pci_address(text: str) -> str | None:
    """Return a PCI address in the kernel's form: "0000:01:00.0" for "00000000:01:00.0"."""
    found = re.fullmatch(r"([0-9a-f]+):([0-9a-f]{2}):([0-9a-f]{2})(?:\.(\d))?", text.lower())
    if found is None:
        return None
    return f"{int(found[1], 16):04x}:{found[2]}:{found[3]}.{found[4] or '0'}"
