"""The machine: its system, Secure Boot, what every program loads, the launcher, GPUs on the bus."""

from __future__ import annotations

import os
import re
import sys

from .files import Users, masked
from .frame import Host, NotTold, pairs, text, unknown, why

TYPE_CHECKING = False  # to load `typing` takes as long as a fifth of the look
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .frame import Facts


def user_of(host: Host) -> str:
    """Return who logged in, before sudo."""
    given = host.environment
    return given.get("SUDO_USER") or given.get("DOAS_USER") or Users().name(host.uid)


def facts(host: Host) -> Facts:
    """The machine as a whole."""
    proc = "/proc/sys/kernel"
    found: dict[str, Any] = {
        "system.os_id system.os_version system.os_name": lambda: _release(host),
        "system.kernel": lambda: _shown(host, f"{proc}/osrelease"),
        "system.architecture": lambda: host.machine,
        "system.boot_id": lambda: _shown(host, f"{proc}/random/boot_id"),
        "system.cpu_count": lambda: cpus(_shown(host, "/sys/devices/system/cpu/online")),
        "system.ram_mib": lambda: memory(_shown(host, "/proc/meminfo")),
        "system.init": lambda: _init(host),
        "system.hostname": lambda: _shown(host, f"{proc}/hostname"),
        "system.user": lambda: user_of(host),
        "system.uid": lambda: host.uid,
        "system.secure_boot": lambda: {None: None, 0: False, 1: True}[secure_boot(host)],
        "system.preload": lambda: _preloads(host),
        "system.preload_problem": lambda: preload_problem(host),
        "gpus.devices": lambda: _gpus(host),
    }
    if host.asked["nvidia"]:
        found["driver.mok"] = lambda: _enrolled(host)
    found["system.python3"] = lambda: _python(host)
    return found


def _shown(host: Host, path: str) -> str:
    found = host.first_line(path)
    if found is None:
        raise NotTold("the host does not show it")
    return found


def _release(host: Host) -> tuple[str | None, ...]:
    for place in ("/etc/os-release", "/usr/lib/os-release"):
        if os.access(host.at(place), os.R_OK):
            return release(host.rows(place))
    raise NotTold("/etc/os-release may not be read or is not there")


def release(lines: Iterable[str]) -> tuple[str | None, ...]:
    """Return ID, VERSION_ID and PRETTY_NAME of os-release."""
    found: dict[str, str] = {}
    wanted = ("ID", "VERSION_ID", "PRETTY_NAME")
    for row in lines:
        name, mark, value = row.strip().partition("=")
        if mark and name in wanted:
            found[name] = _unquoted(name, value)
    return tuple(found.get(name) or None for name in wanted)


def _unquoted(name: str, value: str) -> str:
    """Return what a shell makes of a value: quotes and backslashes as in sh."""
    parts = re.findall(r"""'([^']*)'|"((?:[^"\\]|\\.)*)"|(\\.|[^'"])""", value)
    if not re.fullmatch(r"""('[^']*'|"([^"\\]|\\.)*"|\\.|[^'"\\])*""", value):
        raise NotTold(f"os-release has an odd line for {name}")
    return "".join(
        single or re.sub(r"\\(.)", r"\1", double or bare) for single, double, bare in parts
    )


