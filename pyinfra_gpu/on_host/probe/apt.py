"""Apt and dpkg: packages, who holds their locks, sources, what happened, what was lost."""

from __future__ import annotations

import os
import re
import stat
from functools import cache
from itertools import groupby, islice

from .frame import (
    TEXT_LIMIT,
    Any,
    Facts,
    Host,
    Iterator,
    Mapping,
    NotReported,
    content,
    decoded,
    hashed,
)

NVIDIAS = (
    r"(nvidia|libcuda|libcudnn|cuda|libnv(?!me|pair|dimm)|lib(egl|gl1|gles|glx)-nvidia|libxnvctrl"
    r"|firmware-nvidia|libnccl|linux-(modules|objects|signatures)-nvidia|xserver-xorg-video-nvidia)"
)
_BESIDE = ("linux-image-", "linux-headers-", "gcc", "g++", "dkms")
_LOCKS = (
    *("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock"),
    *("/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock"),
)
_UNFINISHED = (
    *("half-installed", "unpacked", "half-configured", "triggers-awaited", "triggers-pending"),
)
_ACTIONS = ("Install", "Upgrade", "Downgrade", "Remove", "Purge", "Reinstall")
_DPKG = "/var/lib/dpkg"
_INFO = f"{_DPKG}/info"
_MOST_OF_A_LIST = 64 << 20  # bytes
_MOST_OF_A_LOG = 32 << 20
_MOST_CHANGES = 200
_MOST_LOST_OF_ONE = 3
_MOST_TRIED = 200
_DOCUMENTATION = r"/usr/share/(doc|man|locale|info)/"
_WATCHED = r"(nvidia|libcuda|libnvidia|libnvcuvid|libnvoptix|firmware-nvidia)|linux-.*-nvidia-"


def is_nvidia(name: str) -> bool:
    """Tell whether a package has one of NVIDIA's names: driver, toolkit, or around them."""
    return re.match(NVIDIAS, name) is not None


@cache
def _packages(host: Host) -> Mapping[str, dict[str, Any]]:
    """Return what is installed, wholly or in part: name -> what dpkg noted last.

    Beside dpkg's list lie the changes that it has not worked into it yet. The name is with the
    architecture where that is not the machine's own.
    """
    names = (f"updates/{each}" for each in host.names(f"{_DPKG}/updates") if each.isdigit())
    files = (host.at(f"{_DPKG}/{each}") for each in ("status", *names))
    if not host.is_filled(f"{_DPKG}/status"):
        raise NotReported(f"{host.at(_DPKG)}/status is empty or gone: see /var/backups")
    whole = b"\n\n".join(content(each, _MOST_OF_A_LIST) for each in files)
    found: dict[str, dict[str, Any]] = {}
    for stanza in filter(bytes.strip, whole.split(b"\n\n")):
        parts = (_field(b"\n" + stanza, name) for name in ("Package", "Architecture", "Version"))
        (name, arch, version), words = parts, _field(b"\n" + stanza, "Status").split()
        if not name or len(words) != 3:
            raise NotReported(f"{host.at(_DPKG)}/status is damaged: see /var/backups")
        name = name if arch in (host.native, "all", "") else f"{name}:{arch}"
        cut_off = words[1] == "reinstreq" or words[2] in _UNFINISHED
        found.pop(name, None)
        if cut_off or words[2] == "installed":
            same = {"version": version or "?", "held": words[0] == "hold"}
            found[name] = {"name": name, **same, "complete": not cut_off}
    return found


def _field(stanza: bytes, name: str) -> str:
    rest = stanza.partition(f"\n{name}: ".encode())[2]
    return decoded(rest.partition(b"\n")[0]).strip()


def _installed(host: Host) -> dict[str, str]:
    """Return the versions of those packages that are asked for."""
    found = {name: _packages(host).get(name) for name in host.asked["packages"]}
    return {name: each["version"] for name, each in found.items() if each and each["complete"]}


def half_configured(host: Host) -> list[str]:
    """Return the packages that dpkg is not done with."""
    return [name for name, each in _packages(host).items() if not each["complete"]]


def _nvidias(host: Host) -> list[dict[str, Any]]:
    return [each for name, each in sorted(_packages(host).items()) if is_nvidia(name)]


def lock_holder(host: Host) -> str | None:
    """Return the other process that holds a lock of apt's or dpkg's, e.g. "pid 123 (apt)"."""
    pid = holder(host, "POSIX", *_LOCKS)
    return pid and host.process(pid)


