"""The environment of a run: the declared file, the preset's variables, and nothing of a login."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping
from pathlib import Path

from . import presets
from .errors import TrainError
from .site import AGAIN, Site

MASKED = "***"
_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_LARGEST = 1 << 20


def read(site: Site) -> dict[str, str]:
    """Return the declared env file's variables; raises TrainError."""
    try:
        with Path(site.env_file).open(encoding="utf-8") as file:
            text = file.read(_LARGEST)
    except (OSError, ValueError) as error:
        raise TrainError(f"{site.env_file} cannot be read ({error}): {AGAIN}") from None
    values = {}
    for line in text.split("\n"):
        match = _LINE.fullmatch(line.strip(" \t\r"))
        if match:
            values[match[1]] = _unquoted(match[2])
    return values


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] == '"':
        return re.sub(r'\\([\\"$`])', r"\1", value[1:-1])
    return value


def variables(
    declared: Mapping[str, str], preset: Mapping[str, str], devices: list[str]
) -> dict[str, str]:
    """Return the whole environment of a run's processes.

    + declared: of the env file; preset: of the preset, which come first
    + devices: UUIDs of GPUs, or "cpu"
    """
    gpus = "" if devices == ["cpu"] else ",".join(devices)
    return {**plain(), **declared, **preset, "CUDA_VISIBLE_DEVICES": gpus}


def plain() -> dict[str, str]:
    """Return what every process of the owner's may expect."""
    user = pwd.getpwuid(os.getuid())
    return {
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONUNBUFFERED": "1",  # what a rank prints is to be seen when it prints it
        "XDG_RUNTIME_DIR": f"/run/user/{user.pw_uid}",
    }


def recorded(declared: Mapping[str, str], preset: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a run notes, what may be somebody's key masked."""
    both = {**declared, **preset}
    return {
        name: MASKED if presets.is_secret(name) else value for name, value in sorted(both.items())
    }
