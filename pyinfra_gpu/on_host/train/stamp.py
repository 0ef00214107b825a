"""Does the smoke test's last pass hold for what runs now? By root's stamp and this boot."""

from __future__ import annotations

import json
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

from ..fingerprint import part, parts
from .rundir import boot_id
from .site import Site

_LARGEST = 64 << 10
_ASSIGNED = re.compile(
    r"^(__version__|git_version|cuda)\s*(?::[^=]*)?=\s*['\"]([^'\"]*)['\"]", re.MULTILINE
)


def read(site: Site) -> dict[str, Any] | None:
    """Return the stamp, None where there is none that can be read."""
    try:
        with Path(site.stamp).open("rb") as file:
            document = json.loads(file.read(_LARGEST))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def changed(stamp: dict[str, Any], now: dict[str, object]) -> list[str]:
    """Return in what the host is another one than the stamp is about.

    + now: part -> its value, of those that can be told without the deploy
    """
    noted = parts(str(stamp.get("fingerprint")))
    if noted is None:
        return ["pyinfra-gpu"]
    return [name for name, value in now.items() if noted[name] != part(value)]


def present(site: Site) -> dict[str, object]:
    """Return what this host is now, in the values that the deploy made its fingerprint of."""
    torch = torch_version(site)
    return {
        "the boot": boot_id(),
        "the kernel": platform.release(),
        "the driver": [str(loaded_driver()), str(libcuda())],
        "torch": [site.torch, str(torch.get("git_version"))],
    }


def loaded_driver() -> str | None:
    """Return the version of the driver in the kernel, None where none is loaded."""
    try:
        return Path("/sys/module/nvidia/version").read_text(encoding="ascii").strip()
    except OSError:
        return None


def libcuda() -> str | None:
    """Return the file behind the linker cache's libcuda.so.1."""
    for program in ("ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"):
        try:
            said = subprocess.run(
                [program, "-p"], capture_output=True, text=True, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        abi = {"x86_64": "x86-64", "aarch64": "AArch64"}.get(platform.machine(), "")
        for line in said.stdout.splitlines():
            name, arrow, path = line.strip().partition(" => ")
            if arrow and name.startswith("libcuda.so.1 ") and abi in name:
                return str(Path(path).resolve())
        return None
    return None


def torch_version(site: Site) -> dict[str, str]:
    """Return what torch says of itself, without importing it."""
    for path in Path(site.python).parents[1].glob("lib/python3*/site-packages/torch/version.py"):
        try:
            return dict(_ASSIGNED.findall(path.read_text(encoding="utf-8")[:_LARGEST]))
        except (OSError, ValueError):
            break
    return {}


def versions(site: Site) -> dict[str, str]:
    """Return what a run stands on."""
    torch = torch_version(site)
    known = {
        "torch": torch.get("__version__"),
        "torch_commit": torch.get("git_version"),
        "cuda": torch.get("cuda"),
        "driver": loaded_driver(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
    return {name: value for name, value in known.items() if value}


def packages(site: Site) -> str:
    """Return what is installed in the virtual environment, one name==version a line."""
    found = set()
    for path in Path(site.python).parents[1].glob("lib/python3*/site-packages/*.dist-info"):
        name, _, version = path.name.removesuffix(".dist-info").rpartition("-")
        found.add(f"{name}=={version}")
    return "".join(f"{line}\n" for line in sorted(found, key=str.casefold))
