"""Apt and dpkg: packages, who holds a lock of theirs, sources, what happened, what was lost."""

from __future__ import annotations

import os
import stat

from .files import there
from .frame import Host, NotTold, decoded, first_line, names, rows, why

TYPE_CHECKING = False  # to load `typing` takes as long as a fifth of the look
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from .frame import Facts

_NVIDIAS = (
    *("nvidia", "libcuda", "libcudnn", "cuda", "libnv", "firmware-nvidia", "libxnvctrl", "libnccl"),
    *("linux-modules-nvidia", "linux-objects-nvidia", "linux-signatures-nvidia"),
    "xserver-xorg-video-nvidia",
)
_OTHERS = ("libnvme", "libnvpair", "libnvdimm")
_BESIDE = ("linux-image-", "linux-headers-", "gcc", "g++", "dkms")
_LOCKS = (
    "lib/dpkg/lock-frontend",
    "lib/dpkg/lock",
    "lib/apt/lists/lock",
    "cache/apt/archives/lock",
)
_UNFINISHED = (
    "half-installed",
    "unpacked",
    "half-configured",
    "triggers-awaited",
    "triggers-pending",
)
_ACTIONS = ("Install", "Upgrade", "Downgrade", "Remove", "Purge", "Reinstall")
_MOST_CHANGES = 200
_MOST_LOST = 50
_MOST_TRIED = 200


def is_nvidias(name: str) -> bool:
    """Tell whether a package is one of the driver's or the toolkit's."""
    return name.startswith(_NVIDIAS) and not name.startswith(_OTHERS)


def facts(host: Host) -> Facts:
    """What the package manager says."""
    found: dict[str, Any] = {
        "packages.installed packages.half_configured nvidia.packages": lambda: _packages(host),
        "packages.settings": lambda: _settings(host),
        "packages.lock_holder": lambda: lock_holder(host),
    }
    if host.asked["nvidia"]:
        found["nvidia.repository"] = lambda: host.asked["repository"] or None
        found["nvidia.source_lines"] = lambda: _source_lines(host)
        found["nvidia.keyring"] = lambda: _keyring(host)
        found["nvidia.changes"] = lambda: _changes(host)
        found["nvidia.lost"] = lambda: _lost(host)
    return found


def half_configured(host: Host) -> list[str]:
    """Return the packages that dpkg is not done with."""
    found: list[str] = _packages(host)[1]
    return found


def _stanzas(host: Host) -> list[dict[str, str]]:
    """Return what dpkg notes of each package, as far as it is asked; what it noted last counts.

    Beside its list lie the changes that it has not worked into it yet.
    """
    if host.stanzas:
        return host.stanzas
    folder = host.at("/var/lib/dpkg")
    with open(f"{folder}/status", "rb") as file:
        text = file.read()
    if not text.strip():
        raise NotTold(f"{folder}/status is empty: see /var/backups")
    for name in names(f"{folder}/updates"):
        if name.isdigit():
            with open(f"{folder}/updates/{name}", "rb") as file:
                text += b"\n\n" + file.read()
    found: dict[tuple[str, str], dict[str, str]] = {}
    for stanza in text.split(b"\n\n"):
        if not stanza.strip():
            continue
        raw = b"\n" + stanza
        each = {}
        for key in (b"Package", b"Status", b"Version", b"Architecture", b"Multi-Arch"):
            mark = b"\n" + key + b": "
            at = raw.find(mark)
            end = raw.find(b"\n", at + 1)
            row = raw[at + len(mark) : end if end > 0 else None] if at >= 0 else b""
            each[key.decode()] = decoded(row).strip()
        if not each["Package"] or len(each["Status"].split()) != 3:
            raise NotTold(f"{folder}/status is damaged: see /var/backups")
        found[each["Package"], each["Architecture"]] = each
    host.stanzas = list(found.values())
    return host.stanzas


