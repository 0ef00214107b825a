"""What every login and every program is given, and what the owner needs: looked at as the owner."""

from __future__ import annotations

import os
import re

from .frame import Facts, Host, only

_MOST = 9  # lines of a file
_FOR_ALL = (
    r"\s*(?:export\s+)?(RANK|(?:CUDA|GROUP|LD|LOCAL|MASTER|NCCL|PYTHON|ROLE|TORCH|WORLD)"
    r"_*[A-Z0-9][A-Z0-9_]*)(?=[ \t=])"
)
_SHELL_FILES = ("/etc/environment", "/etc/profile", "/etc/profile.d/*.sh", "/etc/bash.bashrc")


def _closed(host: Host) -> list[str]:
    """Return what the owner may not open of the driver, or not run."""
    devices = [e for e in host.paths("/dev", "nvidia") if e[11:12].isdigit()]
    devices += ["/dev/nvidiactl", "/dev/nvidia-uvm"]
    needed = [(each, os.R_OK | os.W_OK) for each in devices]
    for folder in host.paths("/usr/lib", end="-linux-gnu"):
        needed += [(f"{folder}/{e}", os.R_OK) for e in ("libcuda.so.1", "libnvidia-ml.so.1")]
    needed.append(("/usr/bin/nvidia-smi", os.X_OK))
    there = ((path, how) for path, how in needed if os.path.lexists(host.at(path)))
    return [path for path, how in there if not os.access(host.at(path), how)]


def _found(host: Host, form: str, *places: str) -> list[tuple[str, str]]:
    """Return (FILE, what the form's group finds in a line), at most 9 of a file."""
    found: list[tuple[str, str]] = []
    for path in host.files(*places):
        matches = filter(None, map(re.compile(form).match, host.rows_if_any(path)))
        found += [(path, each[1]) for each in matches][:_MOST]
    return found


def _for_all(host: Host) -> list[str]:
    """Return variables that logins get, as "FILE NAME"; never a value: it may be a secret.

    Of the owner's own files only libraries of some CUDA, which come before those of torch.
    """
    more = ("/etc/environment.d/*.conf", "/etc/security/pam_env.conf")
    found = _found(host, _FOR_ALL, _SHELL_FILES[0], *more, *_SHELL_FILES[1:])
    there = host.paths(host.owner.home, ".") if host.owner.home else ()
    own = [each for each in there if each.endswith(("profile", "shrc", ".zshenv"))]
    found += _found(host, r"[^#]*\b(LD_LIBRARY_PATH)\b.*/cuda", *own)
    return [f"{path} {name}" for path, name in found]


def _compiler(host: Host, program: str) -> str | None:
    if not program or host.which(program) is None:
        return None
    words = ("-dumpversion",) if "clang" in program else ("-dumpfullversion", "-dumpversion")
    return only(r"(?m)^(\d[\d.]{0,59})$", host.said(program, *words, seconds=10), program)


def _nvcc(host: Host) -> str | None:
    program = f"/usr/local/cuda-{host.asked['cuda_release']}/bin/nvcc"
    if not host.asked["cuda_release"] or not host.runs(program):
        return None
    said = host.said(host.at(program), "--version", seconds=10)
    return only(r"release (\d{1,4}\.\d{1,4})\b", said, host.at(program))


FACTS: Facts = {
    "environment.for_all": _for_all,
}
NVIDIA: Facts = {
    "driver.closed": _closed,
    "cuda.gcc": lambda host: _compiler(host, "gcc"),
    "cuda.compiler": lambda host: _compiler(host, host.asked["compiler"]),
    "cuda.nvcc": _nvcc,
}
"""What is looked at only where an NVIDIA driver is wanted."""
