"""The machine: its system, Secure Boot, GPUs, who would mind a restart, training runs."""

from __future__ import annotations

import os
import re
import sys

from .files import document, user_name
from .frame import Any, Facts, Host, NotReported, attempt, content, decoded, only, pairs

_GROUPS = "/sys/fs/cgroup"
_ADDRESSES = re.compile(r"0x[0-9a-f]+ 0x[0-9a-f]+ .*")
_MOK_KEYS = ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub")  # Ubuntu's, DKMS's own


def user_of(host: Host) -> str:
    """Return who logged in, before sudo."""
    given = host.environment
    return given.get("SUDO_USER") or given.get("DOAS_USER") or user_name(host.uid)


def _release(host: Host) -> tuple[str | None, ...]:
    """Return ID, VERSION_ID and PRETTY_NAME of os-release."""
    places = ("/etc/os-release", "/usr/lib/os-release")
    there = [each for each in places if os.access(host.at(each), os.R_OK)]
    if not there:
        raise NotReported("/etc/os-release may not be read or is not there")
    found = pairs(map(str.strip, host.rows(there[0])))
    names = ("ID", "VERSION_ID", "PRETTY_NAME")
    return tuple(found.get(name, "").strip("\"'") or None for name in names)


def _init(host: Host) -> str:
    # What systemd's own sd_booted() looks at; the name of process 1 may be anything.
    return "systemd" if host.is_dir("/run/systemd/system") else host.line("/proc/1/comm")


def _python(host: Host) -> str | None:
    program = host.which("python3")
    if program is None:
        return None
    if os.path.realpath(program) == os.path.realpath(sys.executable):
        return sys.version.split()[0]
    said = host.said(program, "-V", seconds=10)
    return only(r"^Python ([1-9]\S*\.\S*\.\S*)$", said, "python3 -V")


def _secure_boot(host: Host) -> bool | None:
    """Tell whether it is on; None without EFI. Without its variable a kernel takes it as off."""
    efi = "/sys/firmware/efi"
    if not host.is_dir("/sys/firmware"):
        raise NotReported("/sys/firmware is not there")
    if not host.is_dir(efi):
        return None
    variables = host.paths(f"{efi}/efivars", "SecureBoot-")
    if not variables and host.names(f"{efi}/efivars"):
        return False
    if not variables:
        raise NotReported(f"{efi}/efivars is empty or may not be read")
    raw = content(host.at(variables[0]), 5)[4:]  # behind its attributes
    if raw not in (b"\0", b"\1"):
        raise NotReported(
            f"the firmware's SecureBoot variable holds '{raw[0] if raw else 'nothing'}'"
        )
    return raw == b"\1"


def _enrolled(host: Host) -> bool | None:
    """Tell whether the key that DKMS signs modules with is enrolled in the firmware."""
    key = next(filter(os.path.exists, map(host.at, _MOK_KEYS)), None)
    if not _secure_boot(host) or key is None or host.which("mokutil") is None:
        return None
    if not os.access(key, os.R_OK):
        raise NotReported(f"no permission to read {key}")
    # Its status differs between versions for the same answer.
    last = host.run("mokutil", "--test-key", key, seconds=5)[1].rpartition("\n")[2]
    if last.endswith(("is already enrolled", "is already in db")):
        return True
    # A request to enrol it is not yet an enrolment.
    if last.endswith(("is not enrolled", "is already in the enrollment request")):
        return False
    raise NotReported(f"mokutil said {last[:80]!r}")


def _gpus(host: Host) -> list[dict[str, Any]]:
    """Return the NVIDIA display and 3D controllers on the PCI bus, in the order of addresses."""
    if not host.is_dir("/sys/bus"):
        raise NotReported("/sys/bus is not there")
    found = []
    for device in host.paths("/sys/bus/pci/devices"):
        read = (host.rows_if_any(f"{device}/{name}")[:1] for name in ("vendor", "device", "class"))
        vendor, model, class_ = ("".join(each) for each in read)
        if vendor == "0x10de" and not (model and class_):
            raise NotReported(f"{host.at(device)} could not be read")
        if vendor == "0x10de" and class_[:6] in ("0x0300", "0x0302"):
            name = attempt(os.readlink, host.at(f"{device}/driver"))
            driver = os.path.basename(name) if isinstance(name, str) else name
            reported = {"address": device.rpartition("/")[2], "pci_id": f"10de:{model[2:]}"}
            found.append({**reported, "driver": driver, "bar1": attempt(_has_bar1, host, device)})
    return found


def _has_bar1(host: Host, device: str) -> bool:
    """Tell whether the firmware gave a window onto the GPU's memory.

    Behind the registers' row of the kernel's; those of Hopper and later take two.
    """
    rows = [row.split() for row in host.rows_if_any(f"{device}/resource")[1:3]]
    if not all(map(_ADDRESSES.fullmatch, map(" ".join, rows))) or len(rows) < 2:
        raise NotReported("the device's resource file could not be read")
    return any(int(last, 16) for _, last, *_ in rows)


