"""The driver, its kernels and libraries, toolkits: what the kernel, files and programs say."""

from __future__ import annotations

import os

from .files import runs
from .frame import Host, NotTold, first_line, names, once, pairs, rows, why

TYPE_CHECKING = False  # to load `typing` takes as long as a fifth of the look
if TYPE_CHECKING:
    from typing import Any

    from .frame import Facts

_LIBRARIES = ("libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1")
_NOT_PACKAGED = ("usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin")


class Driver:
    """What is asked of the system's programs, each once."""

    def __init__(self, host: Host) -> None:
        self.host = host

    @once
    def rule(self) -> str | None:
        """The rule of modprobe's that has another module loaded in the place of nvidia.

        "NAME FILE", as packages of distributions have it: "install nvidia modprobe -i
        nvidia-current-open"; "alias nvidia off", by which some switch the card off, leaves
        "nothing" to load.
        """
        for folder in ("/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d"):
            for name in names(self.host.at(folder)):
                path = f"{folder}/{name}"
                if not name.endswith(".conf") or not os.access(self.host.at(path), os.R_OK):
                    continue
                for row in rows(self.host.at(path)):
                    words = row.split()
                    if words[:3] == ["alias", "nvidia", "off"]:
                        return f"nothing {path}"
                    if words[:2] == ["install", "nvidia"] and len(words) > 2:
                        return f"{_loaded(words[2:])} {path}"
        return None

    def module(self, kernel: str | None = None) -> tuple[str, str] | None:
        """Return version and licence of the module that `modprobe nvidia` would load.

        + kernel: into which kernel; the running one where none is given
        """
        name = (self.rule or "nvidia").partition(" ")[0]
        if name == "nothing" or "/" in name:
            name = "nvidia"
        into = ("-k", kernel) if kernel else ()
        status, said = self.host.run("modinfo", *into, name, seconds=10)
        if status:
            there_is_none = "not found" in said or "could not get modinfo" in said
            if there_is_none and "ermission denied" not in said:
                return None
            raise NotTold(f"modinfo: {why(status, said)}")
        found: dict[str, str] = {}
        for row in said.split("\n"):
            key, _, value = row.partition(":")
            found.setdefault(key, value.strip())
        if not found.get("version"):
            raise NotTold("modinfo finds a module nvidia without a version")
        return found["version"], found.get("license", "")

    @once
    def on_disk(self) -> tuple[str, str] | None:
        """The module of the running kernel."""
        return self.module()

    @once
    def cached(self) -> list[tuple[str, str]]:
        """The rows (NAME, PATH) of the linker's cache for this machine's architecture."""
        status, said = self.host.run("ldconfig", "-p", seconds=5)
        # One that is not there names nothing, and ldconfig makes it anew.
        if "an't open cache file" in said and "No such file" in said:
            return []
        if status:
            raise NotTold(f"ldconfig: {why(status, said).replace('ldconfig: ', '', 1)}")
        abi = {"x86_64": "x86-64", "aarch64": "AArch64"}.get(self.host.machine, "")
        found = []
        for row in said.split("\n"):
            if "libcuda" in row or "libnvidia-ml" in row:
                head, arrow, path = row.strip().partition(" => ")
                name, _, kind = head.partition(" ")
                if arrow and name in _LIBRARIES and abi in kind:
                    found.append((name, path))
        return found

    def library(self, name: str) -> str | None:
        """Return the file behind the cache's first row of that name."""
        cached: list[tuple[str, str]] = self.cached
        path = next((path for each, path in cached if each == name), None)
        if path is None:
            return None
        if not os.path.exists(path):
            raise NotTold(f"ldconfig names {path}, which is not there")
        return os.path.realpath(path)


def _loaded(words: list[str]) -> str:
    for mark in ("-i", "--ignore-install"):
        if words[0] == "modprobe" and mark in words[1:-1]:
            return words[words.index(mark) + 1]
    return words[0]


def facts(driver: Driver) -> Facts:
    """The driver's parts, which need not agree."""
    host = driver.host
    found: dict[str, Any] = {
        "driver.loaded": lambda: _loaded_version(host),
        "driver.nouveau": lambda: os.path.isdir(f"{_modules(host)}/nouveau"),
        "driver.nova": lambda: os.path.isdir(f"{_modules(host)}/nova_core"),
        "driver.open_modules": lambda: _open_modules(host),
        "driver.on_disk": lambda: driver.on_disk and driver.on_disk[0],
        "driver.on_disk_open": lambda: driver.on_disk and is_open(driver.on_disk[1]),
        "driver.libcuda": lambda: driver.library("libcuda.so.1"),
        "driver.libml": lambda: driver.library("libnvidia-ml.so.1"),
    }
    if host.asked["nvidia"]:
        found["driver.module"] = lambda: driver.rule
        found["driver.users"] = lambda: users(host)
        found["driver.persistenced driver.persistenced_enabled"] = lambda: _persistenced(host)
        found["driver.runfile"] = lambda: _runfile(host)
    return found


