"""The driver, its kernels and libraries, toolkits: what the kernel, files and programs say."""

from __future__ import annotations

import os
import re
from functools import cached_property

from .files import runs
from .frame import Host, NotTold, names, pairs, unknown, why

TYPE_CHECKING = False  # to load `typing` takes as long as a fifth of the look
if TYPE_CHECKING:
    from typing import Any

    from .frame import Facts

_LIBRARIES = ("libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1")
_UNINSTALLER = "nvidia-uninstall"
_LINE_OF_VERSION = "/proc/driver/nvidia/version"


class Driver:
    """What is asked of the system's programs, each once."""

    def __init__(self, host: Host) -> None:
        self.host = host

    @cached_property
    def rule(self) -> str | None:
        """The rule of modprobe's that has another module loaded in the place of nvidia.

        "NAME FILE", as packages of distributions have it: "install nvidia modprobe -i
        nvidia-current-open"; "alias nvidia off", by which some switch the card off, leaves
        "nothing" to load.
        """
        for folder in ("/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d"):
            for path in (f"{folder}/{name}" for name in self.host.names(folder, end=".conf")):
                readable = os.access(self.host.at(path), os.R_OK)
                for words in map(str.split, self.host.rows(path) if readable else ()):
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
        name = "nvidia" if name == "nothing" or "/" in name else name
        status, said = self.host.run(
            "modinfo", *(("-k", kernel) if kernel else ()), name, seconds=10
        )
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

    @cached_property
    def on_disk(self) -> tuple[str, str] | None:
        """The module of the running kernel."""
        return self.module()

    @cached_property
    def cached(self) -> list[tuple[str, str]]:
        """The rows (NAME, PATH) of the linker's cache for this machine's architecture."""
        status, said = self.host.run("ldconfig", "-p", seconds=5)
        # One that is not there names nothing, and ldconfig makes it anew.
        if "an't open cache file" in said and "No such file" in said:
            return []
        if status:
            raise NotTold(f"ldconfig: {why(status, said).replace('ldconfig: ', '', 1)}")
        abi = {"x86_64": "x86-64", "aarch64": "AArch64"}.get(self.host.machine, "")
        form = r"(?m)^\s*(libcuda\.so|libcuda\.so\.1|libnvidia-ml\.so\.1) (.*) => (.*)$"
        return [(name, path) for name, kind, path in re.findall(form, said) if abi in kind]

    def library(self, name: str) -> str | None:
        """Return the file behind the cache's first row of that name."""
        path = next((path for each, path in self.cached if each == name), None)
        if path is not None and not os.path.exists(path):
            raise NotTold(f"ldconfig names {path}, which is not there")
        return path and os.path.realpath(path)


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
        "driver.nouveau": lambda: _is_loaded(host, "nouveau"),
        "driver.nova": lambda: _is_loaded(host, "nova_core"),
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


def _is_loaded(host: Host, module: str) -> bool:
    if not host.is_dir("/sys/module"):
        raise NotTold("/sys/module is not there")
    return host.is_dir(f"/sys/module/{module}")


def _loaded_version(host: Host) -> str | None:
    if not _is_loaded(host, "nvidia"):
        return None
    found = host.first_line("/sys/module/nvidia/version")
    if found is None:
        raise NotTold("the module nvidia is loaded but names no version")
    return found


def _open_modules(host: Host) -> bool | None:
    """Read the flavour off the first line of /proc/driver/nvidia/version.

    Open: "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05 ...";
    proprietary: "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05 ...".
    """
    if not host.is_dir("/proc/sys"):
        raise NotTold("/proc is not there")
    line = host.first_line(_LINE_OF_VERSION)
    return None if line is None else flavour(line)


def flavour(line: str) -> bool:
    """Tell whether it is the open module, by the first line of /proc/driver/nvidia/version."""
    if "Kernel Module" not in line:
        raise NotTold(f"{_LINE_OF_VERSION} begins with {line[:60]!r}")
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
    if not host.names("/dev", "nvidia"):
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
            shown = host.process(pid)
            # The kernel keeps 15 characters of a name.
            if "(nvidia-persiste" not in shown:
                found.append(shown)
    return found