def holder(host: Host, kind: str, *paths: str) -> str | None:
    """Return the number of a process that holds a lock on one of these files.

    + kind: "POSIX" or "FLOCK", see proc_locks(5)

    The files may be in somebody's folder, and are not opened.
    """
    files = {str(os.stat(host.at(path)).st_ino) for path in filter(host.there, paths)}
    if not host.is_file("/proc/locks"):
        raise NotReported("/proc/locks may not be read")
    for words in map(str.split, host.rows("/proc/locks")):
        if len(words) > 5 and words[1] == kind and words[5].rpartition(":")[2] in files:
            return words[4]
    return None


def _sources(host: Host) -> list[dict[str, Any]]:
    folder = "/etc/apt/sources.list.d"
    files = host.files("/etc/apt/sources.list", f"{folder}/*.list", f"{folder}/*.sources")
    return [each for path in files for each in listed(path, host.rows(path))]


def listed(path: str, lines: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the enabled sources of binary packages in one list of sources.list(5), as fields."""
    for each in map(_fields, _stanzas(lines)) if path.endswith(".sources") else map(_line, lines):
        off = each.get("enabled", "yes").lower() in ("no", "false", "0", "off", "without")
        if off or "deb" not in each.get("types", "").split():
            continue
        key = each.get("signed-by", "")
        key = "embedded key" if "-----BEGIN PGP" in key else key
        suites, components = each.get("suites", "").split(), each.get("components", "").split()
        suites = suites if components else []  # of a flat repository it is a folder
        same = {"signed_by": key or None, "suites": suites, "components": components}
        yield from ({"file": path, "uri": uri, **same} for uri in each.get("uris", "").split())


def _line(line: str) -> dict[str, str]:
    """Return a line "deb [OPTION=VALUE ...] URI SUITE COMPONENT..." as the fields of a stanza."""
    form = r"\s*deb\s+(?:\[([^]]*)\]\s*)?(\S+)\s*(\S*)\s*(.*)"
    found = re.fullmatch(form, line.partition("#")[0].rstrip())
    if not found:
        return {}
    words = (word.partition("=") for word in (found[1] or "").split())
    options = {name.lower(): value for name, _, value in words}
    named = {"uris": found[2], "suites": found[3], "components": found[4]}
    return {**options, "types": "deb", **named}


def _stanzas(lines: list[str]) -> list[str]:
    return "\n".join(line.rstrip() for line in lines if not line.startswith("#")).split("\n\n")


def _fields(stanza: str) -> dict[str, str]:
    found = re.findall(r"(?m)^([^\s:]+)\s*:(.*(?:\n[ \t].*)*)", stanza)
    return {name.lower(): value.strip() for name, value in found}


def _keyring(host: Host) -> str | None:
    """Return the bytes of the keyring file in hexadecimal digits."""
    path = host.asked["keyring"]
    return content(host.at(path), TEXT_LIMIT + 1).hex() if path else None


def _history(host: Host) -> list[dict[str, Any]]:
    """Return what the log says of NVIDIA's packages, compilers and kernels, newest last.

    The log before this one may be unreadable, or not there: what it held is then too old.
    """
    log = host.at("/var/log/apt/history.log")
    found: list[dict[str, Any]] = []
    for path in (f"{log}.1.gz", log):
        try:
            found += changes(content(path, _MOST_OF_A_LOG), host.native)
        except NotReported:
            if path == log:
                raise
        except OSError:
            continue
    return found[-_MOST_CHANGES:]


def changes(raw: bytes, native: str) -> list[dict[str, Any]]:
    """Read apt's log, packed or not; what its own damage made unreadable is passed over.

    + native: the machine's architecture, which is left out

    Odd bytes become "?"; a password in an address "***".
    """
    if raw.startswith(b"\x1f\x8b"):
        import zlib

        try:
            raw = zlib.decompressobj(47).decompress(raw, _MOST_OF_A_LOG)
        except zlib.error:
            return []
    found: list[dict[str, Any]] = []
    plain = re.sub(rb"[^ -~\n]", b"?", raw).decode()
    for stanza in re.split("(?m)^(?=Start-Date: )", plain):
        keyed = dict(re.findall(r"(?m)^([\w-]+): *(.*?) *$", stanza))
        when = re.fullmatch(r"(\d{4}-\d\d-\d\d) +(\d\d:\d\d:\d\d)", keyed.get("Start-Date", ""))
        command = re.sub(r"(://[^/@:\s]*):[^/@\s]*@", r"\1:***@", keyed.get("Commandline", ""))
        by = keyed.get("Requested-By") or None
        same = {"when": when and f"{when[1]}T{when[2]}", "by": by, "command": command or None}
        for action in filter(_ACTIONS.__contains__, keyed if when else ()):
            items = _changed(action, keyed[action], native)
            found += [{"action": action, **each, **same} for each in items]
    return found


def _changed(action: str, items: str, native: str) -> Iterator[dict[str, str | None]]:
    """Yield name, old and new version; apt writes (OLD, NEW), or the one and "automatic"."""
    for whole, first, second in re.findall(r"(\S+) \(([^,)]+)(?:, ([^,)]*))?[^)]*\)", items):
        name, _, arch = whole.partition(":")
        old = None if action == "Install" else first
        new = first if action in ("Install", "Reinstall") else None
        if action in ("Upgrade", "Downgrade"):
            new = second or None
        if is_nvidia(name) or name.startswith(_BESIDE):
            yield {"name": name if arch == native else whole, "old": old, "new": new}


def _lost(host: Host) -> list[dict[str, str]]:
    """Return what packages of the driver and the toolkit brought, and is gone or was changed.

    Changed is what the kernel says was touched after dpkg noted the package's digests, and has
    another one, or is a link. Some of each package will do: by one of its files it comes back.
    """
    found, touched = _loader_files_gone(host), 0
    for package, digest, path, noted in _with_digests(host):
        state = _state(host.at(path), noted)
        if state == "touched":
            touched += 1
            tried = touched <= _MOST_TRIED
            same = not tried or hashed(host.at(path), "md5").hexdigest() == digest
            state = "" if same else "changed"
        if state:
            found.append({"package": package, "state": state, "path": path})
    if touched > _MOST_TRIED and not found:
        raise NotReported(f"more than {_MOST_TRIED} files of NVIDIA's packages were touched since")
    found.sort(key=lambda each: (each["package"], each["state"], each["path"]))
    groups = groupby(found, key=lambda each: each["package"])
    return [each for _, of in groups for each in islice(of, _MOST_LOST_OF_ONE)]


def _with_digests(host: Host) -> Iterator[tuple[str, str, str, int]]:
    """Yield (package, digest, path, when dpkg noted that) of files of the driver and the toolkit.

    Configuration and links are not among what dpkg has digests of; documentation, dpkg may have
    been told to leave out.
    """
    release = host.asked["cuda_release"].replace(".", "-") or "-"
    diverted = {*host.rows_if_any(f"{_DPKG}/diversions")}
    for name in host.names(_INFO, end=".md5sums"):
        if re.match(_WATCHED, name) or name.endswith(f"-{release}.md5sums"):
            package = re.sub(rf"(:{host.native})?\.md5sums$", "", name)
            noted = int(os.stat(host.at(f"{_INFO}/{name}")).st_ctime)
            for row in host.rows(f"{_INFO}/{name}"):
                path = f"/{row[34:]}"
                if len(row) > 34 and path not in diverted and not re.match(_DOCUMENTATION, path):
                    yield package, row[:32], path, noted


def _state(path: str, noted: int) -> str:
    """Return what is wrong with a file by its looks; "touched" where its content has to say."""
    try:
        there = os.lstat(path)
    except OSError:
        return "gone"
    if stat.S_ISLNK(there.st_mode):
        return "changed"
    return "touched" if int(there.st_ctime) > noted else ""


def _loader_files_gone(host: Host) -> list[dict[str, str]]:
    """Return what tells the loader of a toolkit: configuration, of which dpkg has no digests."""
    names = [e for e in _packages(host) if re.match(r"cuda-toolkit-.*config-common", e)]
    rows = [(name, row) for name in names for row in host.rows_if_any(f"{_INFO}/{name}.list")]
    gone = [e for e in rows if e[1].startswith("/etc/ld.so.conf.d/") and not host.is_file(e[1])]
    return [{"package": name, "state": "gone", "path": row} for name, row in gone]


FACTS: Facts = {
    "packages.installed": _installed,
    "packages.half_configured": half_configured,
    "packages.lock_holder": lock_holder,
}
NVIDIA: Facts = {
    "nvidia.packages": _nvidias,
    "nvidia.sources": _sources,
    "nvidia.keyring": _keyring,
    "nvidia.history": _history,
    "nvidia.lost": _lost,
}
"""What is looked at only where an NVIDIA driver is wanted."""
