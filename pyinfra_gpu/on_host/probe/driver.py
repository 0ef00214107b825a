"""The driver, its kernels and libraries, toolkits: what the kernel, files and programs say."""

from __future__ import annotations

import os
import re
import time
from functools import cache

from .files import entry
from .frame import Any, Facts, Host, NotReported, attempt, pairs, why

_LIBRARIES = ("libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1")
_OURS = "/etc/modprobe.d/pyinfra-gpu-nvidia.conf"
_DRIVERS = "/proc/driver/nvidia/version"
_ON_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def _is_loaded(host: Host, module: str) -> bool:
    if not host.is_dir("/sys/module"):
        raise NotReported("/sys/module is not there")
    return host.is_dir(f"/sys/module/{module}")


def _loaded(host: Host) -> str | None:
    return host.line("/sys/module/nvidia/version") if _is_loaded(host, "nvidia") else None


def _loaded_is_open(host: Host) -> bool | None:
    """Tell whether it is the open module.

    Open: "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05 ...";
    proprietary: "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05 ...".
    """
    if not host.there(_DRIVERS):
        return None
    line = host.line(_DRIVERS)
    if "Kernel Module" not in line:
        raise NotReported(f"{_DRIVERS} begins with {line[:60]!r}")
    return "Open Kernel Module" in line


@cache
def _module(host: Host, kernel: str) -> str | None:
    """Return the version of the module that `modprobe nvidia` would load into a kernel."""
    status, said = host.run("modinfo", "-k", kernel, "nvidia", seconds=10)
    if status:
        there_is_none = "not found" in said or "could not get modinfo" in said
        if there_is_none and "ermission denied" not in said:
            return None
        raise NotReported(f"modinfo: {why(status, said)}")
    version = re.search(r"(?m)^version: *(\S.*?) *$", said)
    if not version:
        raise NotReported("modinfo finds a module nvidia without a version")
    return version[1]


@cache
def _cached(host: Host) -> list[dict[str, str | None]]:
    """Return the rows of the linker's cache for this architecture, and where they lead."""
    status, said = host.run("ldconfig", "-p", seconds=5)
    # One that is not there names nothing, and ldconfig makes it anew.
    if "an't open cache file" in said and "No such file" in said:
        return []
    if status:
        raise NotReported(f"ldconfig: {why(status, said).replace('ldconfig: ', '', 1)}")
    abi = {"x86_64": "x86-64", "aarch64": "AArch64"}.get(host.machine, "")
    form = r"(?m)^\s*(libcuda\.so|libcuda\.so\.1|libnvidia-ml\.so\.1) (.*) => (.*)$"
    rows = [(name, path) for name, kind, path in re.findall(form, said) if abi in kind]
    real = {path: os.path.realpath(path) for _, path in rows if os.path.exists(path)}
    return [{"name": name, "path": path, "real": real.get(path)} for name, path in rows]


def _library(host: Host, name: str) -> str | None:
    """Return the file behind the cache's first row of that name."""
    row = next((each for each in _cached(host) if each["name"] == name), None)
    if row and row["real"] is None:
        raise NotReported(f"ldconfig names {row['path']}, which is not there")
    return row["real"] if row else None


def users(host: Host) -> list[str]:
    """Return the processes that have a GPU's device open, e.g. "pid 812 (python3)".

    A process ends up in the list by the text of its links, which is the same inside a container.
    What vanishes meanwhile is not of interest; what may not be seen is.
    """
    found: list[str] = []
    if not host.names("/dev", "nvidia"):
        return found
    for pid in sorted((each for each in host.names("/proc") if each.isdigit()), key=int):
        try:
            links = host.paths(f"/proc/{pid}/fd")
        except PermissionError:
            raise NotReported("it may not see what other users' processes have open") from None
        except OSError:
            continue
        targets = (attempt(os.readlink, host.at(each)) for each in links)
        if any(isinstance(each, str) and each.startswith("/dev/nvidia") for each in targets):
            found.append(host.process(pid))
    # The kernel keeps 15 characters of a name.
    return [each for each in found if "(nvidia-persiste" not in each]


def _persistenced(host: Host) -> tuple[str | None, bool | None]:
    """Return the state of nvidia-persistenced and whether it starts with the machine."""
    if not host.is_dir("/run/systemd/system"):
        return None, None
    words = ("-p", "LoadState", "-p", "ActiveState", "-p", "UnitFileState")
    said = host.said("systemctl", "show", *words, "nvidia-persistenced.service", seconds=5)
    unit = pairs(said.split("\n"))
    if unit.get("LoadState") == "not-found":
        return None, None
    if not unit.get("LoadState") or not unit.get("ActiveState"):
        raise NotReported("systemctl: it named no state")
    # "masked": somebody forbade it to start, which `enable` cannot change.
    state = "masked" if unit["LoadState"] == "masked" else unit["ActiveState"]
    # A unit that was removed while it ran has a state and no file.
    word = unit.get("UnitFileState", "").replace("-runtime", "")
    return state, word in ("enabled", "alias") if word else None


def _runfile(host: Host) -> bool:
    """Tell whether NVIDIA's .run file installed a driver here.

    It leaves its uninstaller; a package may bring a program of that name, too.
    """
    there = set(filter(host.there, (f"{each}/nvidia-uninstall" for each in _ON_PATH[:4])))
    for path in host.paths("/var/lib/dpkg/info", end=".list") if there else ():
        there -= set(host.rows(path))
    return bool(there)


def _running(host: Host) -> str:
    return host.line("/proc/sys/kernel/osrelease")


