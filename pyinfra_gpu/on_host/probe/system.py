"""The machine: its system, Secure Boot, what every program loads, the launcher, GPUs on the bus."""

from __future__ import annotations

import os
import sys

from .files import Users, masked
from .frame import Host, NotTold, first_line, names, rows, text, why

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
    proc = f"{host.root}/proc/sys/kernel"
    found: dict[str, Any] = {
        "system.os_id system.os_version system.os_name": lambda: _release(host),
        "system.kernel": lambda: _shown(f"{proc}/osrelease"),
        "system.architecture": lambda: host.machine,
        "system.boot_id": lambda: _shown(f"{proc}/random/boot_id"),
        "system.cpu_count": lambda: cpus(_shown(f"{host.root}/sys/devices/system/cpu/online")),
        "system.ram_mib": lambda: memory(_shown(f"{host.root}/proc/meminfo")),
        "system.init": lambda: _init(host),
        "system.hostname": lambda: _shown(f"{proc}/hostname"),
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


def _shown(path: str) -> str:
    found = first_line(path)
    if found is None:
        raise NotTold("the host does not show it")
    return found


def _release(host: Host) -> tuple[str | None, ...]:
    for place in ("/etc/os-release", "/usr/lib/os-release"):
        if os.access(host.at(place), os.R_OK):
            break
    else:
        raise NotTold("/etc/os-release may not be read or is not there")
    return release(rows(host.at(place)))


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
    found, quote, letters = "", "", iter(value)
    for letter in letters:
        if letter == quote:
            quote = ""
        elif not quote and letter in "'\"":
            quote = letter
        elif letter == "\\" and quote != "'":
            found += next(letters, "")
        else:
            found += letter
    if quote:
        raise NotTold(f"os-release has an odd line for {name}")
    return found


def cpus(line: str) -> int:
    """Count the kernel's list form, e.g. "0-3,8" is five."""
    count = 0
    for part in line.split(","):
        first, mark, last = part.partition("-")
        if not first.isdigit() or (mark and not last.isdigit()) or len(part) > 11:
            raise NotTold(f"{line[:40]!r} is not a list of processors")
        count += int(last or first) - int(first) + 1
    if count < 1:
        raise NotTold(f"{line[:40]!r} is not a list of processors")
    return count


def memory(line: str) -> int:
    """Read the first line of /proc/meminfo, in MiB."""
    words = line.split()
    if len(words) != 3 or words[0] != "MemTotal:" or not words[1].isdigit() or words[2] != "kB":
        raise NotTold("/proc/meminfo has an odd first line")
    return int(words[1]) // 1024


def _init(host: Host) -> str:
    # What systemd's own sd_booted() looks at; the name of process 1 may be anything.
    if os.path.isdir(host.at("/run/systemd/system")):
        return "systemd"
    return _shown(host.at("/proc/1/comm"))


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
    word, _, version = said.strip().partition(" ")
    if (
        word != "Python"
        or version[:1] not in "123456789"
        or version.count(".") < 2
        or " " in version
    ):
        raise NotTold(f"`python3 -V` said {said[:80]!r}")
    return version


def secure_boot(host: Host) -> int | None:
    """Return 1 where it is on, 0 where it is off, None without EFI.

    A kernel that finds no SecureBoot variable under EFI takes it as off, and so do we.
    """
    if not os.path.isdir(host.at("/sys/firmware")):
        raise NotTold("/sys/firmware is not there")
    efi = host.at("/sys/firmware/efi")
    if not os.path.isdir(efi):
        return None
    variables = names(f"{efi}/efivars")
    found = next((each for each in variables if each.startswith("SecureBoot-")), None)
    if found is None:
        if variables:
            return 0
        raise NotTold(f"{efi}/efivars is empty or may not be read")
    path = f"{efi}/efivars/{found}"
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
    settings = [f"{folder}/{each}" for each in names(host.at(folder)) if each.endswith(".conf")]
    for path in ("/etc/dkms/framework.conf", *settings):
        if os.access(host.at(path), os.R_OK):
            for row in rows(host.at(path)):
                name, mark, value = row.strip().partition("=")
                if mark and name == "mok_certificate":
                    places.insert(0, value.strip("\"'"))
    return next((host.at(each) for each in places if each and os.path.exists(host.at(each))), None)


def _preloads(host: Host) -> list[str]:
    """Return what /etc/ld.so.preload has every program load: "1 NAME" where it is there, else 0.

    "-" where only the loader knows. Names end at blanks and colons, lines at "#".
    """
    path = host.at("/etc/ld.so.preload")
    found = []
    for row in rows(path) if os.path.exists(path) else ():
        for name in row.partition("#")[0].replace(":", " ").split():
            state = "1" if os.path.isfile(host.at(name)) else "0"
            found.append(f"{state if name[0] == '/' and '$' not in name else '-'} {name}")
    return found


def preload_problem(host: Host) -> str | None:
    """Return what the loader says where it cannot load all that /etc/ld.so.preload names.

    It says so in front of whatever any program says.
    """
    path = host.at("/etc/ld.so.preload")
    if not os.path.exists(path) or not os.stat(path).st_size:
        return None
    first = host.run("true", seconds=5)[1].partition("\n")[0]
    return first if "ld.so" in first and "preload" in first else None


def launcher(host: Host, owner: str, uid: int) -> Facts:
    """Whether the owner's user manager outlives logins, is on and may be, and the runs in it."""
    manager = f"user@{uid}.service"
    groups = host.at("/sys/fs/cgroup")
    at = f"{groups}/user.slice/user-{uid}.slice/{manager}"
    units = []
    for folder in (host.at("/etc/systemd"), host.at("/run/systemd")):
        units += [f"{folder}/system/{each}" for each in ("user@.service", manager)]
        units.append(f"{folder}/system/systemd-logind.service")
        units.append(f"{folder}/user/pyinfra-gpu-train@.service")

    def on() -> bool | None:
        # With the first version of control groups they are elsewhere.
        return os.path.isdir(at) if os.path.exists(f"{groups}/cgroup.controllers") else None

    def runs() -> list[str]:
        folder = f"{at}/app.slice"
        mark, end = "pyinfra-gpu-train@", ".service"
        found = [each for each in names(folder) if each.startswith(mark)]
        plain = (each.rpartition("@")[2] for each in found if os.path.isdir(f"{folder}/{each}"))
        return [each[: -len(end)] if each.endswith(end) else each for each in plain]

    return {
        "launcher.linger": lambda: os.path.exists(host.at(f"/var/lib/systemd/linger/{owner}")),
        "launcher.manager": on,
        "launcher.masked": lambda: masked(units, host.root),
        "launcher.runs": runs,
    }


def _gpus(host: Host) -> list[dict[str, Any]]:
    """Return the NVIDIA display and 3D controllers on the PCI bus, in the order of addresses."""
    folder = host.at("/sys/bus/pci/devices")
    if not os.path.isdir(folder):
        if os.path.isdir(host.at("/sys/bus")):
            return []
        raise NotTold("/sys/bus is not there")
    found = []
    for address in names(folder):
        device = f"{folder}/{address}"
        if _word(f"{device}/vendor") != "0x10de":
            continue
        class_, number = _word(f"{device}/class"), _word(f"{device}/device")
        if not class_ or not number:
            raise NotTold(f"{device} could not be read")
        if class_[:6] not in ("0x0300", "0x0302"):
            continue
        driver: Any = None
        if os.path.islink(f"{device}/driver"):
            driver = os.path.basename(os.readlink(f"{device}/driver"))
            driver = driver or {"?": "the link to its driver could not be read"}
        found.append(
            {
                "address": address,
                "vendor": "0x10de",
                "device": number,
                "class_": class_,
                "driver": driver,
                "bar1_mib": _bar1(f"{device}/resource"),
            }
        )
    return found


def _word(path: str) -> str:
    try:
        return first_line(path) or ""
    except NotTold:
        return ""


def _bar1(path: str) -> Any:
    """Return the size of the second memory window, None if the firmware assigned none.

    Register windows of GeForce cards have 32 bits and take one of the kernel's six rows; those of
    Hopper and later take two, and BAR1 then stands in the third row.
    """
    try:
        return bar1(rows(path))
    except (OSError, NotTold):
        return bar1([])


def bar1(lines: list[str]) -> Any:
    """Read a device's memory windows: its kernel file "resource"."""
    lines = lines[1:3]
    if len(lines) < 2:
        return {"?": "the device's resource file could not be read"}
    for row in lines:
        try:
            first, last = (int(each, 16) for each in row.split()[:2])
        except ValueError:
            return {"?": f"{text(row)[:60]!r} is not a range of addresses"}
        if last > first:
            return (last - first + 1) >> 20
    return None
