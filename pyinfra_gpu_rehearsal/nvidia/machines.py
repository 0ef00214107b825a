"""The machines that can be simulated: which GPUs are on their bus."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu_rehearsal.errors import LabError


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """One GPU.

    + model: its row in stacks.yaml, where all else of it is from; name: as its driver calls it
    + device: PCI device id ("0x2b85"); capability: compute capability
    + memory_mib, bar1_mib: its memory, and the window the firmware gave it onto that
    """

    model: str
    name: str
    device: str
    capability: str
    memory_mib: int
    bar1_mib: int

    @property
    def is_geforce(self) -> bool:
        """Whether it is made for a display, too."""
        return "GeForce" in self.name

    def resource(self, slot: int) -> str:
        """Return the text of the kernel's file `resource` for the card in SLOT.

        Six windows of memory and the ROM, each "first last flags"; a window of 64 bits takes two
        rows. Registers come first, the window onto the memory second; the registers of GeForce
        cards have 32 bits.
        """
        registers, window = 0x80000000 + slot * (64 << 20), (1 << 40) + slot * (1 << 40)
        none = (0, 1, 0)
        memory = (window, self.bar1_mib << 20, 0x14220C) if self.bar1_mib else none
        more = (window + (1 << 39), 32 << 20, 0x14220C)
        if self.is_geforce:
            rows = [(registers, 16 << 20, 0x40200), memory, none, more, none, none, none]
        else:
            rows = [(registers, 16 << 20, 0x14220C), none, memory, none, more, none, none]
        return "".join(f"0x{a:016x} 0x{a + size - 1:016x} 0x{f:016x}\n" for a, size, f in rows)

    def description(self, address: str) -> str:
        """Return the line from which the simulated driver knows the card at ADDRESS."""
        digest = hashlib.sha256(f"{self.model} {address}".encode()).hexdigest()
        uuid = f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
        return f"{self.name}|{uuid}|{self.memory_mib}|{self.capability}\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """A kind of machine; cards are equal."""

    name: str
    count: int
    card: Card

    def addresses(self) -> list[str]:
        """Return the PCI addresses of its GPUs."""
        return [f"0000:{index + 1:02x}:00.0" for index in range(self.count)]


def _card(model: str, brand: str = "", bar1_mib: int | None = None) -> Card:
    """Return a card as the compatibility data has it.

    + brand: what its driver puts before the model's name
    + bar1_mib: the window that its firmware gives it, 0: none; None: as large as its memory
    """
    known = catalogue().gpus[model]
    window = known.bar1_mib if bar1_mib is None else bar1_mib
    if not known.pci_ids or known.memory_mib is None or window is None:
        raise LabError(f"stacks.yaml knows too little of a {model} to simulate one")
    return Card(
        model=model,
        name=f"NVIDIA {brand}{model}",
        device=f"0x{known.pci_ids[0].partition(':')[2]}",
        capability=known.compute_capability,
        memory_mib=known.memory_mib,
        bar1_mib=window,
    )


_ALL_OF_IT = 256 << 10  # MiB: more than the memory, in a power of two
MACHINES = {
    name: Machine(name=name, count=int(name[0]), card=card)
    for name, card in {
        "2x RTX 5090": _card("RTX 5090", "GeForce "),
        "2x RTX 5090 without Above-4G": _card("RTX 5090", "GeForce ", bar1_mib=0),
        "8x H200": _card("H200", bar1_mib=_ALL_OF_IT),
        "2x B200": _card("B200", bar1_mib=_ALL_OF_IT),
        "2x GTX 1080 Ti": _card("GTX 1080 Ti", "GeForce ", bar1_mib=256),
    }.items()
}


def machine_named(name: str) -> Machine:
    """Return the machine NAME. Raises LabError where there is no such machine."""
    if name not in MACHINES:
        known = ", ".join(MACHINES)
        raise LabError(f"there is no simulated machine {name!r}: there are {known}")
    return MACHINES[name]
