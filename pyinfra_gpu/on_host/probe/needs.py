"""What every login and every program is given, and what the owner needs: looked at as the owner."""

from __future__ import annotations

import os
import re

from .files import runs
from .frame import Host, NotTold, names, why

TYPE_CHECKING = False  # to load `typing` takes as long as a fifth of the look
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from .frame import Facts

_MOST = 9  # lines of a file
_FOR_ALL = re.compile(
    r"\s*(?:export\s+)?(RANK|(?:CUDA|GROUP|LD|LOCAL|MASTER|NCCL|PYTHON|ROLE|TORCH|WORLD)"
    r"_*[A-Z0-9][A-Z0-9_]*)(?=[ \t=])"
)


def facts(host: Host, home: str) -> Facts:
    """What may not be opened, what is set for every login, the compilers."""
    shm = "/dev/shm"
    found: dict[str, Callable[[], Any]] = {
        "storage.shm_closed": lambda: host.is_dir(shm) and not os.access(host.at(shm), os.W_OK),
        "driver.closed": lambda: _closed(host) if host.asked["nvidia"] else [],
        "environment.for_all": lambda: list(_for_all(host)),
    }
    if host.asked["nvidia"]:
        compiler = host.asked["compiler"]
        found["cuda.shell_lines"] = lambda: list(_shell_lines(host, home))
        found["cuda.gxx"] = lambda: host.which("g++") is not None
        found["cuda.gcc"] = lambda: _compiler(host, "gcc")
        found["cuda.compiler"] = lambda: _compiler(host, compiler)
        found["cuda.nvcc"] = lambda: _nvcc(host)
    return found


def _closed(host: Host) -> list[str]:
    """Return what the owner may not open of the driver, or not run."""
    devices = [e for e in host.names("/dev", "nvidia") if e[6:7].isdigit()]
    folders = [f"/usr/lib/{each}" for each in host.names("/usr/lib", end="-linux-gnu")]
    libraries = ("libcuda.so.1", "libnvidia-ml.so.1")
    needed = [(f"/dev/{e}", os.R_OK | os.W_OK) for e in (*devices, "nvidiactl", "nvidia-uvm")]
    needed += [(f"{folder}/{each}", os.R_OK) for folder in folders for each in libraries]
    needed.append(("/usr/bin/nvidia-smi", os.X_OK))
    there = ((path, how) for path, how in needed if os.path.lexists(host.at(path)))
    return [path for path, how in there if not os.access(host.at(path), how)]


def _existing(host: Host, *places: str) -> Iterator[str]:
    """Yield the files at these places; a folder stands for what is in it and ends as said."""
    for place in places:
        folder, star, end = place.partition("*")
        found = [folder + each for each in host.names(folder, end=end)] if star else [place]
        yield from filter(host.is_file, found)


def _lines(host: Host, path: str) -> list[str]:
    try:
        return host.rows(path)
    except (OSError, NotTold):
        return []


def _for_all(host: Host) -> Iterator[str]:
    """Yield variables that every login gets, as "FILE NAME"; never a value: it may be a secret."""
    first = ("/etc/environment", "/etc/environment.d/*.conf", "/etc/security/pam_env.conf")
    more = ("/etc/profile", "/etc/profile.d/*.sh", "/etc/bash.bashrc")
    for path in _existing(host, *first, *more):
        found = filter(None, map(_FOR_ALL.match, _lines(host, path)))
        yield from [f"{path} {each[1]}" for each in found][:_MOST]


def _shell_lines(host: Host, home: str) -> Iterator[str]:
    """Yield what a login shell is told of CUDA's folders: not run, since it may do anything.

    Without what such a line may hold beside the path: a token in a variable of its own.
    """
    form = re.compile(r"^[^#]*(PATH|CUDA_HOME).*/cuda")
    own = [f"{home}/{each}" for each in names(home) if home and each[:1] == "."]
    own = [e for e in own if e.endswith(("profile", "shrc", ".zshenv")) and os.path.isfile(e)]
    places = ("/etc/environment", "/etc/profile", "/etc/profile.d/*.sh", "/etc/bash.bashrc")
    for path in (*_existing(host, *places), *map(host.shown, own)):
        for row in [row for row in _lines(host, path) if form.search(row)][:_MOST]:
            yield f"{path}:" + re.sub(r"^.*?(\w*(?:PATH|CUDA_\w+)\b)", r"\1", row)


def _compiler(host: Host, program: str) -> str | None:
    if not program or host.which(program) is None:
        return None
    words = ("-dumpversion",) if "clang" in program else ("-dumpfullversion", "-dumpversion")
    status, said = host.run(program, *words, seconds=10)
    if status:
        raise NotTold(f"{program}: {why(status, said)}")
    found = re.search(r"(?m)^\d[\d.]{0,59}$", said)
    if not found:
        raise NotTold(f"{program}: it said {said.partition(chr(10))[0][:80]}")
    return found[0]


def _nvcc(host: Host) -> str | None:
    release = host.asked["cuda_release"]
    program = host.at(f"/usr/local/cuda-{release}/bin/nvcc")
    if not release or not runs(program):
        return None
    status, said = host.run(program, "--version", seconds=10)
    if status:
        raise NotTold(f"{program}: {why(status, said)}")
    found = re.search(r"release (\d{1,4}\.\d{1,4})\b", said)
    if not found:
        raise NotTold(f"{program}: it said {said.partition(chr(10))[0][:80]}")
    return found[1]