def _leads_to_gpu(link: str) -> bool:
    try:
        return os.readlink(link).startswith("/dev/nvidia")
    except OSError:
        return False


def _persistenced(host: Host) -> tuple[str | None, Any]:
    """Return the state of nvidia-persistenced and whether it starts with the machine."""
    if not host.is_dir("/run/systemd/system"):
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
    # A unit that was removed while it ran has a state and no file.
    word = unit.get("UnitFileState")
    return state, enabled(word) if word else None


def enabled(word: str) -> Any:
    """Tell whether systemd starts a unit with the machine, from its UnitFileState."""
    plain = word.replace("-runtime", "")
    if plain in ("enabled", "alias"):
        return True
    known = ("disabled", "static", "masked", "indirect", "linked", "generated", "transient")
    return False if plain in known else unknown(f"systemd calls it {word[:40]!r}")


def _runfile(host: Host) -> bool:
    """Tell whether NVIDIA's .run file installed a driver here.

    It leaves its uninstaller; a package may bring a program of that name, too.
    """
    folders = ("usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin")
    there = {path for path in (f"/{each}/{_UNINSTALLER}" for each in folders) if host.there(path)}
    info = "/var/lib/dpkg/info"
    for name in host.names(info, end=".list") if there else ():
        there -= set(host.rows(f"{info}/{name}"))
    return bool(there)


def kernel(driver: Driver) -> Facts:
    """The installed kernels, and what the running and the newest of them have of the driver."""
    host = driver.host
    running = host.first_line("/proc/sys/kernel/osrelease") or ""

    def both() -> list[str]:
        return list(dict.fromkeys([running, *installed(host)[-1:]]))

    def module(kernel: str) -> str | None:
        found = driver.on_disk if kernel == running else driver.module(kernel)
        return found and found[0]

    return {
        "kernel.installed": lambda: installed(host),
        "kernel.modules": lambda: {each: module(each) for each in both()},
        "kernel.headers": lambda: {
            each: host.there(f"/lib/modules/{each}/build/Makefile") for each in both()
        },
        "kernel.sources": lambda: _sources(host),
        "kernel.initramfs": lambda: initramfs(host, (installed(host) or [running])[-1]),
    }


def _sources(host: Host) -> list[str]:
    """Return the versions of the driver whose module DKMS can build for a kernel to come."""
    found = []
    for folder in (f"/var/lib/dkms/{each}" for each in host.names("/var/lib/dkms", "nvidia")):
        versions = host.names(folder)
        found += [e for e in versions if host.there(f"{folder}/{e}/source/dkms.conf")]
    return found


def installed(host: Host) -> list[str]:
    """Return the kernels with a /boot/vmlinuz-KERNEL, oldest first by version.

    One without a name of its own cannot be told from a file that is still being unpacked.
    """
    try:
        files = host.names("/boot", "vmlinuz-")
    except PermissionError:
        raise NotTold("no permission to look at /boot") from None
    kernels = (each.partition("-")[2] for each in files if ".dpkg-" not in each)
    return sorted((k for k in kernels if not k.endswith((".old", ".bak", "~"))), key=_order)


def _order(version: str) -> list[tuple[str, int]]:
    """Return what `sort -V` compares: what is no number, and numbers, by turns; "~" comes first."""
    marked = f"{version}\1".replace("~", "\0")
    return [(text, int(number or 0)) for text, number in re.findall(r"([^\d]*)(\d*)", marked)]


