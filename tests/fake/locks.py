"""Locks for tests, as uv writes them."""

from __future__ import annotations

from pathlib import Path

from pyinfra_gpu.spec.lock import FOLDER, Lock, load


def locked(name: str, version: str, *hashes: str) -> str:
    """One package's line."""
    return " ".join([f"{name}=={version}", *(f"--hash=sha256:{x}" for x in hashes or ("a" * 64,))])


UV = locked("uv", "0.13.8", "d" * 64)


def written(
    folder: Path,
    *lines: str,
    torch: str = "2.13.0+cpu",
    platform: str = "3.11-x86_64",
    uv: str = UV,
) -> Lock:
    """Write a lock below a project's folder, and return it."""
    path = folder / FOLDER / f"torch-{torch}-py{platform}.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(["# by uv", *lines, uv, ""]))
    return load(path)
