"""What a host's end left of a fetch beside other work is removed, and nobody's who is at work."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pyinfra_gpu.on_host import program


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Return the owner's cache with what is left there of a fetch, and something else."""
    made = tmp_path / "cache"
    for name in ("pyinfra-gpu-meanwhile/torch", "wheels-v7/torch"):
        (made / name).mkdir(parents=True)
    for name in ("pyinfra-gpu-meanwhile.log", "pyinfra-gpu-meanwhile.txt", ".lock"):
        (made / name).touch()
    return made


def removed(cache: Path) -> list[str]:
    """Run the program; return what is in the cache then."""
    line = program("pytorch/meanwhile_left.sh", f"{cache}/pyinfra-gpu-meanwhile")
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    return sorted(each.name for each in cache.iterdir()) if cache.exists() else []


def test_what_is_left_is_removed_and_the_cache_is_kept(cache: Path) -> None:
    assert removed(cache) == [".lock", "wheels-v7"]
    assert removed(cache) == [".lock", "wheels-v7"]


def test_what_is_still_at_work_is_left_alone(cache: Path) -> None:
    before = sorted(each.name for each in cache.iterdir())
    words = ["flock", str(cache), "sh", "-c", "echo; read -r end"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert removed(cache) == before
        holder.communicate(b"\n")
    assert removed(cache) == [".lock", "wheels-v7"]


def test_where_there_is_no_cache_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert removed(tmp_path / "cache") == []
