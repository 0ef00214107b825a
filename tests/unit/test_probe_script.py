"""The look as a whole: one healthy host, and nothing written."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import verdicts

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from nvidia_tree import furnish_nvidia, look
from probing import NOBODY, ROOT, Tree, checkout, tree_fixture, write  # noqa: F401
from recorded import unknowns

from pyinfra_gpu.facts.parse import Answer
from pyinfra_gpu.facts.probe import BOOTSTRAP, asked_of
from pyinfra_gpu.facts.record import Entry
from pyinfra_gpu.facts.verdict import Stamp, Verdict
from pyinfra_gpu.on_host import probe, probe_program
from pyinfra_gpu.spec import Paths


def furnish(tree: Tree) -> None:
    """Everything that a finished deploy leaves."""
    tree.venv()
    checkout(tree)
    write(tree.base / "prefix/tools/bin/uv", "#!/bin/sh\necho 'uv 0.13.8 (x86_64)'\n", 0o755)
    write(tree.base / "prefix/env/training.env", "# managed\nOMP_NUM_THREADS=1\n")
    write(tree.base / "prefix/smoke/stamp.json", json.dumps(verdicts.stamp()))
    write(tree.base / "prefix/state/verdict.json", json.dumps(verdicts.document()))
    write(tree.base / "prefix/venv/.pyinfra-gpu-training.json", "{}")


def test_a_bare_host_is_described_without_anything_unknown(tree: Tree) -> None:
    record = tree.look()
    assert list(unknowns(record)) == []
    system = record.system
    assert (system.os_id, system.os_version) == ("debian", "12")
    assert (system.kernel, system.architecture) == ("6.1.0-37-amd64", os.uname().machine)
    assert system.boot_id == "11111111-2222-3333-4444-555555555555"
    assert system.cpu_count == os.cpu_count()
    assert isinstance(system.ram_mib, int)
    assert (system.init, system.user) == ("systemd", "ubuntu")
    assert system.python3 == sys.version.split()[0]
    assert record.gpus.devices == ()
    assert record.packages.installed == {"git": "1:2.39.5-0+deb12u2"}
    assert record.packages.half_configured == ("curl",)
    assert record.packages.lock_holder is None
    assert record.layout.entry(str(tree.prefix / "venv")) == Entry(kind="absent")


def test_free_room_is_what_the_system_says_of_the_nearest_folder_that_exists(
    tree: Tree,
) -> None:
    record = tree.look(prefix=str(tree.prefix / "not/yet there"))
    free = os.statvfs(tree.prefix)
    assert isinstance(record.storage.free_mib, int)
    assert abs(record.storage.free_mib - free.f_bavail * free.f_frsize // 2**20) < 200
    assert isinstance(record.storage.shm_mib, int)
    assert record.storage.shm_mib > 0


def test_a_finished_host_is_described_without_anything_unknown(tree: Tree) -> None:
    furnish(tree)
    record = tree.look()
    assert list(unknowns(record)) == []
    assert record.torch.version == "2.13.0+cpu"
    assert record.torch.uv == "0.13.8"
    assert record.torch.damaged == ()
    assert record.training.dirty_count == 0
    assert isinstance(record.smoke.stamp, Stamp)
    assert isinstance(record.smoke.verdict, Verdict)
    assert record.smoke.verdict.as_json() == verdicts.document()
    assert record.training.stamp_text == "{}"
    assert json.loads(json.dumps(record.to_json()))["torch"]["declared"] is None


def snapshot(folder: Path) -> dict[str, tuple[object, ...]]:
    """Kind, mode, times and content of everything below a folder."""
    seen = {}
    for path in (folder, *folder.rglob("*")):
        state = path.lstat()
        content = b"" if path.is_symlink() or not path.is_file() else path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        seen[str(path)] = (state.st_mode, state.st_mtime_ns, state.st_ctime_ns, digest)
    return seen


def test_the_probe_writes_nothing_anywhere_it_looks(tree: Tree) -> None:
    furnish(tree)
    furnish_nvidia(tree)
    # An index whose notes on a file are out of date is what tempts git to write it anew.
    os.utime(tree.prefix / "training/training/train.py", (1, 1))
    (tree.base / "tmp").mkdir()
    tree.environment["TMPDIR"] = f"{tree.base}/tmp"
    before = snapshot(tree.base)
    look(tree)
    assert snapshot(tree.base) == before


def test_what_travels_is_ascii_and_one_argument_at_most() -> None:
    text = probe_program("look", asked_of(Paths(prefix="/opt/pyinfra-gpu", name="training")))
    assert text.isascii()
    assert len(text) < 69_000, "one argument of a command may have 131,071 (execve(2))"


def test_a_host_without_python_says_so(tree: Tree) -> None:
    """As Docker's images of Debian come: the first package of a deploy is Python."""
    begin = BOOTSTRAP.replace("/usr/bin/python3", str(tree.base / "none"))
    done = subprocess.run(["sh", "-c", begin], input="", capture_output=True, text=True, check=True)
    assert Answer(done.stdout.splitlines()).python is False


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13"])
def test_every_python_of_a_supported_host_can_read_it(version: str) -> None:
    minor = int(version.partition(".")[2])
    for path in Path(probe.__file__).parent.glob("*.py"):
        ast.parse(path.read_text(encoding="ascii"), feature_version=(3, minor))
