"""Checkpoints: a folder each, complete only when everything in it is there.

    DIR/step-000040/model.pt        weights, optimizer and configuration, written by rank 0
    DIR/step-000040/rank0.pt        what is rank 0's own: its random numbers and its place in the data
    DIR/step-000040/complete.json   written last: the step, and every file with its size

A run that is cut off at any moment leaves either a complete checkpoint or one that is passed over.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch

MARK = "complete.json"


def save(path: Path, content: Mapping[str, object]) -> None:
    """Write a file so that `path` never holds half of it, even if we are killed here."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def folder_of(directory: Path, step: int) -> Path:
    """Return the folder of a step's checkpoint, which is made if need be."""
    folder = directory / f"step-{step:06d}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def mark_complete(folder: Path, step: int, world_size: int) -> None:
    """Say that all files are there; every rank must have written its own before."""
    names = ["model.pt", *(f"rank{rank}.pt" for rank in range(world_size))]
    content = {
        "step": step,
        "world_size": world_size,
        "files": {name: (folder / name).stat().st_size for name in names},
    }
    temporary = folder / (MARK + ".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / MARK)


def complete(folder: Path) -> dict[str, object] | None:
    """Return what the mark says; None where it, or a file that it names, is not there whole."""
    try:
        content = json.loads((folder / MARK).read_text(encoding="utf-8"))
        whole = all((folder / name).stat().st_size == size for name, size in content["files"].items())
    except (OSError, ValueError, KeyError, AttributeError):
        return None
    return content if whole else None


def newest(directory: Path) -> Path | None:
    """Return the complete checkpoint of the highest step, None where there is none."""
    folders = sorted(directory.glob("step-*"), key=lambda folder: (len(folder.name), folder.name))
    return next((folder for folder in reversed(folders) if complete(folder)), None)


def load(folder: Path, rank: int, world_size: int) -> tuple[dict, dict]:
    """Return what all ranks share, and what is this rank's own."""
    content = complete(folder)
    if content is None:
        raise SystemExit(f"{folder} is not a complete checkpoint: resume from another one")
    if content["world_size"] != world_size:
        raise SystemExit(
            f"{folder} was written by {content['world_size']} process(es), and these are"
            f" {world_size}: start as many"
        )
    shared = torch.load(folder / "model.pt", map_location="cpu", weights_only=True)
    own = torch.load(folder / f"rank{rank}.pt", map_location="cpu", weights_only=True)
    return shared, own
