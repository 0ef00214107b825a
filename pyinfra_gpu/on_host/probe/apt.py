"""Apt and dpkg: packages, who holds a lock of theirs, sources, what happened, what was lost."""

from __future__ import annotations

import os
import re
import stat

from .files import content, there
from .frame import TEXT_LIMIT, Host, NotTold, decoded, names, why

TYPE_CHECKING = False  # to load `typing` takes as long as a fifth of the look
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from .frame import Facts

_NVIDIAS = (
    r"(nvidia|libcuda|libcudnn|cuda|libnv(?!me|pair|dimm)|firmware-nvidia|libxnvctrl|libnccl"
    r"|linux-(modules|objects|signatures)-nvidia|xserver-xorg-video-nvidia)"
)
_BESIDE = ("linux-image-", "linux-headers-", "gcc", "g++", "dkms")
_LOCKS = tuple(
    f"/var/{each}"
    for each in (
        *("lib/dpkg/lock-frontend", "lib/dpkg/lock"),
        *("lib/apt/lists/lock", "cache/apt/archives/lock"),
    )
)
_UNFINISHED = (
    *("half-installed", "unpacked", "half-configured", "triggers-awaited", "triggers-pending"),
)
_ACTIONS = ("Install", "Upgrade", "Downgrade", "Remove", "Purge", "Reinstall")
_INFO = "/var/lib/dpkg/info"
_KEYS = ("Package", "Status", "Version", "Architecture", "Multi-Arch")
_MOST_OF_A_LIST = 64 << 20  # bytes
_MOST_CHANGES = 200
_MOST_LOST = 50
_MOST_TRIED = 200


def is_nvidias(name: str) -> bool:
    """Tell whether a package is one of the driver's or the toolkit's."""
    return re.match(_NVIDIAS, name) is not None


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
    whole = content(f"{folder}/status", _MOST_OF_A_LIST)
    if not whole.strip():
        raise NotTold(f"{folder}/status is empty: see /var/backups")
    for name in filter(str.isdigit, names(f"{folder}/updates")):
        whole += b"\n\n" + content(f"{folder}/updates/{name}", _MOST_OF_A_LIST)
    if len(whole) >= _MOST_OF_A_LIST:
        raise NotTold(f"{folder}/status is longer than {_MOST_OF_A_LIST >> 20} MiB")
    found: dict[tuple[str, str], dict[str, str]] = {}
    for stanza in filter(bytes.strip, whole.split(b"\n\n")):
        raw = b"\n" + stanza + b"\n"
        each = {}
        for name in _KEYS:
            _, mark, rest = raw.partition(f"\n{name}: ".encode())
            each[name] = decoded(rest[: rest.find(b"\n")]).strip() if mark else ""
        if not each["Package"] or len(each["Status"].split()) != 3:
            raise NotTold(f"{folder}/status is damaged: see /var/backups")
        found[each["Package"], each["Architecture"]] = each
    host.stanzas = list(found.values())
    return host.stanzas


def _full_name(host: Host, each: Mapping[str, str]) -> str:
    """Return a package's name, with the architecture where that is not the machine's own."""
    name, arch = each["Package"], each["Architecture"]
    return name if arch in (host.native, "all", "") else f"{name}:{arch}"


def _packages(host: Host) -> tuple[dict[str, str], list[str], list[dict[str, Any]]]:
    """Return (installed of those asked for, those that dpkg is not done with, NVIDIA's)."""
    wanted, nvidia = set(host.asked["packages"]), host.asked["nvidia"]
    installed: dict[str, str] = {}
    unfinished: list[str] = []
    theirs: list[dict[str, Any]] = []
    for each in _stanzas(host):
        want, flag, state = each["Status"].split()
        name, version, apart = each["Package"], each["Version"], _full_name(host, each)
        broken = state in _UNFINISHED or flag == "reinstreq"
        if broken:
            same = each["Multi-Arch"] == "same"
            unfinished.append(f"{name}:{each['Architecture']}" if same else apart)
        elif state != "installed":
            continue
        elif name in wanted:
            installed[name] = version
        if nvidia and is_nvidias(name):
            told = {"name": apart, "version": version or "?"}
            theirs.append({**told, "held": want == "hold", "complete": not broken})
    return installed, unfinished, sorted(theirs, key=lambda each: str(each["name"]))


def _settings(host: Host) -> str | None:
    """Return what apt says where its settings cannot be read; nothing of it works then.

    It writes this cache after it has read them, so they are asked for only when one is newer.
    """
    cache, folder = "/var/cache/apt/pkgcache.bin", "/etc/apt/apt.conf.d"
    made = os.stat(host.at(cache)).st_mtime if host.there(cache) else 0.0
    files = ("/etc/apt/apt.conf", *(f"{folder}/{each}" for each in host.names(folder)))
    newer = any(os.stat(host.at(e)).st_mtime > made for e in filter(host.there, files))
    if not newer or host.which("apt-config") is None:
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


def lock_holder(host: Host) -> str | None:
    """Return the other process that holds a lock of apt's or dpkg's, e.g. "pid 123 (apt)".

    They take fcntl locks, which the kernel lists by device and inode.
    """
    files = set()
    for path in filter(host.there, _LOCKS):
        there = os.stat(host.at(path))
        device = f"{os.major(there.st_dev):02x}:{os.minor(there.st_dev):02x}"
        files.add(f"{device}:{there.st_ino}")
    inodes = {key.rpartition(":")[2] for key in files}
    for words in locks(host) if files else ():
        # 1: POSIX  ADVISORY  WRITE 812 08:01:1312 0 EOF
        if len(words) < 6 or words[1] not in ("POSIX", "OFDLCK"):
            continue
        pid, place = words[4], words[5]
        # Some file systems (btrfs, overlays) show the kernel another device number.
        is_one = place.rpartition(":")[2] in inodes
        if is_one and (place in files or _has_open(host, pid)):
            return host.process(pid)
    return None