def _modules(host: Host) -> str:
    folder = host.at("/sys/module")
    if not os.path.isdir(folder):
        raise NotTold("/sys/module is not there")
    return folder


def _loaded_version(host: Host) -> str | None:
    folder = f"{_modules(host)}/nvidia"
    if not os.path.isdir(folder):
        return None
    found = first_line(f"{folder}/version")
    if found is None:
        raise NotTold("the module nvidia is loaded but names no version")
    return found


def _open_modules(host: Host) -> bool | None:
    """Read the flavour off the first line of /proc/driver/nvidia/version.

    Open: "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05 ...";
    proprietary: "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05 ...".
    """
    if not os.path.isdir(host.at("/proc/sys")):
        raise NotTold("/proc is not there")
    line = first_line(host.at("/proc/driver/nvidia/version"))
    return None if line is None else flavour(line)


def flavour(line: str) -> bool:
    """Tell whether it is the open module, by the first line of /proc/driver/nvidia/version."""
    if "Kernel Module" not in line:
        raise NotTold(f"/proc/driver/nvidia/version begins with {line[:60]!r}")
    return "Open Kernel Module" in line


def is_open(licence: str) -> bool:
    """Read the flavour off the module's licence, which only the open one shares with the kernel."""
    if licence not in ("NVIDIA", "Dual MIT/GPL"):
        raise NotTold(f"its licence is {licence[:60]!r}")
    return licence == "Dual MIT/GPL"


def users(host: Host) -> list[str]:
    """Return the processes that have a GPU's device open, e.g. "pid 812 (python3)".

    A process ends up in the list by the text of its links, which is the same inside a container.
    What vanishes meanwhile is not of interest; what may not be seen is.
    """
    if not any(each.startswith("nvidia") for each in names(host.at("/dev"))):
        return []
    proc, found = host.at("/proc"), []
    for pid in sorted((each for each in names(proc) if each.isdigit()), key=int):
        try:
            numbers = os.listdir(f"{proc}/{pid}/fd")
        except PermissionError:
            raise NotTold("it may not see what other users' processes have open") from None
        except OSError:
            continue
        if any(_leads_to_gpu(f"{proc}/{pid}/fd/{each}") for each in numbers):
            try:
                name = first_line(f"{proc}/{pid}/comm")
            except NotTold:
                name = None
            # The kernel keeps 15 characters of a name.
            if not (name or "").startswith("nvidia-persiste"):
                found.append(f"pid {pid}" + (f" ({name})" if name else ""))
    return found


def _leads_to_gpu(link: str) -> bool:
    try:
        return os.readlink(link).startswith("/dev/nvidia")
    except OSError:
        return False


def _persistenced(host: Host) -> tuple[str | None, bool | dict[str, str] | None]:
    """Return the state of nvidia-persistenced and whether it starts with the machine."""
    if not os.path.isdir(host.at("/run/systemd/system")):
        return None, None
    words = ("-p", "LoadState", "-p", "ActiveState", "-p", "UnitFileState")
    status, said = host.run("systemctl", "show", *words, "nvidia-persistenced.service", seconds=5)
    unit = pairs(said.split("\n"))
    if status:
        raise NotTold(f"systemctl: {why(status, said)}")
    if unit.get("LoadState") == "not-found":
        return None, None
    if not unit.get("LoadState") or not unit.get("ActiveState"):
        raise NotTold("systemctl: it named no state")
    # "masked": somebody forbade it to start, which `enable` cannot change.
    state = "masked" if unit["LoadState"] == "masked" else unit["ActiveState"]
    word = unit.get("UnitFileState", "")
    if not word:
        return state, None  # a unit that was removed while it ran has a state and no file
    return state, enabled(word)


def enabled(word: str) -> Any:
    """Tell whether systemd starts a unit with the machine, from its UnitFileState."""
    plain = word[: -len("-runtime")] if word.endswith("-runtime") else word
    if plain in ("enabled", "alias"):
        return True
    known = ("disabled", "static", "masked", "indirect", "linked", "generated", "transient")
    return False if plain in known else {"?": f"systemd calls it {word[:40]!r}"}


