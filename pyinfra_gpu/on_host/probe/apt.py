"""Apt and dpkg: packages, who holds a lock of theirs, sources, what happened, what was lost."""

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
    NotTold,
    content,
    decoded,
    hashed,
    why,
)

_NVIDIAS = (
    r"(nvidia|libcuda|libcudnn|cuda|libnv(?!me|pair|dimm)|firmware-nvidia|libxnvctrl|libnccl"
    r"|linux-(modules|objects|signatures)-nvidia|xserver-xorg-video-nvidia)"
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
_KEYS = ("Package", "Status", "Version", "Architecture", "Multi-Arch")
_MOST_OF_A_LIST = 64 << 20  # bytes
_MOST_OF_A_LOG = 32 << 20
_MOST_CHANGES = 200
_MOST_LOST, _MOST_LOST_OF_ONE = 150, 3
_MOST_TRIED = 200
_NO_DIGEST = r"/etc/|/usr/share/(doc|man|locale)/"
_LEFT_OUT = r"/usr/share/(doc|man|locale|info)/"
_WATCHED = r"(nvidia|libcuda|libnvidia|libnvcuvid|libnvoptix|firmware-nvidia)|linux-.*-nvidia-"


def is_nvidias(name: str) -> bool:
    """Tell whether a package is one of the driver's or the toolkit's."""
    return re.match(_NVIDIAS, name) is not None


@cache
def _stanzas(host: Host) -> list[dict[str, str]]:
    """Return what dpkg notes of each package, as far as it is asked; what it noted last counts.

    Beside its list lie the changes that it has not worked into it yet.
    """
    folder = host.at(_DPKG)
    there = host.is_file(f"{_DPKG}/status")
    whole = content(f"{folder}/status", _MOST_OF_A_LIST) if there else b""
    if not whole.strip():
        raise NotTold(f"{folder}/status is empty or gone: see /var/backups")
    for name in filter(str.isdigit, host.names(f"{_DPKG}/updates")):
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
    return list(found.values())


def _name(host: Host, each: Mapping[str, str], *, same: bool = False) -> str:
    """Return a package's name, with the architecture where that is not the machine's own.

    + same: and where several architectures of it may be installed side by side
    """
    name, arch = each["Package"], each["Architecture"]
    plain = arch in (host.native, "all", "") and not (same and each["Multi-Arch"] == "same")
    return name if plain else f"{name}:{arch}"


def _is_done(each: Mapping[str, str]) -> bool | None:
    """Tell whether dpkg is done with a package; None where it is not installed."""
    _, flag, state = each["Status"].split()
    if state in _UNFINISHED or flag == "reinstreq":
        return False
    return True if state == "installed" else None


def _installed(host: Host) -> dict[str, str]:
    """Return the versions of those packages that are asked for."""
    wanted = {*host.asked["packages"]}
    found = (each for each in _stanzas(host) if each["Package"] in wanted and _is_done(each))
    return {each["Package"]: each["Version"] for each in found}


def half_configured(host: Host) -> list[str]:
    """Return the packages that dpkg is not done with."""
    return [_name(host, each, same=True) for each in _stanzas(host) if _is_done(each) is False]


def _nvidias(host: Host) -> list[dict[str, Any]]:
    found = [
        {
            "name": _name(host, each),
            "version": each["Version"] or "?",
            "held": each["Status"].startswith("hold "),
            "complete": _is_done(each),
        }
        for each in _stanzas(host)
        if is_nvidias(each["Package"]) and _is_done(each) is not None
    ]
    return sorted(found, key=lambda each: str(each["name"]))


def _settings(host: Host) -> str | None:
    """Return what apt says where its settings cannot be read; nothing of it works then.

    It writes this cache after it has read them, so they are asked for only when one is newer.
    """
    cached = "/var/cache/apt/pkgcache.bin"
    made = os.stat(host.at(cached)).st_mtime if host.there(cached) else 0.0
    files = filter(host.there, ("/etc/apt/apt.conf", *host.paths("/etc/apt/apt.conf.d")))
    newer = any(os.stat(host.at(e)).st_mtime > made for e in files)
    if not newer or host.which("apt-config") is None:
        return None
    at = ("-o", f"Dir={host.root}") if host.root else ()
    status, said = host.run("apt-config", *at, "dump", seconds=5)
    errors = [row for row in said.split("\n") if row.startswith(("E:", "W:"))]
    return (errors or [why(status, said)])[0] if status else None


def lock_holder(host: Host) -> str | None:
    """Return the other process that holds a lock of apt's or dpkg's, e.g. "pid 123 (apt)"."""
    import struct
    from fcntl import F_GETLK, F_UNLCK, F_WRLCK, fcntl

    form = "hhqqi4x"  # struct flock, see fcntl(2)
    for path in filter(host.there, _LOCKS):
        try:
            file = os.open(host.at(path), os.O_RDONLY)
        except PermissionError:
            continue  # who may not open it does not run apt either
        told = fcntl(file, F_GETLK, struct.pack(form, F_WRLCK, os.SEEK_SET, 0, 0, 0))
        os.close(file)
        kind, *_, pid = struct.unpack(form, told)
        if kind != F_UNLCK:
            return host.process(str(pid))
    return None


def _sources(host: Host) -> list[dict[str, Any]]:
    folder = "/etc/apt/sources.list.d"
    files = host.files("/etc/apt/sources.list", f"{folder}/*.list", f"{folder}/*.sources")
    found = (each for path in files for each in listed(path, host.rows(path)))
    return [each for each in found if matters(each, host.asked["repository"])]


def matters(source: Mapping[str, Any], declared: str) -> bool:
    """Tell whether a source is NVIDIA's, or the declared one.

    + declared: its URL, in which {distro} and {arch} stand for any word
    """
    named = f"{source['file'].rpartition('/')[2]} {source['uri']}".lower()
    words = re.split(r"\{distro\}|\{arch\}", declared.rstrip("/"))
    is_declared = re.fullmatch("[^/]+".join(map(re.escape, words)), source["uri"].rstrip("/"))
    carriers = ("nvidia", "cuda/repos", "cuda-repo", "graphics-drivers")
    return any(each in named for each in carriers) or bool(declared and is_declared)


def listed(path: str, lines: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the enabled sources of binary packages in one list of sources.list(5), as fields."""
    for uri, key, words in (_stanzas_of if path.endswith(".sources") else _lines_of)(lines):
        suites, components = words
        suites = suites if components else []  # of a flat repository it is a folder
        same = {"signed_by": key or None, "suites": suites, "components": components}
        yield {"file": path, "uri": uri, **same}


def _lines_of(lines: list[str]) -> Iterator[tuple[str, str | None, tuple[list[str], list[str]]]]:
    """Read lines "deb [OPTION=VALUE ...] URI SUITE COMPONENT..."."""
    for line in lines:
        plain = line.partition("#")[0].strip()
        found = re.fullmatch(r"deb\s+(?:\[([^]]*)\]\s*)?(\S+)(\s.*)?", plain)
        if found:
            words = (word.partition("=") for word in (found[1] or "").split())
            options = {name.lower(): value for name, _, value in words}
            suite, *components = (found[3] or "").split() or [""]
            yield found[2], options.get("signed-by"), ([suite], components)


def _stanzas_of(
    lines: list[str],
) -> Iterator[tuple[str, str | None, tuple[list[str], list[str]]]]:
    """Read stanzas of "Field: value" with blank lines between."""
    plain = "\n".join(line.rstrip() for line in lines if not line.startswith("#"))
    for stanza in plain.split("\n\n"):
        fields = re.findall(r"(?m)^([^\s:]+)\s*:(.*(?:\n[ \t].*)*)", stanza)
        told = {name.lower(): value.strip() for name, value in fields}
        off = told.get("enabled", "yes").lower() in ("no", "false", "0", "off", "without")
        if off or "deb" not in told.get("types", "").split():
            continue
        key = told.get("signed-by", "")
        key = "embedded key" if "-----BEGIN PGP" in key else key
        both = (told.get("suites", "").split(), told.get("components", "").split())
        yield from ((uri, key, both) for uri in told.get("uris", "").split())


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
    for path in (f"{log}.1.gz", f"{log}.1", log):
        try:
            found += changes(content(path, _MOST_OF_A_LOG), host.native)
        except NotTold:
            if path == log:
                raise
        except OSError:
            continue
    return found[-_MOST_CHANGES:]


def changes(raw: bytes, native: str) -> list[dict[str, Any]]:
    """Read apt's log, packed or not; what its own damage made unreadable is passed over.

    + native: the machine's architecture, which is not told

    Odd bytes become "?"; a password in an address "***".
    """
    if raw.startswith(b"\x1f\x8b"):
        import zlib

        try:
            raw = zlib.decompressobj(47).decompress(raw, _MOST_OF_A_LOG)
        except zlib.error:
            return []
    plain = re.sub(rb"[^ -~\n]", b"?", b"\n" + raw).decode()
    found: list[dict[str, Any]] = []
    for stanza in plain.split("\nStart-Date: ")[1:]:
        when = re.match(r"(\d{4}-\d\d-\d\d) +(\d\d:\d\d:\d\d)$", stanza.partition("\n")[0])
        keyed = dict(re.findall(r"(?m)^([\w-]+): *(.*?) *$", stanza))
        command = re.sub(r"(://[^/@:\s]*):[^/@\s]*@", r"\1:***@", keyed.get("Commandline", ""))
        by = keyed.get("Requested-By") or None
        same = {"when": when and f"{when[1]}T{when[2]}", "by": by, "command": command or None}
        for action in filter(_ACTIONS.__contains__, keyed if when else ()):
            items = _changed(action, keyed[action], native)
            found += [{"action": action, **each, **same} for each in items]
    return found


def _changed(action: str, items: str, native: str) -> Iterator[dict[str, str | None]]:
    """Yield name, old and new version; apt writes (OLD, NEW), or the one and "automatic"."""
    for item in items.split("), "):
        whole, mark, versions = item.partition(" (")
        name, _, arch = whole.partition(":")
        if not mark or not (is_nvidias(name) or name.startswith(_BESIDE)):
            continue
        first, _, second = (each.strip() for each in versions.rstrip(")").partition(","))
        old, new = first, second.partition(",")[0]
        if action not in ("Upgrade", "Downgrade"):
            old = "" if action == "Install" else first
            new = first if action in ("Install", "Reinstall") else ""
        if old or new:
            yield {
                "name": name if arch == native else whole,
                "old": old or None,
                "new": new or None,
            }


def _lost(host: Host) -> list[dict[str, str]]:
    """Return what packages of the driver and the toolkit brought, and is gone or was changed.

    What the kernel says was touched after dpkg noted the package's digests, and has another one; a
    link in a file's place; what not everybody may read or run, but where dpkg-statoverride(1) says
    so. Configuration and links are not among what dpkg has digests of; documentation, dpkg may have
    been told to leave out.
    """
    release = host.asked["cuda_release"].replace(".", "-") or "-"
    found = [*_lists_lost(host)]
    apart = {*host.rows_if_any(f"{_DPKG}/diversions")}
    overridden = {row.split(" ", 3)[-1] for row in host.rows_if_any(f"{_DPKG}/statoverride")}
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
    # Each package comes back by one of its files: a whole toolkit that is gone is told as well.
    groups = groupby(found, key=lambda each: each["package"])
    few = [each for _, files in groups for each in islice(files, _MOST_LOST_OF_ONE)]
    return few[:_MOST_LOST]


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
    try:
        return bool(hashed(path, "md5").hexdigest() == digest)
    except OSError:
        return False


def _brings_files(host: Host, path: str) -> bool:
    """Tell whether a package brings a file: only for one that does not, dpkg has no digests."""
    passed = (row for row in host.rows_if_any(path) if row and not re.match(_NO_DIGEST, row))
    return any(host.is_file(each) and not os.path.islink(host.at(each)) for each in passed)


def _lists_lost(host: Host) -> Iterator[dict[str, str]]:
    """Yield dpkg's lists of files that are empty: it then takes the files for nobody's."""
    for each in filter(_is_done, _stanzas(host)):
        path = f"{_INFO}/{_name(host, each, same=True)}.list"
        there = host.is_filled(path) or host.is_filled(f"{_INFO}/{each['Package']}.list")
        if is_nvidias(each["Package"]) and not there:
            yield {"package": _name(host, each), "state": "emptied", "path": path}
        # What the loader searches is a package's configuration, of which dpkg has no digests.
        configures = re.match(r"cuda-toolkit-.*config-common", each["Package"])
        for row in host.rows_if_any(path) if configures else ():
            if row.startswith("/etc/ld.so.conf.d/") and not host.is_file(row):
                yield {"package": _name(host, each), "state": "gone", "path": row}


FACTS: Facts = {
    "packages.installed": _installed,
    "packages.half_configured": half_configured,
    "packages.settings": _settings,
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
