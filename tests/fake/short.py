"""A host's answer from the short forms in which tests write facts.

"driver.loaded" and the like: a text, None for "it is not there", "?why" for "not told"; lists of
rows as programs of the system print them (`git status --porcelain=v2`, `stat -c '%f %u %U %s %n'`).
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable, Mapping
from typing import Any

from pyinfra_gpu.on_host.probe import apt, driver, look, system, torch, training
from pyinfra_gpu.on_host.probe.frame import NotTold, attempt, only

MIRROR = "http://mirror.example/nvidia/{distro}/{arch}"
Plain = Mapping[str, str | None]
Lists = Mapping[str, list[str]]

_NAMES = {
    "packages.lock": "packages.lock_holder",
    "training.requirements": "training.requirements_sha256",
    "training.stamp": "training.stamp_text",
    "owned.preload_problem": "system.preload_problem",
    "driver.user": "driver.users",
    "kernel.source": "kernel.sources",
    "cuda.toolkit": "cuda.toolkits",
    "cuda.shell": "cuda.shell_lines",
    "libcuda.file": "libcuda.files",
    "libcuda.loader_path": "libcuda.loader_paths",
    "power.session": "power.sessions",
    "power.inhibitor": "power.inhibitors",
    "launcher.run": "launcher.runs",
    "training.masked": "launcher.own_masked",
    "training.submodule": "training.submodules",
    "torch.need": "torch.needs",
    "torch.distribution": "torch.distributions",
    "owned.for_all": "environment.for_all",
    "nvidia.source_line": "nvidia.sources",
    "driver.license": "driver.on_disk_open",
    "driver.version_line": "driver.open_modules",
    "system.cpus": "system.cpu_count",
    "system.memory": "system.ram_mib",
    "storage.free": "storage.free_mib",
    "storage.usr": "storage.usr_mib",
    "storage.var": "storage.var_mib",
    "storage.boot": "storage.boot_mib",
    "storage.shm": "storage.shm_mib",
    "storage.initrd": "storage.initrd_mib",
    "torch.other": "torch.damaged_others",
    "nvidia.package": "nvidia.packages",
    "nvidia.file": "nvidia.lost",
    "libcuda.link": "libcuda.links",
    "gpus.device": "gpus.devices",
}


_flag = {"0": False, "1": True}.__getitem__


def _mib(column: str) -> Callable[[str], int]:
    form = r" +(?P<size>\d+) +\d+ +(?P<free>-?\d+) +(?:\d{1,3}%|-) +/"

    def read(line: str) -> int:
        found = re.search(form, line)
        if not found:
            raise NotTold(f"df said {line[:80]!r}")
        return int(found[column]) // 1024

    return read


def _reboots(text: str) -> list[dict[str, Any]]:
    found = re.findall(r"^(\d{1,12}) (\S{1,64}) (.+)$", text, re.MULTILINE)
    return [{"at": int(at), "boot_id": boot, "reason": why} for at, boot, why in found]


def _build(text: str) -> dict[str, Any]:
    fingerprint, phase, state = text.split(" ", 2)
    return {"fingerprint": fingerprint, "phase": phase, "running": state == "at work"}


_TEXTS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("torch.touched", "training.dirty_count"), int),
    **dict.fromkeys(("driver.nouveau", "driver.nova", "driver.runfile", "cuda.gxx"), _flag),
    **dict.fromkeys(("torch.installing", "launcher.linger", "launcher.manager"), _flag),
    **dict.fromkeys(("storage.free", "storage.usr", "storage.var", "storage.boot"), _mib("free")),
    "system.secure_boot": _flag,
    "storage.shm": _mib("size"),
    "storage.initrd": lambda text: -(-int(text) // 2**20),
    "cuda.nvcc": lambda text: only(r"release ([\d.]+)", text, "nvcc"),
    "system.cpus": lambda text: int(text.partition("-")[2]) + 1,
    "system.memory": lambda text: int(text.split()[1]) // 1024,
    "system.python3": system.python_version,
    "driver.mok": system.enrolled,
    "driver.version_line": driver.flavour,
    "driver.license": driver.is_open,
    "driver.persistenced_enabled": driver.enabled,
    "torch.uv": torch.uv_version,
    "power.reboots": _reboots,
    "build.state": _build,
}


def _gpu(row: str) -> dict[str, Any]:
    address, vendor, device, class_, bound, *bars = row.split(" ")
    lines = [] if "?" in bars else [each.replace("-", " ") for each in bars]
    known: Any = {"?": {"?": "the link to its driver could not be read"}, "-": None}
    return {
        "address": address,
        "vendor": vendor,
        "device": device,
        "class_": class_,
        "driver": known.get(bound, bound),
        "bar1_mib": system.bar1(lines),
    }


def _or_none(word: str) -> str | None:
    return None if word == "-" else word


def _package(row: str) -> dict[str, Any]:
    name, version, held, complete = row.split(" ")
    return {"name": name, "version": version, "held": held == "1", "complete": complete == "1"}


def _links(rows: list[str]) -> dict[str, Any]:
    found = {}
    for row in rows:
        kind, _, rest = row.partition(" ")
        path, target, real = rest.split(" => ")
        if kind == "hidden":
            raise NotTold(f"no permission to look at {path}")
        found[path] = {"kind": kind, "target": _or_none(target), "real": _or_none(real)}
    return found


def _pairs(rows: list[str]) -> dict[str, str]:
    return {name: rest for name, _, rest in (row.partition(" ") for row in rows)}


def _inodes(rows: list[str]) -> dict[str, int]:
    words = [row.split(" ", 2) for row in rows]
    return {place: int(free) for every, free, place in words if int(every)}


def _cache(row: str) -> dict[str, str | None]:
    name, path, real = row.split(" => ")
    return {"name": name, "path": path, "real": _or_none(real)}


def _sources(rows: list[str]) -> list[dict[str, Any]]:
    files: dict[str, list[str]] = {}
    for name, _, line in (row.partition(":") for row in rows):
        files.setdefault(name, []).append(line)
    found = (each for name, lines in files.items() for each in apt.listed(name, lines))
    return [each for each in found if apt.matters(each, MIRROR)]


_ROWS: dict[str, Callable[[list[str]], Any]] = {
    "nvidia.source_line": _sources,
    "gpus.device": lambda rows: sorted(map(_gpu, rows), key=lambda each: str(each["address"])),
    "packages.installed": _pairs,
    "nvidia.package": lambda rows: sorted(map(_package, rows), key=lambda each: str(each["name"])),
    "nvidia.file": lambda rows: [
        dict(zip(("package", "state", "path"), row.split(" ", 2), strict=True))
        for row in sorted(rows)
    ],
    "libcuda.link": _links,
    "libcuda.cache": lambda rows: [_cache(row) for row in rows],
    "kernel.headers": lambda rows: {k: v == "1" for k, v in _pairs(rows).items()},
    "storage.inodes": _inodes,
    "torch.other": lambda rows: {torch.plain_name(k): v for k, v in _pairs(rows).items()},
    "torch.distribution": torch.distributions,
}
_APART = ("system.os", "torch.version_line", "training.dirty", "owned.closed", "kernel.module")


def lines(plain: Plain, lists: Lists) -> list[str]:
    """Return what such a host answers."""
    return answered(document(plain, lists))


def answered(made: Mapping[str, Any]) -> list[str]:
    """Return an answer as lines."""
    return [look.FIRST_LINE, json.dumps(made), look.LAST_LINE]


def told_of(answer: list[str], key: str) -> Any:
    """Return what an answer has under a key."""
    made = json.loads(answer[1])
    return {**made, **json.loads(made["owner"])}[key]


def document(plain: Plain, lists: Lists) -> dict[str, Any]:
    """Return what such a host answers, as the document that it is."""
    found = {*look.NVIDIA_KEYS} if plain.get("nvidia.asked") == "0" else set()
    facts: dict[str, Callable[[], Any]] = {}
    for key, value in plain.items():
        name = _NAMES.get(key, key)
        if name not in found:
            facts[name] = lambda key=key, value=value: _text(key, value)  # type: ignore[misc]
    for key, rows in lists.items():
        name = _NAMES.get(key, key)
        if (plain.get(key) or "").startswith("?"):
            continue
        if name not in found and not key.startswith(("layout.", "owned.")) and key not in _APART:
            facts[name] = lambda key=key, rows=rows: _list(key, rows)  # type: ignore[misc]
    if "owned.for_all" in lists:
        facts["environment.for_all"] = lambda: lists["owned.for_all"]
    facts |= _apart(plain, lists, found)
    made: dict[str, Any] = {}
    for keys, find in facts.items():
        value, several = attempt(find), keys.split()
        values = value if isinstance(value, tuple) else (value,) * len(several)
        made |= zip(several, values, strict=False)
    made.pop("nvidia.asked", None)
    theirs = {key: made.pop(key) for key in [*made] if key in look.OWNERS_KEYS}
    return {**made, "nvidia": not found, "owner": json.dumps(theirs)}


def _text(key: str, value: str | None) -> Any:
    if value is None:
        return [] if key == "power.reboots" else None
    if value.startswith("?"):
        raise NotTold(value[1:])
    return _TEXTS[key](value) if key in _TEXTS else value


def _list(key: str, rows: list[str]) -> Any:
    unread = next((row for row in rows if str(row).startswith("?")), None)
    if unread and not unread.startswith("? "):
        raise NotTold(unread[1:])
    return _ROWS[key](rows) if key in _ROWS else rows


def _apart(plain: Plain, lists: Lists, found: set[str]) -> dict[str, Callable[[], Any]]:
    made: dict[str, Callable[[], Any]] = {}
    if "system.os" in lists:
        keys = "system.os_id system.os_version system.os_name"
        made[keys] = lambda: system.release(_list("system.os", lists["system.os"]))
    if "torch.version_line" in lists:
        keys = "torch.version torch.git_version torch.cuda"
        made[keys] = lambda: torch.identity(_list("", lists["torch.version_line"]))
    if "training.dirty" in lists:
        keys = "training.dirty training.dirty_submodules"
        made[keys] = lambda: training.changes_in(_list("training.dirty", lists["training.dirty"]))[
            1:
        ]
    if "owned.closed" in lists:
        closed = lists["owned.closed"]
        made["storage.shm_closed"] = lambda: "/dev/shm" in _list("", closed)
        made["driver.closed"] = lambda: [e for e in _list("", closed) if e != "/dev/shm"]
    if "kernel.module" in lists and "kernel.modules" not in found:
        made["kernel.modules"] = lambda: {
            str(_text("", plain["system.kernel"])): _text(
                "driver.on_disk", plain["driver.on_disk"]
            ),
            **{k: _or_none(v) for k, v in _pairs(_list("", lists["kernel.module"])).items()},
        }
    made |= _entries(lists)
    return made


def _entries(lists: Lists) -> dict[str, Callable[[], Any]]:
    if "layout.asked" not in lists:
        return {}
    left = lists.get("layout.left", [])
    mine = [path for path in lists["layout.asked"] if path not in left]
    return {
        "layout.left": lambda: left,
        "layout.entries": lambda: {path: _entry(lists, "layout", path) for path in mine},
        "owned": lambda: {path: _entry(lists, "owned", path) for path in left},
    }


def _entry(lists: Lists, key: str, path: str) -> dict[str, Any]:
    if path in lists.get(f"{key}.absent", []):
        return {"kind": "absent"}
    if path in lists.get(f"{key}.hidden", []):
        return {"?": f"no permission to look at {path}"}
    row = next((r for r in lists.get(f"{key}.stat", []) if r.split(" ", 4)[-1] == path), None)
    if row is None:
        return {"?": f"stat said nothing about {path}"}
    raw, uid, owner, size, _ = row.split(" ", 4)
    mode = int(raw, 16)
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(mode), "other")
    found: dict[str, Any] = {"kind": kind, "mode": f"{stat.S_IMODE(mode):04o}"}
    found["owner"] = uid if owner == "UNKNOWN" else owner
    if kind == "file":
        found["size"] = int(size)
        sums = {
            name: digest
            for digest, _, name in (r.partition("  ") for r in lists.get(f"{key}.sha256", []))
        }
        unread = path in lists.get(f"{key}.unread", [])
        reason = f"no permission to read {path}" if unread else f"{path} could not be read"
        if int(size) <= 4 << 20:
            found["sha256"] = sums.get(path, {"?": reason})
    if kind == "link":
        targets = dict(r.split(" -> ", 1) for r in lists.get(f"{key}.target", []))
        found["target"] = targets.get(path, {"?": f"the link {path} could not be read"})
    return found