def initramfs(host: Host, kernel: str) -> str:
    """Tell whether a file of modprobe's is newer than the initramfs: "fresh", "stale", "absent".

    A rule against the free drivers works at boot only from inside the initramfs.
    """
    image = f"/boot/initrd.img-{kernel}"
    if not host.there(image):
        return "absent"
    made, folder = os.stat(host.at(image)).st_mtime, "/etc/modprobe.d"
    for name in host.names(folder, end=".conf"):
        path = f"{folder}/{name}"
        if not host.there(path) or os.stat(host.at(path)).st_mtime <= made:
            continue
        rule = re.compile(r"\s*blacklist\s+(nouveau|nova|nova[_-]\S*)(\s|$)")
        if name.startswith("pyinfra-gpu-") or any(map(rule.match, host.rows(path))):
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
        there = (f"{libdir}/{each}" for each in host.names(libdir, "libcuda.so."))
        return [e for e in there if host.is_filled(e) and not os.path.islink(host.at(e))]

    return {
        "libcuda.libdir": lambda: libdir,
        "libcuda.cache": cache,
        "libcuda.links": lambda: {each: _link(host, each) for each in looked_at},
        "libcuda.files": files,
        "libcuda.loader_paths": lambda: _loader_paths(host),
    }


def _link(host: Host, path: str) -> dict[str, str | None]:
    place = host.at(path)
    try:
        os.lstat(place)
    except (FileNotFoundError, NotADirectoryError):
        return {"kind": "absent", "target": None, "real": None}
    except PermissionError:
        raise NotTold(f"no permission to look at {place}") from None
    tests = (("link", os.path.islink), ("file", os.path.isfile), ("dir", os.path.isdir))
    return {
        "kind": next((name for name, test in tests if test(place)), "other"),
        "target": os.readlink(place) if os.path.islink(place) else None,
        "real": host.real(path) if host.is_filled(path) else None,
    }


def _loader_paths(host: Host) -> list[str]:
    folder = "/etc/ld.so.conf.d"
    more = [f"{folder}/{each}" for each in host.names(folder, end=".conf")]
    found = []
    for path in filter(host.is_file, ("/etc/ld.so.conf", *more)):
        words = (row.split()[0] for row in host.rows(path) if row.strip())
        found += [f"{path}: {e}" for e in words if e[0] != "#" and re.search("stubs|compat", e)]
    return found


def cuda(host: Host) -> Facts:
    """CUDA toolkits, and what /usr/local/cuda is."""
    link, alternative = "/usr/local/cuda", "/etc/alternatives/cuda"
    return {
        "cuda.toolkits": lambda: _toolkits(host),
        "cuda.missing": lambda: _missing(host),
        "cuda.link": lambda: host.real(link) if host.there(link) else _target(host, link),
        "cuda.alternative": lambda: _target(host, alternative),
        "cuda.nvcc_on_path": lambda: _nvcc_on_path(host),
    }


def _target(host: Host, path: str) -> str | None:
    place = host.at(path)
    return host.shown(os.readlink(place)) if os.path.islink(place) else None


def _toolkits(host: Host) -> list[str]:
    """Return releases in the order of their numbers; folders that name none are somebody's own."""
    named = (re.fullmatch(r"cuda-(\d{1,4})\.(\d{1,4})", e, re.A) for e in host.names("/usr/local"))
    found = [each for each in named if each and host.is_dir(f"/usr/local/{each[0]}")]
    return [each[0][5:] for each in sorted(found, key=lambda each: (int(each[1]), int(each[2])))]


def _missing(host: Host) -> list[str]:
    """Return the files that the declared toolkit should have; what is empty is as good as gone."""
    if not (release := host.asked["cuda_release"]):
        return []
    folder = f"/usr/local/cuda-{release}"
    programs = ("bin/nvcc", "bin/ptxas", "nvvm/bin/cicc")
    found = [each for each in programs if not runs(host.at(f"{folder}/{each}"))]
    files = ("include/cuda_runtime.h", "lib64/libcudart.so")
    return found + [each for each in files if not host.is_filled(f"{folder}/{each}")]


def _nvcc_on_path(host: Host) -> str | None:
    folders = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")
    for path in filter(host.is_file, (f"/{folder}/nvcc" for folder in folders)):
        if os.access(host.at(path), os.X_OK):
            return host.real(path)
    return None