def _has_open(host: Host, pid: str) -> bool:
    folder = host.at(f"/proc/{pid}/fd")
    try:
        links = [os.readlink(f"{folder}/{each}") for each in os.listdir(folder)]
    except OSError:
        return False
    return any(link.endswith(_LOCKS) for link in links)


def _source_lines(host: Host) -> list[str]:
    """Return the lines of apt's sources as "FILE:LINE"."""
    folder = "/etc/apt/sources.list.d"
    try:
        there = [e for end in (".list", ".sources") for e in host.names(folder, end=end)]
    except PermissionError:
        raise NotTold(f"no permission to look at {host.at(folder)}") from None
    found = []
    for path in ("/etc/apt/sources.list", *(f"{folder}/{each}" for each in there)):
        if host.is_file(path):
            lines = "\n".join(host.rows(path)).removesuffix("\n").split("\n")
            found += [f"{path}:{row}" for row in lines if not row.startswith("#")]
    return found


def _keyring(host: Host) -> str | None:
    """Return the bytes of the keyring file in hexadecimal digits."""
    path = host.asked["keyring"] and host.at(host.asked["keyring"])
    return content(path, TEXT_LIMIT + 1, follow=True).hex() if path and there(path) else None


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
    plain = re.sub(rb"[^ -{}~\n]", b"?", b"\n" + raw).decode()
    found: list[str] = []
    for stanza in plain.split("\nStart-Date: "):
        keyed = dict(re.findall(r"(?m)^([\w-]+): (.*)$", f"Start-Date: {stanza}"))
        end = f"{keyed.get('Requested-By', '')}|{keyed.get('Commandline', '')}"
        for action, listed in keyed.items():
            items = _of_interest(host, listed) if action in _ACTIONS else ()
            found += [f"{keyed['Start-Date']}|{action}|{each}|{end}" for each in items]
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
    release = host.asked["cuda_release"].replace(".", "-") or "-"
    found = [*_lists_lost(host)]
    apart = set(_optional(host, f"{_INFO}/../diversions"))
    overridden = {
        each.split()[3]
        for each in _optional(host, f"{_INFO}/../statoverride")
        if each.count(" ") > 2
    }
    tried = 0
    for name in host.names(_INFO, end=".md5sums"):
        if not re.match(_WATCHED, name) and not name.endswith(f"-{release}.md5sums"):
            continue
        package, path = name[: -len(".md5sums")], f"{_INFO}/{name}"
        shown = re.sub(f":{host.native}$", "", package)
        noted = os.stat(host.at(path))
        if not noted.st_size and _brings_files(host, f"{_INFO}/{package}.list"):
            found.append({"package": shown, "state": "emptied", "path": path})
        for row in host.rows(path):
            file = f"/{row[34:]}"
            if len(row) < 35 or file in apart or re.match(_LEFT_OUT, file):
                continue
            state = _state(host.at(file), file in overridden, noted.st_ctime)
            if state == "touched":
                tried += 1
                state = "" if tried > _MOST_TRIED or _same(host.at(file), row[:32]) else "changed"
            if state:
                found.append({"package": shown, "state": state, "path": file})
    if tried > _MOST_TRIED and not found:
        raise NotTold(f"more than {_MOST_TRIED} files of NVIDIA's packages were touched since")
    found.sort(key=lambda each: (each["package"], each["state"], each["path"]))
    return found[:_MOST_LOST]


_LEFT_OUT = r"/usr/share/(doc|man|locale|info)/"
_WATCHED = r"(nvidia|libcuda|libnvidia|libnvcuvid|libnvoptix|firmware-nvidia)|linux-.*-nvidia-"


def _optional(host: Host, path: str) -> list[str]:
    try:
        return host.rows(path)
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
    for_all = re.search("/usr/(bin|sbin|lib|local)/", path) and not there.st_mode & 4
    program = re.search(r"/usr/(.*/)?s?bin/[^./]*$", path) and not there.st_mode & 1
    if (for_all or program) and not overridden:
        return "closed"
    return "touched" if int(there.st_ctime) > int(noted) else ""


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
    passed = (row for row in _optional(host, path) if row and not re.match(_NO_DIGEST, row))
    return any(host.is_file(each) and not os.path.islink(host.at(each)) for each in passed)


_NO_DIGEST = r"/etc/|/usr/share/(doc|man|locale)/"


def _lists_lost(host: Host) -> Iterator[dict[str, str]]:
    """Yield dpkg's lists of files that are empty: it then takes the files for nobody's."""
    for each in _stanzas(host):
        _, flag, state = each["Status"].split()
        if state != "installed" or flag == "reinstreq" or not is_nvidias(each["Package"]):
            continue
        name, shown = each["Package"], _full_name(host, each)
        full = f"{name}:{each['Architecture']}" if each["Multi-Arch"] == "same" else shown
        path = f"{_INFO}/{full}.list"
        if not host.is_filled(path) and not host.is_filled(f"{_INFO}/{name}.list"):
            yield {"package": shown, "state": "emptied", "path": path}