def _packages(host: Host) -> tuple[dict[str, str], list[str], list[dict[str, Any]]]:
    """Return (installed of those asked for, those that dpkg is not done with, NVIDIA's)."""
    wanted, nvidia = set(host.asked["packages"]), host.asked["nvidia"]
    installed: dict[str, str] = {}
    unfinished: list[str] = []
    theirs: list[dict[str, Any]] = []
    for each in _stanzas(host):
        want, flag, state = each["Status"].split()
        name, version, arch = each["Package"], each["Version"], each["Architecture"]
        broken = state in _UNFINISHED or flag == "reinstreq"
        apart = f"{name}:{arch}" if arch not in (host.native, "all", "") else name
        same = each["Multi-Arch"] == "same"
        if broken:
            unfinished.append(f"{name}:{arch}" if same else apart)
        elif state != "installed":
            continue
        elif name in wanted:
            installed[name] = version
        if nvidia and is_nvidias(name):
            theirs.append(
                {
                    "name": apart,
                    "version": version or "?",
                    "held": want == "hold",
                    "complete": not broken,
                }
            )
    theirs.sort(key=lambda each: str(each["name"]))
    return installed, unfinished, theirs


def _settings(host: Host) -> str | None:
    """Return what apt says where its settings cannot be read; nothing of it works then.

    It writes this cache after it has read them, so they are asked for only when one is newer.
    """
    cache = host.at("/var/cache/apt/pkgcache.bin")
    made = os.stat(cache).st_mtime if os.path.exists(cache) else 0.0
    folder = host.at("/etc/apt/apt.conf.d")
    for path in (host.at("/etc/apt/apt.conf"), *(f"{folder}/{each}" for each in names(folder))):
        if os.path.exists(path) and os.stat(path).st_mtime > made:
            break
    else:
        return None
    if host.which("apt-config") is None:
        return None
    at = ("-o", f"Dir={host.root}") if host.root else ()
    status, said = host.run("apt-config", *at, "dump", seconds=5)
    errors = [row for row in said.split("\n") if row.startswith(("E:", "W:"))]
    return (errors or [why(status, said)])[0] if status else None


def locks(host: Host) -> list[list[str]]:
    """Return the kernel's list of locks, in words. It is read in one piece, or rows are missed."""
    try:
        number = os.open(host.at("/proc/locks"), os.O_RDONLY)
    except OSError:
        raise NotTold("/proc/locks may not be read") from None
    with open(number, "rb", buffering=1 << 20) as file:
        return [row.split() for row in decoded(file.read()).split("\n") if row]


def _paths(host: Host) -> dict[str, str]:
    """Return "DEVICE:INODE" -> path of those that are there."""
    found = {}
    for name in _LOCKS:
        path = host.at(f"/var/{name}")
        try:
            there = os.stat(path)
        except FileNotFoundError:
            continue
        device = f"{os.major(there.st_dev):02x}:{os.minor(there.st_dev):02x}"
        found[f"{device}:{there.st_ino}"] = path
    return found


def lock_holder(host: Host) -> str | None:
    """Return the other process that holds a lock of apt's or dpkg's, e.g. "pid 123 (apt)".

    They take fcntl locks, which the kernel lists by device and inode.
    """
    files = _paths(host)
    if not files:
        return None
    inodes = {key.rpartition(":")[2] for key in files}
    for words in locks(host):
        # 1: POSIX  ADVISORY  WRITE 812 08:01:1312 0 EOF
        if len(words) < 6 or words[1] not in ("POSIX", "OFDLCK"):
            continue
        pid, place = words[4], words[5]
        if place.rpartition(":")[2] not in inodes:
            continue
        # Some file systems (btrfs, overlays) show the kernel another device number.
        if place in files or _has_open(host, pid):
            try:
                name = first_line(host.at(f"/proc/{pid}/comm"))
            except NotTold:
                name = None
            return f"pid {pid}" + (f" ({name})" if name else "")
    return None


