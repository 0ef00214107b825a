"""Locks as data: what uv wrote is read, and what is no lock is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from locks import UV, locked, written

from pyinfra_gpu.errors import SpecError
from pyinfra_gpu.spec import lock
from pyinfra_gpu.spec.lock import Platform, load

TORCH, NUMPY = locked("torch", "2.13.0+cpu"), locked("numpy", "2.4.6", "b" * 64, "c" * 64)


def test_a_lock_is_what_uv_wrote_without_uv_itself(tmp_path: Path) -> None:
    made = written(tmp_path, NUMPY.replace(" --hash", " \\\n    --hash"), TORCH)
    assert made.path == Path("locks/torch-2.13.0+cpu-py3.11-x86_64.txt")
    assert (made.platform, made.installer) == (Platform(python="3.11", machine="x86_64"), UV)
    assert made.versions == {"numpy": "2.4.6", "torch": "2.13.0+cpu"}
    assert made.requirements == f"{NUMPY}\n{TORCH}\n"


WRONG = {
    "a package without a hash": ("torch==2.13.0+cpu", UV),
    "a hash that was cut off": (TORCH[:-1], UV),
    "an option": (TORCH, UV, "--index-url https://m.example.org"),
    "no uv": (TORCH,),
    "no torch": (NUMPY, UV),
    "another torch": (locked("torch", "2.14.0+cpu"), UV),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_lock_is_one_sentence_with_what_to_do(tmp_path: Path, what: str) -> None:
    path = tmp_path / "torch-2.13.0+cpu-py3.11-x86_64.txt"
    path.write_text("\n".join(WRONG[what]))
    with pytest.raises(SpecError, match=r"^[^\n]*version control[^\n]*$"):
        load(path)


def test_the_locks_of_a_torch_are_read_for_every_platform(tmp_path: Path) -> None:
    one = written(tmp_path, TORCH)
    arm = written(tmp_path, TORCH, platform="3.12-aarch64")
    assert lock.read(tmp_path, "2.13.0+cpu") == (one, arm)
    assert lock.read(tmp_path, "2.13.0") == lock.read(tmp_path / "elsewhere", "2.13.0+cpu") == ()
