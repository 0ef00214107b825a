"""What the machine is: its system, kernel, processor, memory, and who logged in."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from pyinfra_gpu.facts.fields import Fields, Jsonable, Unknown
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

    def read(self, fields: Fields) -> SystemRecord:
        """Only this concern of the probe's answer."""
        return parse(fields)


def parse(fields: Fields) -> SystemRecord:
    """The machine, from the probe's fields."""
    release = _release(fields)
    return SystemRecord(
        os_id=_named(release, "ID"),
        os_version=_named(release, "VERSION_ID"),
        os_name=_named(release, "PRETTY_NAME"),
        kernel=fields.present("system.kernel"),
        architecture=fields.present("system.architecture"),
        boot_id=fields.present("system.boot_id"),
        cpu_count=_cpus(fields.present("system.cpus")),
        ram_mib=_memory(fields.present("system.memory")),
        init=fields.present("system.init"),
        hostname=fields.present("system.hostname"),
        user=fields.present("system.user"),
        uid=fields.number("system.uid"),
        python3=_python(fields.text("system.python3")),
        secure_boot=_secure_boot(fields.text("system.secure_boot")),
        preload=fields.items("system.preload"),
        preload_problem=_either(
            fields.text("system.preload_problem"), fields.text("owned.preload_problem")
        ),
    )


def _release(fields: Fields) -> dict[str, str] | Unknown:
    rows = fields.items("system.os")
    if isinstance(rows, Unknown):
        return rows
    release = {}
    for row in rows:
        name, _, value = row.partition("=")
        try:
            words = shlex.split(value)
        except ValueError:
            return Unknown(f"os-release has an odd line for {name}")
        release[name] = " ".join(words)
    return release


def _named(release: dict[str, str] | Unknown, name: str) -> str | Unknown | None:
    return release if isinstance(release, Unknown) else release.get(name) or None


def _cpus(text: str | Unknown) -> int | Unknown:
    """Count the kernel's list form, e.g. "0-3,8" is five."""
    if isinstance(text, Unknown):
        return text
    if not re.fullmatch(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*", text, re.ASCII):
        return Unknown(f"{text[:40]!r} is not a list of processors")
    count = 0
    for part in text.split(","):
        first, _, last = part.partition("-")
        count += int(last or first) - int(first) + 1
    return count if count > 0 else Unknown(f"{text[:40]!r} is not a list of processors")


def _memory(text: str | Unknown) -> int | Unknown:
    if isinstance(text, Unknown):
        return text
    match = re.fullmatch(r"MemTotal:\s+(\d{1,15}) kB", text, re.ASCII)
    return int(match[1]) // 1024 if match else Unknown("/proc/meminfo has an odd first line")


def _python(text: str | Unknown | None) -> str | Unknown | None:
    if not isinstance(text, str):
        return text
    match = re.fullmatch(r"Python (\d+\.\d+\.\d+\S*)", text.strip(), re.ASCII)
    return match[1] if match else Unknown(f"`python3 -V` said {text[:80]!r}")


def _either(roots: str | Unknown | None, owners: str | Unknown | None) -> str | Unknown | None:
    return owners if roots is None else roots


def _secure_boot(text: str | Unknown | None) -> bool | Unknown | None:
    if not isinstance(text, str):
        return text
    if text in ("0", "1"):
        return text == "1"
    return Unknown(f"the firmware's SecureBoot variable holds {text[:20]!r}")