def _has_open(host: Host, pid: str) -> bool:
    folder = host.at(f"/proc/{pid}/fd")
    try:
        links = [os.readlink(f"{folder}/{each}") for each in os.listdir(folder)]
    except OSError:
        return False
    return any(link.endswith(f"/var/{name}") for link in links for name in _LOCKS)


def _source_lines(host: Host) -> list[str]:
    """Return the lines of apt's sources as "FILE:LINE"."""
    folder = "/etc/apt/sources.list.d"
    try:
        there = names(host.at(folder))
    except PermissionError:
        raise NotTold(f"no permission to look at {host.at(folder)}") from None
    more = [e for end in (".list", ".sources") for e in there if e.endswith(end)]
    found = []
    for path in ("/etc/apt/sources.list", *(f"{folder}/{each}" for each in more)):
        if os.path.isfile(host.at(path)):
            lines = rows(host.at(path))
            if lines and not lines[-1]:
                lines.pop()
            found += [f"{path}:{row}" for row in lines if not row.startswith("#")]
    return found


def _keyring(host: Host) -> str | None:
    """Return the bytes of the keyring file in hexadecimal digits."""
    path = host.asked["keyring"] and host.at(host.asked["keyring"])
    if not path or not there(path):
        return None
    with open(path, "rb") as file:
        return file.read(65537).hex()


def _changes(host: Host) -> list[str]:
    """Return what the log says of NVIDIA's packages, compilers and kernels, newest last.

    A stanza is told as rows "DATE TIME|ACTION|NAME|VERSIONS|BY|COMMAND"; "|" and odd bytes become
    "?". The log before this one may be unreadable, or not there: what it held is then too old.
    """
    log = host.at("/var/log/apt/history.log")
    found: list[str] = []
    for path in (f"{log}.1.gz", f"{log}.1", log):
        try:
            found += _read_log(host, path)
        except PermissionError:
            if path == log:
                raise NotTold(f"no permission to read {log}") from None
        except (OSError, EOFError):
            continue
    return found[-_MOST_CHANGES:]


def _read_log(host: Host, path: str) -> list[str]:
    with open(path, "rb") as file:
        raw = file.read(32 << 20)
    if path.endswith(".gz"):
        import zlib

        try:
            raw = zlib.decompressobj(47).decompress(raw, 32 << 20)
        except zlib.error:
            return []
    found: list[str] = []
    when = by = command = ""
    items: list[str] = []
    for line in [*raw.split(b"\n"), b"Start-Date: "]:
        row = "".join(chr(b) if 32 <= b < 127 and b != 124 else "?" for b in line)
        key, mark, value = row.partition(": ")
        if key == "Start-Date" and mark:
            found += [f"{when}|{each}|{by}|{command}" for each in items]
            when, by, command, items = value, "", "", []
        elif key == "Commandline":
            command = value
        elif key == "Requested-By":
            by = value
        elif key in _ACTIONS:
            items += [f"{key}|{each}" for each in _of_interest(host, value)]
    return found


def _of_interest(host: Host, listed: str) -> Iterator[str]:
    for item in listed.split("), "):
        name, mark, versions = item.partition(" (")
        plain, _, arch = name.partition(":")
        if mark and (is_nvidias(plain) or plain.startswith(_BESIDE)):
            yield f"{plain if arch == host.native else name}|{versions.rstrip(')')}"


