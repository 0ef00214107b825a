"""The machines that can be simulated: so many equal GPUs of a model that stacks.yaml knows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import NAMESPACE_OID, uuid5

from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu_rehearsal.commands import LabError


@dataclass(frozen=True, slots=True)
class Machine:
    """COUNT GPUs of MODEL.

    + device: PCI device id ("0x2b85"); capability: compute capability
    + memory_mib, bar1_mib: the memory of one, and the window the firmware gave it onto that
    """

    count: int
    model: str
    device: str
    capability: str
    memory_mib: int
    bar1_mib: int

    @property
    def name(self) -> str:
        """What it is called, as in "2x RTX 5090"."""
        return f"{self.count}x {self.model}"

    def address(self, slot: int) -> str:
        """Return the PCI address of its GPU in SLOT, from 0."""
        return f"0000:{slot + 1:02x}:00.0"

    def device_files(self, slot: int) -> dict[str, str]:
        """Return the kernel's files of the GPU in SLOT, and the one that simulated programs read.

        `resource` has six windows of memory and the ROM, each "first last flags": registers first,
        the window onto the memory second, which has 64 bits and takes two rows.
        """
        geforce = re.match(r"[GR]TX (?!PRO)", self.model) is not None
        rows = [(0x80000000 + slot * (64 << 20), 16 << 20, 0x40200)]
        rows += [((slot + 1) << 40, self.bar1_mib << 20, 0x14220C), *[(0, 1, 0)] * 5]
        uuid = f"GPU-{uuid5(NAMESPACE_OID, f'{self.model} {slot}')}"
        name = f"NVIDIA {'GeForce ' if geforce else ''}{self.model}"
        return {
            "vendor": "0x10de\n",
            "device": f"{self.device}\n",
            "class": "0x030000\n" if geforce else "0x030200\n",
            "resource": "".join(f"0x{a:016x} 0x{a + n - 1:016x} 0x{f:016x}\n" for a, n, f in rows),
            "rehearsal": f"{name}|{uuid}|{self.memory_mib}|{self.capability}\n",
        }


def machine_named(name: str) -> Machine:
    """Return the machine NAME, such as "2x RTX 5090". Raises LabError where it cannot be one."""
    match = re.fullmatch(r"([1-8])x (.+)", name)
    gpu = catalogue().gpus.get(match[2]) if match else None
    if match is None or gpu is None or not gpu.pci_ids or gpu.memory_mib is None:
        known = (model for model, each in catalogue().gpus.items() if each.pci_ids)
        form = f"it is one to eight of {', '.join(known)}, as in '2x RTX 5090'"
        raise LabError(f"there is no simulated machine {name!r}: {form}")
    return Machine(
        count=int(match[1]),
        model=match[2],
        device=f"0x{gpu.pci_ids[0].partition(':')[2]}",
        capability=gpu.compute_capability,
        memory_mib=gpu.memory_mib,
        bar1_mib=1 << gpu.memory_mib.bit_length(),  # as with Above 4G Decoding
    )
