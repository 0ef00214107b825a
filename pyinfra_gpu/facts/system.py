"""What the machine is: its system, kernel, processor, memory, and who logged in."""

from __future__ import annotations

from dataclasses import dataclass

from pyinfra_gpu.facts.answer import Answer
from pyinfra_gpu.facts.fields import Jsonable, Unknown
from pyinfra_gpu.facts.probe import ConcernFact


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemRecord(Jsonable):
    """The machine as a whole.

    + os_id, os_version, os_name: ID, VERSION_ID and PRETTY_NAME of os-release
    + ram_mib: memory that the kernel can use, in MiB
    + init: "systemd" where systemd runs the machine, else the name of process 1
    + user: who logged in (before sudo); uid: as whom the probe ran
    + python3: version of the `python3` on PATH
    + preload: rows "STATE NAME" of what the loader loads into every program, by
      /etc/ld.so.preload; STATE is 1 where it is there, 0 where not, - where only the loader knows
    + preload_problem: what the loader says where it cannot load all of that, for root or the owner
    + secure_boot: None where the machine was not booted through EFI
    """

    os_id: str | Unknown | None
    os_version: str | Unknown | None
    os_name: str | Unknown | None
    kernel: str | Unknown
    architecture: str | Unknown
    boot_id: str | Unknown
    cpu_count: int | Unknown
    ram_mib: int | Unknown
    init: str | Unknown
    hostname: str | Unknown
    user: str | Unknown
    uid: int | Unknown
    python3: str | Unknown | None
    secure_boot: bool | Unknown | None
    preload: tuple[str, ...] | Unknown
    preload_problem: str | Unknown | None


class System(ConcernFact[SystemRecord]):
    """The machine itself: `pyinfra INVENTORY fact pyinfra_gpu.facts.system.System`."""

    def read(self, answer: Answer) -> SystemRecord:
        """Only this concern of what a host answered."""
        return parse(answer)


def parse(answer: Answer) -> SystemRecord:
    """Return this concern, of what a host answered."""
    form = str | Unknown | None
    problem = answer.value(form, "system.preload_problem")
    if problem is None:
        problem = answer.value(form, "system.owners_problem")
    return answer.part(SystemRecord, "system", preload_problem=problem)
