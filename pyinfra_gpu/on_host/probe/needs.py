"""What every login and every program is given, and what the owner needs: looked at as the owner."""

from __future__ import annotations

import os

from .files import runs
from .frame import Host, NotTold, names, rows, why

TYPE_CHECKING = False  # to load `typing` takes as long as a fifth of the look
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from .frame import Facts

_MOST = 9  # lines of a file
_FOR_ALL = ("CUDA", "GROUP", "LD", "LOCAL", "MASTER", "NCCL", "PYTHON", "ROLE", "TORCH", "WORLD")


def facts(host: Host, home: str) -> Facts:
    """What may not be opened, what is set for every login, the compilers."""
    found: dict[str, Callable[[], Any]] = {
        "storage.shm_closed": lambda: _closed_shm(host),
        "driver.closed": lambda: _closed(host) if host.asked["nvidia"] else [],
        "environment.for_all": lambda: list(_for_all(host)),
    }
    if host.asked["nvidia"]:
        compiler = host.asked["compiler"]
        found["cuda.shell_lines"] = lambda: list(_shell_lines(host, home))
        found["cuda.gxx"] = lambda: host.which("g++") is not None
        found["cuda.gcc"] = lambda: _compiler(host, "gcc", clang=False)
        found["cuda.compiler"] = lambda: _compiler(host, compiler, clang="clang" in compiler)
        found["cuda.nvcc"] = lambda: _nvcc(host)
    return found


def _closed_shm(host: Host) -> bool:
    folder = host.at("/dev/shm")
    return os.path.isdir(folder) and not os.access(folder, os.W_OK)


def _closed(host: Host) -> list[str]:
    """Return what the owner may not open of the driver, or not run."""
    found = []
    devices = [e for e in names(host.at("/dev")) if e[:6] == "nvidia" and e[6:7].isdigit()]
    for name in (*devices, "nvidiactl", "nvidia-uvm"):
        path = f"/dev/{name}"
        if os.path.exists(host.at(path)) and not os.access(host.at(path), os.R_OK | os.W_OK):
            found.append(path)
    for folder in names(host.at("/usr/lib")):
        for name in ("libcuda.so.1", "libnvidia-ml.so.1") if folder.endswith("-linux-gnu") else ():
            path = f"/usr/lib/{folder}/{name}"
            if os.path.lexists(host.at(path)) and not os.access(host.at(path), os.R_OK):
                found.append(path)
    path = host.at("/usr/bin/nvidia-smi")
    if os.path.exists(path) and not os.access(path, os.X_OK):
        found.append("/usr/bin/nvidia-smi")
    return found


def _existing(host: Host, *places: str) -> Iterator[str]:
    """Yield the files at these places; a folder stands for what is in it and ends as said."""
    for place in places:
        folder, star, end = place.partition("*")
        if not star:
            found = [place]
        else:
            found = [folder + each for each in names(host.at(folder)) if each.endswith(end)]
        yield from (each for each in found if os.path.isfile(host.at(each)))


def _lines(host: Host, path: str) -> list[str]:
    try:
        return rows(host.at(path))
    except (OSError, NotTold):
        return []


def _for_all(host: Host) -> Iterator[str]:
    """Yield variables that every login gets, as "FILE NAME"; never a value: it may be a secret."""
    first = ("/etc/environment", "/etc/environment.d/*.conf", "/etc/security/pam_env.conf")
    more = ("/etc/profile", "/etc/profile.d/*.sh", "/etc/bash.bashrc")
    for path in _existing(host, *first, *more):
        found = []
        for row in _lines(host, path):
            words = row.replace("=", " ").split()
            if words[:1] == ["export"]:
                words = words[1:]
            name = words[0] if words else ""
            rest = row.lstrip(" \t")
            rest = (
                rest[len("export") :].lstrip() if rest.startswith(("export ", "export\t")) else rest
            )
            ends = rest[len(name) : len(name) + 1] in (" ", "\t", "=") and bool(name)
            if ends and (name == "RANK" or (name.startswith(_FOR_ALL) and _is_name(name))):
                found.append(f"{path} {name}")
        yield from found[:_MOST]


def _is_name(name: str) -> bool:
    begins = next(each for each in _FOR_ALL if name.startswith(each))
    rest = name[len(begins) :]
    plain = rest.replace("_", "A")
    return bool(rest.lstrip("_")) and plain.isascii() and plain.isalnum() and plain == plain.upper()


def _shell_lines(host: Host, home: str) -> Iterator[str]:
    """Yield what a login shell is told of CUDA's folders: not run, since it may do anything.

    Without what such a line may hold beside the path: a token in a variable of its own.
    """
    import re

    form = re.compile(r"^[^#]*(PATH|CUDA_HOME).*/cuda")
    own = [f"{home}/{each}" for each in names(home) if each[:1] == "."]
    own = [e for e in own if e.endswith(("profile", "shrc", ".zshenv"))] if home else []
    places = ("/etc/environment", "/etc/profile", "/etc/profile.d/*.sh", "/etc/bash.bashrc")
    files = [(each, host.at(each)) for each in _existing(host, *places)]
    files += [(host.shown(each), each) for each in own if os.path.isfile(each)]
    for shown, path in files:
        try:
            found = [row for row in rows(path) if "/cuda" in row and form.search(row)]
        except (OSError, NotTold):
            continue
        for row in found[:_MOST]:
            yield f"{shown}:" + re.sub(r"^.*?(\w*(?:PATH|CUDA_\w+)\b)", r"\1", row)


def _compiler(host: Host, program: str, *, clang: bool) -> str | None:
    if not program or host.which(program) is None:
        return None
    words = ("-dumpversion",) if clang else ("-dumpfullversion", "-dumpversion")
    status, said = host.run(program, *words, seconds=10)
    if status:
        raise NotTold(f"{program}: {why(status, said)}")
    for row in said.split("\n"):
        if row[:1].isdigit():
            if not row.replace(".", "").isdigit() or len(row) > 60:
                raise NotTold(f"{'gcc' if program == 'gcc' else 'the compiler'} said {row[:80]!r}")
            return row
    raise NotTold(f"{program}: it said {said.partition(chr(10))[0]}")


def _nvcc(host: Host) -> str | None:
    release = host.asked["cuda_release"]
    program = host.at(f"/usr/local/cuda-{release}/bin/nvcc")
    if not release or not runs(program):
        return None
    status, said = host.run(program, "--version", seconds=10)
    if status:
        raise NotTold(f"{program}: {why(status, said)}")
    row = next((row for row in said.split("\n") if "release " in row), None)
    if row is None:
        raise NotTold(f"{program}: it said {said.partition(chr(10))[0]}")
    version = row.partition("release ")[2].partition(",")[0].split(" ")[0]
    if version.count(".") != 1 or not version.replace(".", "").isdigit() or len(version) > 9:
        raise NotTold(f"nvcc --version said {row[:80]!r}")
    return version
