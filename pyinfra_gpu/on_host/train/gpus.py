"""The GPUs of this host as its driver tells of them, by UUID: an index changes with a boot."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from .errors import TrainError

_ANSWER_S = 10.0
_FIELDS = "index,uuid,memory.total,memory.used,name"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; memory in MiB."""

    index: int
    uuid: str
    total_mib: int
    used_mib: int
    name: str


def listed() -> list[Gpu]:
    """Return the GPUs there are, by index; raises TrainError where the driver does not answer."""
    return parse(_nvidia_smi(f"--query-gpu={_FIELDS}"))


def users() -> dict[str, list[str]]:
    """Return UUID -> processes that work on that GPU, e.g. "pid 712 (python)"."""
    return parse_users(_nvidia_smi("--query-compute-apps=gpu_uuid,pid,process_name"))


def parse(text: str) -> list[Gpu]:
    """Return what nvidia-smi's lines say; what it cannot tell of a memory counts as none."""
    found = []
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",", 4)]
        if len(words) == 5 and words[0].isdecimal():
            total, used = (int(word) if word.isdecimal() else 0 for word in words[2:4])
            found.append(Gpu(int(words[0]), words[1], total, used, words[4]))
    return sorted(found, key=lambda each: each.index)


def parse_users(text: str) -> dict[str, list[str]]:
    """Return what nvidia-smi's lines say of processes."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",", 2)]
        if len(words) == 3 and words[1].isdecimal():
            name = words[2].rpartition("/")[2][:40]
            found.setdefault(words[0], []).append(f"pid {words[1]} ({name})")
    return found


def _nvidia_smi(query: str) -> str:
    try:
        said = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_ANSWER_S,
            check=False,
        )
    except FileNotFoundError:
        raise TrainError("nvidia-smi is not on this host") from None
    except subprocess.TimeoutExpired:
        raise TrainError(f"nvidia-smi did not answer within {_ANSWER_S:.0f} s") from None
    if said.returncode != 0:
        lines = (said.stdout + said.stderr).strip().splitlines()
        raise TrainError(lines[0] if lines else f"nvidia-smi ended with {said.returncode}")
    return said.stdout