def _kernels(host: Host) -> list[str]:
    """Return the running kernel and, where it is another, the newest."""
    return list(dict.fromkeys((_running(host), *installed(host)[-1:])))


def installed(host: Host) -> list[str]:
    """Return the kernels with a /boot/vmlinuz-KERNEL, oldest first by version.

    One without a name of its own cannot be told from a file that is still being unpacked.
    """
    files = host.names("/boot", "vmlinuz-")
    kernels = (each.partition("-")[2] for each in files if ".dpkg-" not in each)
    return sorted((k for k in kernels if not k.endswith((".old", ".bak", "~"))), key=_order)


def _order(version: str) -> list[tuple[str, int]]:
    """Return what `sort -V` compares: what is no number, and numbers, by turns; "~" comes first."""
    marked = f"{version}\1".replace("~", "\0")
    return [(text, int(number or 0)) for text, number in re.findall(r"([^\d]*)(\d*)", marked)]


def initramfs(host: Host) -> str:
    """Tell whether our rules against the free drivers are newer than the next kernel's initramfs.

    "fresh", "stale", "absent". They work at boot only from inside it.
    """
    image, ours = (host.at(each) for each in (f"/boot/initrd.img-{_kernels(host)[-1]}", _OURS))
    if not os.path.exists(image):
        return "absent"
    # What a wrong clock dated in the future says nothing.
    written = os.stat(ours).st_mtime if os.path.exists(ours) else 0
    return "stale" if os.stat(image).st_mtime < written <= time.time() else "fresh"


def _libdir(host: Host) -> str:
    return f"/usr/lib/{host.machine}-linux-gnu"


def _links(host: Host) -> dict[str, dict[str, Any]]:
    looked_at = [f"{_libdir(host)}/{name}" for name in _LIBRARIES]
    if release := host.asked["cuda_release"]:
        looked_at.append(f"/usr/local/cuda-{release}/lib64/libcuda.so")
    found = {}
    for path in looked_at:
        there = entry(host.at(path))
        real = host.real(path) if host.is_filled(path) else None
        found[path] = {"kind": there["kind"], "target": there.get("target"), "real": real}
    return found


def _loader_paths(host: Host) -> list[str]:
    """Return folders of stubs and compat libraries that the loader is told to search."""
    found = []
    for path in host.files("/etc/ld.so.conf", "/etc/ld.so.conf.d/*.conf"):
        words = (row.split()[0] for row in host.rows(path) if row.strip())
        found += [f"{path}: {e}" for e in words if e[0] != "#" and re.search("stubs|compat", e)]
    return found


def _target(host: Host, path: str) -> str | None:
    place = host.at(path)
    return host.shown(os.readlink(place)) if os.path.islink(place) else None


def _toolkits(host: Host) -> list[str]:
    """Return releases in the order of their numbers; folders that name none are somebody's own."""
    named = (re.fullmatch(r"cuda-(\d{1,4}\.\d{1,4})", e, re.A) for e in host.names("/usr/local"))
    found = [each[1] for each in named if each and host.is_dir(f"/usr/local/{each[0]}")]
    return sorted(found, key=lambda release: [*map(int, release.split("."))])


def _missing(host: Host) -> list[str]:
    """Return the files that the declared toolkit should have; what is empty is as good as gone."""
    if not (release := host.asked["cuda_release"]):
        return []
    folder = f"/usr/local/cuda-{release}"
    programs = ("bin/nvcc", "bin/ptxas", "nvvm/bin/cicc")
    found = [each for each in programs if not host.runs(f"{folder}/{each}")]
    files = ("include/cuda_runtime.h", "lib64/libcudart.so")
    return found + [each for each in files if not host.is_filled(f"{folder}/{each}")]


def _cuda_link(host: Host) -> str | None:
    link = "/usr/local/cuda"
    return host.real(link) if host.there(link) else _target(host, link)


def _nvcc_on_path(host: Host) -> str | None:
    there = (path for path in (f"{each}/nvcc" for each in _ON_PATH) if host.is_file(path))
    return next((host.real(e) for e in there if os.access(host.at(e), os.X_OK)), None)


def _headers(host: Host) -> dict[str, bool]:
    return {e: host.there(f"/lib/modules/{e}/build/Makefile") for e in _kernels(host)}


FACTS: Facts = {
    "driver.loaded": _loaded,
    "driver.nouveau": lambda host: _is_loaded(host, "nouveau"),
    "driver.nova": lambda host: _is_loaded(host, "nova_core"),
    "driver.open_modules": _loaded_is_open,
    "driver.on_disk": lambda host: _module(host, _running(host)),
    "driver.libcuda": lambda host: _library(host, "libcuda.so.1"),
    "driver.libml": lambda host: _library(host, "libnvidia-ml.so.1"),
}
NVIDIA: Facts = {
    "driver.users": users,
    "driver.persistenced driver.persistenced_enabled": _persistenced,
    "driver.runfile": _runfile,
    "kernel.installed": installed,
    "kernel.modules": lambda host: {each: _module(host, each) for each in _kernels(host)},
    "kernel.headers": _headers,
    "kernel.initramfs": initramfs,
    "libcuda.cache": _cached,
    "libcuda.links": _links,
    "libcuda.loader_paths": _loader_paths,
    "cuda.toolkits": _toolkits,
    "cuda.missing": _missing,
    "cuda.link": _cuda_link,
    "cuda.alternative": lambda host: _target(host, "/etc/alternatives/cuda"),
    "cuda.nvcc_on_path": _nvcc_on_path,
}
"""What is looked at only where an NVIDIA driver is wanted."""