def cpus(line: str) -> int:
    """Count the kernel's list form, e.g. "0-3,8" is five."""
    if not re.fullmatch(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*", line, re.A):
        raise NotTold(f"{line[:40]!r} is not a list of processors")
    ranges = (part.split("-") for part in line.split(","))
    return sum(int(each[-1]) - int(each[0]) + 1 for each in ranges)


def memory(line: str) -> int:
    """Read the first line of /proc/meminfo, in MiB."""
    found = re.fullmatch(r"MemTotal:\s+(\d{1,15}) kB", line, re.A)
    if not found:
        raise NotTold("/proc/meminfo has an odd first line")
    return int(found[1]) // 1024


def _init(host: Host) -> str:
    # What systemd's own sd_booted() looks at; the name of process 1 may be anything.
    if host.is_dir("/run/systemd/system"):
        return "systemd"
    return _shown(host, "/proc/1/comm")


def _python(host: Host) -> str | None:
    program = host.which("python3")
    if program is None:
        return None
    if os.path.realpath(program) == os.path.realpath(sys.executable):
        return sys.version.split()[0]
    status, said = host.run(program, "-V", seconds=10)
    if status:
        raise NotTold(why(status, said))
    return python_version(said)


def python_version(said: str) -> str:
    """Read what `python3 -V` says."""
    found = re.fullmatch(r"Python ([1-9]\S*\.\S*\.\S*)", said.strip())
    if not found:
        raise NotTold(f"`python3 -V` said {said[:80]!r}")
    return found[1]


def secure_boot(host: Host) -> int | None:
    """Return 1 where it is on, 0 where it is off, None without EFI.

    A kernel that finds no SecureBoot variable under EFI takes it as off, and so do we.
    """
    efi = "/sys/firmware/efi"
    if not host.is_dir("/sys/firmware"):
        raise NotTold("/sys/firmware is not there")
    if not host.is_dir(efi):
        return None
    variables = host.names(f"{efi}/efivars", "SecureBoot-")
    if not variables and host.names(f"{efi}/efivars"):
        return 0
    if not variables:
        raise NotTold(f"{efi}/efivars is empty or may not be read")
    path = host.at(f"{efi}/efivars/{variables[0]}")
    try:
        with open(path, "rb") as file:
            raw = file.read(5)
    except OSError:
        raw = b""
    if len(raw) < 5:
        raise NotTold(f"{path} could not be read")
    if raw[4] > 1:
        raise NotTold(f"the firmware's SecureBoot variable holds '{raw[4]}'")
    return raw[4]


def _enrolled(host: Host) -> bool | None:
    """Tell whether the key that DKMS signs modules with is enrolled in the firmware."""
    try:
        on = secure_boot(host)
    except NotTold:
        raise NotTold("it is not known whether Secure Boot is on") from None
    if on != 1:
        return None
    key = _mok_key(host)
    if key is None or host.which("mokutil") is None:
        return None
    if not os.access(key, os.R_OK):
        raise NotTold(f"no permission to read {key}")
    # Its status differs between versions for the same answer.
    status, said = host.run("mokutil", "--test-key", key, seconds=5)
    if not said:
        raise NotTold(f"mokutil: {why(status, said)}")
    return enrolled(said.rpartition("\n")[2])


def enrolled(last: str) -> bool:
    """Read mokutil's sentence on a key; a request to enrol it is not yet an enrolment."""
    if last.endswith(("is already enrolled", "is already in db")):
        return True
    if last.endswith(("is not enrolled", "is already in the enrollment request")):
        return False
    raise NotTold(f"mokutil said {last[:80]!r}")


def _mok_key(host: Host) -> str | None:
    """Return the certificate: where DKMS's settings say, else in Ubuntu's place, else its own."""
    places = ["/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub"]
    folder = "/etc/dkms/framework.conf.d"
    settings = [f"{folder}/{each}" for each in host.names(folder, end=".conf")]
    for path in ("/etc/dkms/framework.conf", *settings):
        if os.access(host.at(path), os.R_OK):
            said = pairs([row.strip() for row in host.rows(path)])
            places.insert(0, said.get("mok_certificate", "").strip("\"'"))
    return next((host.at(each) for each in places if each and host.there(each)), None)


def _preloads(host: Host) -> list[str]:
    """Return what /etc/ld.so.preload has every program load: "1 NAME" where it is there, else 0.

    "-" where only the loader knows. Names end at blanks and colons, lines at "#".
    """
    path = "/etc/ld.so.preload"
    found = []
    for row in host.rows(path) if host.there(path) else ():
        for name in row.partition("#")[0].replace(":", " ").split():
            known = name[0] == "/" and "$" not in name
            found.append(f"{int(host.is_file(name)) if known else '-'} {name}")
    return found


def preload_problem(host: Host) -> str | None:
    """Return what the loader says where it cannot load all that /etc/ld.so.preload names.

    It says so in front of whatever any program says.
    """
    if not host.is_filled("/etc/ld.so.preload"):
        return None
    first = host.run("true", seconds=5)[1].partition("\n")[0]
    return first if "ld.so" in first and "preload" in first else None


def launcher(host: Host, owner: str, uid: int) -> Facts:
    """Whether the owner's user manager outlives logins, is on and may be, and the runs in it."""
    manager, groups = f"user@{uid}.service", "/sys/fs/cgroup"
    at = f"{groups}/user.slice/user-{uid}.slice/{manager}"
    names = [f"system/{e}" for e in ("user@.service", manager, "systemd-logind.service")]
    names.append("user/pyinfra-gpu-train@.service")
    units = [host.at(f"/{top}/systemd/{name}") for top in ("etc", "run") for name in names]

    def on() -> bool | None:
        # With the first version of control groups they are elsewhere.
        return host.is_dir(at) if host.there(f"{groups}/cgroup.controllers") else None

    def runs() -> list[str]:
        found = host.names(f"{at}/app.slice", "pyinfra-gpu-train@")
        folders = (each for each in found if host.is_dir(f"{at}/app.slice/{each}"))
        return [re.sub(r"\.service$", "", each.rpartition("@")[2]) for each in folders]

    return {
        "launcher.linger": lambda: host.there(f"/var/lib/systemd/linger/{owner}"),
        "launcher.manager": on,
        "launcher.masked": lambda: masked(units, host.root),
        "launcher.runs": runs,
    }


def _gpus(host: Host) -> list[dict[str, Any]]:
    """Return the NVIDIA display and 3D controllers on the PCI bus, in the order of addresses."""
    folder = "/sys/bus/pci/devices"
    if not host.is_dir(folder):
        if host.is_dir("/sys/bus"):
            return []
        raise NotTold("/sys/bus is not there")
    found = []
    for address in host.names(folder):
        device = f"{folder}/{address}"
        vendor, class_, number = (
            _word(host, f"{device}/{e}") for e in ("vendor", "class", "device")
        )
        if vendor != "0x10de":
            continue
        if not class_ or not number:
            raise NotTold(f"{host.at(device)} could not be read")
        if class_[:6] not in ("0x0300", "0x0302"):
            continue
        driver: Any = None
        if os.path.islink(link := host.at(f"{device}/driver")):
            driver = os.path.basename(os.readlink(link)) or unknown("its link could not be read")
        told = {"address": address, "vendor": vendor, "device": number, "class_": class_}
        try:
            window = bar1(host.rows(f"{device}/resource"))
        except (OSError, NotTold):
            window = bar1([])
        found.append({**told, "driver": driver, "bar1_mib": window})
    return found


def _word(host: Host, path: str) -> str:
    try:
        return host.first_line(path) or ""
    except NotTold:
        return ""


def bar1(lines: list[str]) -> Any:
    """Read a device's memory windows, its kernel file "resource": MiB, None if it has none.

    Register windows of GeForce cards have 32 bits and take one of the kernel's six rows; those of
    Hopper and later take two, and BAR1 then stands in the third row.
    """
    if len(lines) < 3:
        return unknown("the device's resource file could not be read")
    for row in lines[1:3]:
        try:
            first, last = (int(each, 16) for each in row.split()[:2])
        except ValueError:
            return unknown(f"{text(row)[:60]!r} is not a range of addresses")
        if last > first:
            return (last - first + 1) >> 20
    return None