def _runfile(host: Host) -> bool:
    """Tell whether NVIDIA's .run file installed a driver here.

    It leaves its uninstaller; a package may bring a program of that name, too.
    """
    paths = [f"/{folder}/nvidia-uninstall" for folder in _NOT_PACKAGED]
    there = {each for each in paths if os.path.exists(host.at(each))}
    info = host.at("/var/lib/dpkg/info")
    for name in names(info) if there else ():
        if name.endswith(".list"):
            there -= set(rows(f"{info}/{name}"))
    return bool(there)


def kernel(driver: Driver) -> Facts:
    """The installed kernels, and what the running and the newest of them have of the driver."""
    host = driver.host
    running = first_line(host.at("/proc/sys/kernel/osrelease")) or ""

    def both() -> list[str]:
        return list(dict.fromkeys([running, *installed(host)[-1:]]))

    def modules() -> dict[str, str | None]:
        found = {each: driver.module(each) for each in both() if each != running}
        versions = {each: there and there[0] for each, there in found.items()}
        return {running: driver.on_disk and driver.on_disk[0], **versions}

    def headers() -> dict[str, bool]:
        path = "/lib/modules/{}/build/Makefile"
        return {each: os.path.exists(host.at(path.format(each))) for each in both()}

    return {
        "kernel.installed": lambda: installed(host),
        "kernel.modules": modules,
        "kernel.headers": headers,
        "kernel.sources": lambda: _sources(host),
        "kernel.initramfs": lambda: initramfs(host, (installed(host) or [running])[-1]),
    }


def _sources(host: Host) -> list[str]:
    """Return the versions of the driver whose module DKMS can build for a kernel to come."""
    root, found = host.at("/var/lib/dkms"), []
    for folder in (f"{root}/{each}" for each in names(root) if each.startswith("nvidia")):
        versions = names(folder)
        found += [e for e in versions if os.path.exists(f"{folder}/{e}/source/dkms.conf")]
    return found


def installed(host: Host) -> list[str]:
    """Return the kernels with a /boot/vmlinuz-KERNEL, oldest first by version.

    One without a name of its own cannot be told from a file that is still being unpacked.
    """
    try:
        files = names(host.at("/boot"))
    except PermissionError:
        raise NotTold("no permission to look at /boot") from None
    mark, ends = "vmlinuz-", (".old", ".bak", "~")
    kernels = (each[len(mark) :] for each in files if each.startswith(mark))
    return sorted((k for k in kernels if not k.endswith(ends) and ".dpkg-" not in k), key=_order)


def _order(version: str) -> list[tuple[tuple[int, ...], int]]:
    """Return what `sort -V` compares: runs of other letters and of digits by turns."""
    found: list[tuple[tuple[int, ...], int]] = []
    other: list[int] = []
    number = ""
    for letter in [*version, ""]:
        if letter.isdigit():
            number += letter
            continue
        if number:
            found.append(((*other, 0), int(number)))
            other, number = [], ""
        if letter:
            rank = ord(letter) if letter.isalpha() else ord(letter) + 256
            other.append(-1 if letter == "~" else rank)
    return [*found, ((*other, 0), -1)]


def initramfs(host: Host, kernel: str) -> str:
    """Tell whether a file of modprobe's is newer than the initramfs: "fresh", "stale", "absent".

    A rule against the free drivers works at boot only from inside the initramfs.
    """
    image = host.at(f"/boot/initrd.img-{kernel}")
    if not os.path.exists(image):
        return "absent"
    made, folder = os.stat(image).st_mtime, host.at("/etc/modprobe.d")
    for name in names(folder):
        path = f"{folder}/{name}"
        if not name.endswith(".conf") or not os.path.exists(path) or os.stat(path).st_mtime <= made:
            continue
        if name.startswith("pyinfra-gpu-"):
            return "stale"
        for row in rows(path):
            words = row.split()
            name = words[1] if words[:1] == ["blacklist"] and len(words) > 1 else ""
            if name in ("nouveau", "nova") or name.startswith(("nova_", "nova-")):
                return "stale"
    return "fresh"


