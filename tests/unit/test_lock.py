"""Locks as data: what is written reads back the same, and what is no lock is one sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pyinfra_gpu.errors import SpecError
from pyinfra_gpu.spec import lock
from pyinfra_gpu.spec.lock import Lock, Locked, Platform, changes, parse

TORCH = Locked(name="torch", version="2.13.0+cpu", digests=("a" * 64,))
NUMPY = Locked(name="numpy", version="2.4.6", digests=("b" * 64, "c" * 64))
UV = Locked(name="uv", version="0.13.8", digests=("d" * 64,))
LOCK = Lock(
    torch="2.13.0+cpu",
    platform=Platform(python="3.11", machine="x86_64"),
    installer=UV,
    packages=(NUMPY, TORCH),
)
TEXT = f"""\
# Written by `pyinfra-gpu lock`, which replaces every change.
#
# torch: 2.13.0+cpu
# python: 3.11
# machine: x86_64

# The installer.
uv==0.13.8 --hash=sha256:{"d" * 64}

# The virtual environment.
numpy==2.4.6 --hash=sha256:{"b" * 64} --hash=sha256:{"c" * 64}
torch==2.13.0+cpu --hash=sha256:{"a" * 64}
"""


def test_a_lock_is_a_line_for_each_package_in_their_order() -> None:
    assert replace(LOCK, packages=(TORCH, NUMPY)).text == TEXT
    assert LOCK.path == Path("locks/torch-2.13.0+cpu-py3.11-x86_64.txt")


def test_what_is_written_reads_back_the_same() -> None:
    assert parse(TEXT, LOCK.path) == LOCK
    assert parse(TEXT.replace("# The", "#  For people: the"), LOCK.path) == LOCK


SOURCE = "5c48869085840e9cbb80e2a4d2b5e5d7c3a1f602"
BUILT = replace(LOCK, source=SOURCE, packages=(NUMPY,), tools=(replace(NUMPY, version="2.3.0"),))


def test_a_lock_of_a_build_has_what_builds_torch_apart_and_no_torch() -> None:
    path = Path("locks/torch-2.13.0+cpu-from-5c4886908584-py3.11-x86_64.txt")
    assert BUILT.path == path
    assert parse(BUILT.text, path) == BUILT
    assert BUILT.text.index("numpy==2.3.0") < BUILT.text.index("# The virt")
    for damaged, problem in (
        (BUILT.text + TORCH.line, "it names a torch, and the one it is for is built"),
        (BUILT.text.replace("5c4886", "5c4887", 1), "what it says is for locks.torch"),
    ):
        with pytest.raises(SpecError, match=problem.replace("locks.", "")):
            parse(damaged, path)


def test_only_the_locks_of_the_declared_source_are_read(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    for each in (LOCK, BUILT, replace(BUILT, source=f"{SOURCE[:12]}{'0' * 28}")):
        (tmp_path / each.path).write_text(each.text)
        assert lock.read(tmp_path, LOCK.torch, each.source) == (each,)
    assert lock.read(tmp_path, LOCK.torch) == (LOCK,)


def test_the_digest_of_a_lock_is_that_of_what_is_sent_to_hosts() -> None:
    assert LOCK.sha256 == lock.sha256(TEXT.partition("environment.\n")[2])
    other = replace(LOCK, packages=(replace(TORCH, digests=("e" * 64,)), NUMPY))
    assert other.sha256 != LOCK.sha256
    assert replace(LOCK, installer=replace(UV, version="0.14.0")).sha256 == LOCK.sha256


WRONG = {
    "a package without a digest": (f" --hash=sha256:{'a' * 64}", "", "line 12 is no package"),
    "a digest that was cut off": ("a" * 64, "a" * 63, "line 12 is no package"),
    "another kind of digest": ("sha256:aa", "md5:aa", "line 12 is no package"),
    "an option": ("torch==", "--index-url https://m.example.org\ntorch==", "line 12 is no package"),
    "a version that is no exact one": ("numpy==", "numpy>=", "line 11 is no package"),
    "a header that lacks a fact": ("# python: 3.11\n", "", "for which torch, python and machine"),
    "a Python that is none": ("python: 3.11", "python: two", "its python and machine are none"),
    "no installer": (f"uv==0.13.8 --hash=sha256:{'d' * 64}\n", "", "it has no uv"),
    "no torch": ("torch==", "torchvision==", "it has no torch 2.13.0+cpu"),
    "another torch": ("torch==2.13.0", "torch==2.14.0", "it has no torch 2.13.0+cpu"),
    "another machine than the name says": (
        "machine: x86_64", "machine: aarch64",
        "what it says is for torch-2.13.0+cpu-py3.11-aarch64.txt",
    ),
    "nothing": (TEXT, "", "for which torch, python and machine"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_lock_is_one_sentence_with_what_to_do(what: str) -> None:
    old, new, problem = WRONG[what]
    assert old in TEXT
    with pytest.raises(SpecError) as error:
        parse(TEXT.replace(old, new), LOCK.path)
    assert problem in str(error.value)
    assert "version control" in str(error.value)
    assert "\n" not in str(error.value)


def test_the_locks_of_a_torch_are_read_for_every_platform(tmp_path: Path) -> None:
    arm = replace(LOCK, platform=Platform(python="3.12", machine="aarch64"))
    other = replace(LOCK, torch="2.14.0+cpu", packages=(replace(TORCH, version="2.14.0+cpu"),))
    (tmp_path / "locks").mkdir()
    for each in (LOCK, arm, other):
        (tmp_path / each.path).write_text(each.text)
    assert lock.read(tmp_path, "2.13.0+cpu") == (LOCK, arm)
    assert lock.read(tmp_path, "2.13.0") == ()
    assert lock.read(tmp_path / "elsewhere", "2.13.0+cpu") == ()


def test_a_lock_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / LOCK.path).mkdir(parents=True)
    with pytest.raises(SpecError, match="cannot be read"):
        lock.read(tmp_path, "2.13.0+cpu")


def test_the_package_index_names_no_build() -> None:
    """Its torch 2.14.1 is what calls itself 2.14.1+cu130."""
    cuda = replace(LOCK, torch="2.14.1+cu130", packages=(replace(TORCH, version="2.14.1"),))
    assert parse(cuda.text, cuda.path) == cuda


def test_changes_are_told_a_package_each() -> None:
    other = replace(NUMPY, digests=("e" * 64,))
    assert changes(None, LOCK) == []
    assert changes(LOCK, LOCK) == []
    assert changes(LOCK, replace(LOCK, packages=(TORCH, other))) == [
        "numpy 2.4.6: ANOTHER DIGEST, same version"
    ]
    new = replace(LOCK, packages=(TORCH, replace(NUMPY, name="sympy")))
    assert changes(LOCK, new) == ["- numpy 2.4.6", "+ sympy 2.4.6"]
    newer = replace(LOCK, installer=replace(UV, version="0.14.0"))
    assert changes(LOCK, newer) == ["uv 0.13.8 -> 0.14.0"]


@pytest.mark.parametrize("text", ["3.12", "2.7-x86_64", "3.12-", "3.12-x86 64", "", "312-x86_64"])
def test_what_is_no_platform_is_none(text: str) -> None:
    assert Platform.parse(text) is None


def test_a_platform_is_a_python_and_a_machine() -> None:
    assert Platform.parse("3.12-aarch64") == Platform(python="3.12", machine="aarch64")