def _manager(host: Host) -> str:
    """Return the control group of the owner's user manager."""
    uid = host.owner.uid
    return f"{_GROUPS}/user.slice/user-{uid}.slice/user@{uid}.service"


def _is_on(host: Host) -> bool | None:
    # With the first version of control groups they are elsewhere.
    return host.is_dir(_manager(host)) if host.there(f"{_GROUPS}/cgroup.controllers") else None


def _training_runs(host: Host) -> list[str]:
    """Return the names of runs that are on or wait for their GPUs; nobody else can name one."""
    folders = host.paths(f"{_manager(host)}/app.slice", "pyinfra-gpu-train@")
    found = (re.search(r"@([\w-]{1,80})\.service\Z", each, re.ASCII) for each in folders)
    return [each[1] for each in found if each and host.is_dir(each.string)]


def _kept(host: Host, kind: str) -> list[dict[str, str]]:
    """Return what systemd-logind notes for its library; asked over D-Bus it could hang."""
    paths = (each for each in host.paths(f"/run/systemd/{kind}") if not each.endswith(".ref"))
    return [pairs(host.rows(each)) for each in filter(host.is_file, paths)]


def sessions(host: Host) -> list[str]:
    """Return e.g. "alice on pts/0"; a connection without a terminal, as ours, is none.

    logind knows the terminal of a session from utmp, which newer systems no longer have. A user
    with a session and a pseudo terminal is then taken to sit at it.
    """
    names = sorted(filter(str.isdigit, host.names("/dev/pts")), key=int, reverse=True)
    there = ((attempt(os.stat, host.at(f"/dev/pts/{each}")), each) for each in names)
    terminals = {str(found.st_uid): f"pts/{name}" for found, name in there if found}
    if not host.is_dir("/run/systemd/sessions"):
        return [f"{user_name(int(uid))} on {terminal}" for uid, terminal in terminals.items()]
    found: dict[str, None] = {}
    for each in _kept(host, "sessions"):
        graphical = each.get("TYPE") in ("wayland", "x11", "mir")
        shown = each.get("SEAT") or each["TYPE"] if graphical else ""
        # Who logged out and left something running holds the terminal in name only.
        closing = each.get("STATE") == "closing"
        at = "" if closing else each.get("TTY") or each.get("DISPLAY") or shown
        at = at or terminals.get(each.get("UID", ""), "")
        if at and each.get("CLASS", "").startswith("user"):
            found[f"{each.get('USER') or each.get('UID')} on {at}"] = None
    return list(found)


def inhibitors(host: Host) -> list[str]:
    """Return the locks that block a shutdown, e.g. "backup.service: nightly dump"."""
    return [
        _unescaped(": ".join(filter(None, (each.get("WHO"), each.get("WHY")))))
        for each in _kept(host, "inhibit")
        if each.get("MODE") == "block" and "shutdown" in each.get("WHAT", "")
    ]


def _unescaped(text: str) -> str:
    r"""Return the text that systemd-logind notes as in C: `\"`, `\303\251`, `\x27`, `\n`.

    What would move a terminal's cursor becomes a question mark.
    """
    raw = text.encode().decode("unicode_escape", "replace").encode("latin-1", "replace")
    return "".join(c if c.isprintable() else "?" for c in decoded(raw))


def _reboots(host: Host) -> list[dict[str, object]]:
    """Return what each line "TIME BOOT_ID REASON" says; one that is damaged says nothing."""
    listed = host.asked["reboots"]
    form = r"(?m)^(\d{1,12}) (\S{1,64}) (.+)$"
    found = re.findall(form, (listed and document(host.at(listed))) or "", re.ASCII)
    return [{"at": int(at), "boot_id": boot, "reason": reason} for at, boot, reason in found]


_KERNEL = "/proc/sys/kernel"
FACTS: Facts = {
    "launcher.linger": lambda host: host.there(f"/var/lib/systemd/linger/{host.owner.name}"),
    "launcher.manager": _is_on,
    "launcher.runs": _training_runs,
    "system.os_id system.os_version system.os_name": _release,
    "system.kernel": lambda host: host.line(f"{_KERNEL}/osrelease"),
    "system.architecture": lambda host: host.machine,
    "system.boot_id": lambda host: host.line(f"{_KERNEL}/random/boot_id"),
    "system.hostname": lambda host: host.line(f"{_KERNEL}/hostname"),
    "system.cpu_count": lambda _: os.sysconf("SC_NPROCESSORS_ONLN"),
    "system.ram_mib": lambda _: os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20,
    "system.init": _init,
    "system.user": user_of,
    "system.secure_boot": _secure_boot,
    "system.python3": _python,
    "gpus.devices": _gpus,
}
NVIDIA: Facts = {
    "driver.mok": _enrolled,
    "power.sessions": sessions,
    "power.inhibitors": inhibitors,
    "power.reboots": _reboots,
}
"""What is looked at only where an NVIDIA driver is wanted."""