def libcuda(driver: Driver) -> Facts:
    """libcuda as the linker's cache, the file system and the loader's settings show it."""
    host = driver.host
    libdir = f"/usr/lib/{host.machine}-linux-gnu"
    looked_at = [f"{libdir}/{name}" for name in _LIBRARIES]
    if release := host.asked["cuda_release"]:
        looked_at.append(f"/usr/local/cuda-{release}/lib64/libcuda.so")

    def cache() -> list[dict[str, str | None]]:
        found = []
        for name, path in driver.cached:
            real = os.path.realpath(path) if os.path.exists(path) else None
            found.append({"name": name, "path": path, "real": real})
        return found

    def files() -> list[str]:
        there = (f"{libdir}/{each}" for each in names(host.at(libdir)))
        plain = (each for each in there if each.startswith(f"{libdir}/libcuda.so."))
        return [
            each for each in plain if _filled(host.at(each)) and not os.path.islink(host.at(each))
        ]

    return {
        "libcuda.libdir": lambda: libdir,
        "libcuda.cache": cache,
        "libcuda.links": lambda: {each: _link(host, each) for each in looked_at},
        "libcuda.files": files,
        "libcuda.loader_paths": lambda: _loader_paths(host),
    }


def _filled(path: str) -> bool:
    """Tell whether a file with contents is there: as a power cut leaves it, it is not."""
    return os.path.isfile(path) and os.stat(path).st_size > 0


def _link(host: Host, path: str) -> dict[str, str | None]:
    place = host.at(path)
    try:
        os.lstat(place)
    except (FileNotFoundError, NotADirectoryError):
        return {"kind": "absent", "target": None, "real": None}
    except PermissionError:
        raise NotTold(f"no permission to look at {place}") from None
    kind = "other"
    for name, test in (("link", os.path.islink), ("file", os.path.isfile), ("dir", os.path.isdir)):
        if test(place):
            kind = name
            break
    return {
        "kind": kind,
        "target": os.readlink(place) if kind == "link" else None,
        "real": host.shown(os.path.realpath(place)) if _filled(place) else None,
    }


def _loader_paths(host: Host) -> list[str]:
    folder = "/etc/ld.so.conf.d"
    more = [f"{folder}/{each}" for each in names(host.at(folder)) if each.endswith(".conf")]
    found = []
    for path in ("/etc/ld.so.conf", *more):
        if os.path.isfile(host.at(path)):
            for row in rows(host.at(path)):
                word = row.split()[0] if row.strip() else ""
                if word[:1] not in ("#", "") and ("stubs" in word or "compat" in word):
                    found.append(f"{path}: {word}")
    return found


def cuda(host: Host) -> Facts:
    """CUDA toolkits, and what /usr/local/cuda is."""
    return {
        "cuda.toolkits": lambda: _toolkits(host),
        "cuda.missing": lambda: _missing(host),
        "cuda.link": lambda: _plain_path(host),
        "cuda.alternative": lambda: _alternative(host),
        "cuda.nvcc_on_path": lambda: _nvcc_on_path(host),
    }


def _toolkits(host: Host) -> list[str]:
    """Return releases in the order of their numbers; folders that name none are somebody's own."""
    folder = host.at("/usr/local")
    found = []
    for name in names(folder):
        major, _, minor = name[len("cuda-") :].partition(".")
        plain = major.isdigit() and minor.isdigit() and len(major) < 5 and len(minor) < 5
        if (
            name.startswith("cuda-")
            and plain
            and name.isascii()
            and os.path.isdir(f"{folder}/{name}")
        ):
            found.append((int(major), int(minor), f"{major}.{minor}"))
    return [each[2] for each in sorted(found)]


def _missing(host: Host) -> list[str]:
    """Return the files that the declared toolkit should have; what is empty is as good as gone."""
    release = host.asked["cuda_release"]
    if not release:
        return []
    folder = host.at(f"/usr/local/cuda-{release}")
    programs = ("bin/nvcc", "bin/ptxas", "nvvm/bin/cicc")
    found = [each for each in programs if not runs(f"{folder}/{each}")]
    files = ("include/cuda_runtime.h", "lib64/libcudart.so")
    return found + [each for each in files if not _filled(f"{folder}/{each}")]


def _plain_path(host: Host) -> str | None:
    path = host.at("/usr/local/cuda")
    if not os.path.lexists(path):
        return None
    if not os.path.exists(path):
        return os.readlink(path)
    return host.shown(os.path.realpath(path))


def _alternative(host: Host) -> str | None:
    path = host.at("/etc/alternatives/cuda")
    return host.shown(os.readlink(path)) if os.path.islink(path) else None


def _nvcc_on_path(host: Host) -> str | None:
    folders = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")
    for path in (host.at(f"/{folder}/nvcc") for folder in folders):
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return host.shown(os.path.realpath(path))
    return None