def _lost(host: Host) -> list[dict[str, str]]:
    """Return what packages of the driver and the toolkit brought, and is gone or was changed.

    What the kernel says was touched after dpkg noted the package's digests, and has another one; a
    link in a file's place; what not everybody may read or run, but where dpkg-statoverride(1) says
    so. Configuration and links are not among what dpkg has digests of; documentation, dpkg may have
    been told to leave out.
    """
    info = host.at("/var/lib/dpkg/info")
    release = host.asked["cuda_release"].replace(".", "-")
    found = [*_lists_lost(host, info)]
    apart = set(_optional(f"{info}/../diversions"))
    overridden = {
        each.split()[3] for each in _optional(f"{info}/../statoverride") if each.count(" ") > 2
    }
    tried = 0
    for name in names(info):
        if not name.endswith(".md5sums") or not _is_watched(name, release):
            continue
        package, path = name[: -len(".md5sums")], f"{info}/{name}"
        shown = package[: -len(host.native) - 1] if package.endswith(f":{host.native}") else package
        noted = os.stat(path)
        if not noted.st_size:
            if _brings_files(host, f"{info}/{package}.list"):
                found.append({"package": shown, "state": "emptied", "path": host.shown(path)})
            continue
        for row in rows(path):
            file = f"/{row[34:]}"
            if len(row) < 35 or file in apart or file.startswith(_LEFT_OUT):
                continue
            state = _state(host.at(file), file in overridden, noted.st_ctime)
            if state == "touched":
                tried += 1
                state = "" if tried > _MOST_TRIED or _same(host.at(file), row[:32]) else "changed"
            if state:
                found.append({"package": shown, "state": state, "path": file})
    found.sort(key=lambda each: (each["package"], each["state"], each["path"]))
    return found[:_MOST_LOST]


_LEFT_OUT = tuple(f"/usr/share/{each}/" for each in ("doc", "man", "locale", "info"))
_WATCHED = ("nvidia", "libcuda", "libnvidia", "libnvcuvid", "libnvoptix", "firmware-nvidia")


def _is_watched(name: str, release: str) -> bool:
    if name.startswith(_WATCHED) or (name.startswith("linux-") and "-nvidia-" in name):
        return True
    return name.endswith(f"-{release or '-'}.md5sums")


def _optional(path: str) -> list[str]:
    try:
        return rows(path)
    except (OSError, NotTold):
        return []


def _state(path: str, overridden: bool, noted: float) -> str:
    """Return what is wrong with a file by its looks; "touched" where its content has to say."""
    try:
        there = os.lstat(path)
    except OSError:
        return "gone"
    if stat.S_ISLNK(there.st_mode):
        return "linked"
    if not overridden:
        if _is_open_to_all(path) and not there.st_mode & 4:
            return "closed"
        if _is_program(path) and not there.st_mode & 1:
            return "closed"
    return "touched" if int(there.st_ctime) > int(noted) else ""


def _is_open_to_all(path: str) -> bool:
    return any(f"/usr/{each}/" in path for each in ("bin", "sbin", "lib", "local"))


def _is_program(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return folder.endswith(("/bin", "/sbin")) and "/usr/" in path and "." not in name


def _same(path: str, digest: str) -> bool:
    import hashlib

    found = hashlib.md5(usedforsecurity=False)
    try:
        with open(path, "rb") as file:
            while part := file.read(1 << 20):
                found.update(part)
    except OSError:
        return False
    return found.hexdigest() == digest


def _brings_files(host: Host, path: str) -> bool:
    """Tell whether a package brings a file: only for one that does not, dpkg has no digests."""
    passed = ("/etc/", *_LEFT_OUT[:3])
    there = (host.at(row) for row in _optional(path) if row and not row.startswith(passed))
    return any(os.path.isfile(each) and not os.path.islink(each) for each in there)


def _lists_lost(host: Host, info: str) -> Iterable[dict[str, str]]:
    """Yield dpkg's lists of files that are empty: it then takes the files for nobody's."""
    for each in _stanzas(host):
        _, flag, state = each["Status"].split()
        if state != "installed" or flag == "reinstreq" or not is_nvidias(each["Package"]):
            continue
        name, arch = each["Package"], each["Architecture"]
        shown = name if arch in (host.native, "all") else f"{name}:{arch}"
        full = f"{name}:{arch}" if each["Multi-Arch"] == "same" else shown
        lists = [f"{info}/{full}.list", f"{info}/{name}.list"]
        if not any(os.path.exists(path) and os.stat(path).st_size for path in lists):
            path = f"/var/lib/dpkg/info/{full}.list"
            yield {"package": shown, "state": "emptied", "path": path}
