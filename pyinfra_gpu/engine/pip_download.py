"""Wheels for another machine, downloaded by the pip of the Python that runs this."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gevent import subprocess  # type: ignore[import-untyped]  # pyinfra's own event loop

from pyinfra_gpu.spec.lock import Platform

NEWEST_GLIBC = 60
_DEADLINE_S = 3600.0


class DownloadError(Exception):
    """What pip printed when it could not download something."""


def download(
    wanted: Sequence[str], platform: Platform, options: Sequence[str], folder: Path, glibc: int
) -> None:
    """Have pip download wheels for a platform, without what they need; it compares digests.

    + wanted: requirements, or the options that name a file of them
    + options: pip's, for where packages come from
    + glibc: the second number of the newest that a wheel may be for

    Raises DownloadError.
    """
    words = ["download", "--isolated", "--no-deps", "--no-cache-dir", "--only-binary", ":all:"]
    words += ["--disable-pip-version-check", "--no-input", "--quiet", "--dest", str(folder)]
    words += ["--implementation", "cp", "--python-version", platform.python]
    for abi in (f"cp{platform.python.replace('.', '')}", "abi3", "none"):
        words += ["--abi", abi]
    tags = [f"manylinux_2_{minor}" for minor in range(glibc, 4, -1)]
    for tag in (*tags, "manylinux2014", "manylinux2010", "manylinux1", "linux"):
        words += ["--platform", f"{tag}_{platform.machine}"]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip", *words, *options, *wanted],
            capture_output=True, text=True, timeout=_DEADLINE_S, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise DownloadError(f"pip took more than {_DEADLINE_S:g} s") from error
    if done.returncode != 0:
        raise DownloadError(done.stderr.partition("ERROR: ")[2] or done.stderr or "it said nothing")
