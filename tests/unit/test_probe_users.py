"""What another user than root learns, and what root leaves to the owner."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from nvidia_tree import LIBDIR, VERSION, furnish_nvidia, look
from probing import NOBODY, ROOT, Tree, checkout, git, write
from test_probe_script import furnish

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import Entry
from pyinfra_gpu.packages import files
from pyinfra_gpu.spec import system_files

pytestmark = pytest.mark.skipif(not ROOT, reason="only root can take another user's place")
DEVICES = ("/dev/nvidia0", "/dev/nvidiactl")


@pytest.fixture(name="tree")
def tree_fixture() -> Iterator[Tree]:
    """A tree that every user of this machine can reach."""
    base = Path(tempfile.mkdtemp(prefix="probe-"))
    base.chmod(0o755)
    yield Tree(base / "host")
    shutil.rmtree(base)


def given(tree: Tree) -> None:
    """Give all below the prefix to nobody."""
    for path in (tree.prefix, *tree.prefix.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def test_what_a_plain_user_may_not_read_is_unknown(tree: Tree) -> None:
    furnish_nvidia(tree)
    list_ = tree.root / files.SOURCES[1:]
    log = tree.root / "var/log/apt/history.log"
    for file in (list_, log, tree.root / system_files.KEYRING[1:]):
        file.chmod(0o600)
    (tree.root / "boot").chmod(0o700)
    (tree.root / "proc/812/fd").chmod(0o500)
    record = look(tree, user=NOBODY)
    unseen = "it may not see what other users' processes have open"
    assert record.driver.users == Unknown(unseen)
    assert record.driver.loaded == VERSION
    assert record.nvidia.sources == Unknown(f"no permission to read {list_}")
    assert record.nvidia.history == Unknown(f"no permission to read {log}")
    assert isinstance(record.nvidia.keyring, Unknown)
    assert record.kernel.installed == Unknown(f"no permission to look at {tree.root}/boot")
    assert record.kernel.newest is None
    assert record.nvidia.package("libcuda1") is not None
    (tree.root / "boot").chmod(0o755)
    list_.parent.chmod(0o700)
    record = look(tree, user=NOBODY)
    assert record.nvidia.sources == Unknown(f"no permission to look at {list_.parent}")


def test_what_the_owner_may_not_use_is_told(tree: Tree) -> None:
    furnish_nvidia(tree)
    for device in DEVICES:
        Path(f"{tree.root}{device}").chmod(0o666)
    smi = write(tree.root / "usr/bin/nvidia-smi", "", 0o755)

    def closed() -> object:
        return look(tree, user=NOBODY).driver.closed

    assert closed() == ()
    Path(f"{tree.root}/dev/nvidiactl").chmod(0o644)
    assert closed() == ("/dev/nvidiactl",)
    for device in DEVICES:
        Path(f"{tree.root}{device}").chmod(0o600)
    for file in Path(f"{tree.root}{LIBDIR}").glob("libcuda.so.5*"):
        file.chmod(0o600)
    smi.chmod(0o700)
    assert closed() == (*DEVICES, f"{LIBDIR}/libcuda.so.1", "/usr/bin/nvidia-smi")


def test_root_does_not_run_a_users_compiler_as_root(tree: Tree) -> None:
    furnish_nvidia(tree)
    mark = tree.base / "ran-as-root"
    text = f"#!/bin/sh\n(echo >{mark}) 2>&-\necho 13.3.0\n"
    compiler = write(tree.base / "theirs/gcc-13", text, 0o755)
    assert look(tree, compiler=str(compiler)).cuda.compiler == "13.3.0"
    assert mark.exists()
    mark.unlink()
    # Whoever the file belongs to: it runs as the user who is declared, and as nobody else.
    for owner in (0, NOBODY):
        os.chown(compiler.parent, owner, owner)
        assert look(tree, compiler=str(compiler), owner="nobody").cuda.compiler == "13.3.0"
        assert not mark.exists()


def test_a_user_who_may_not_search_the_prefix_learns_that_and_nothing_wrong(tree: Tree) -> None:
    furnish(tree)
    tree.prefix.chmod(0o700)
    record, where = tree.look(user=NOBODY), str(tree.prefix)
    reported = {
        "env/training.env": record.layout.entry(f"{where}/env/training.env"),
        "venv": record.torch.version,
        "training/training": record.training.commit,
        "bin": record.layout.entry(f"{where}/bin"),
    }
    for name, found in reported.items():
        assert found == Unknown(f"no permission to look at {where}/{name}")
    assert record.torch.python_problem == record.torch.version
    assert record.layout.entry(where) == Entry(kind="dir", mode="0700", owner="root")
    assert record.packages.installed == {"git": "1:2.39.5-0+deb12u2"}


def test_a_file_that_may_not_be_read_is_unknown_and_its_owner_and_size_are_not(tree: Tree) -> None:
    file = write(tree.prefix / "env/training.env", "A=1\n", 0o600)
    record = tree.look(user=NOBODY)
    reason = Unknown(f"no permission to read {file}")
    assert record.layout.entry(str(file)) == Entry(
        kind="file", mode="0600", owner="root", size=4, sha256=reason
    )


def test_root_reads_a_users_repository_without_running_its_programs_as_root(tree: Tree) -> None:
    folder = checkout(tree)
    head = git(folder, "rev-parse", "HEAD")
    assert tree.look(user=NOBODY).training.commit == head, "a user reads that of another one"
    trace = tree.base / "trace"
    trace.mkdir()
    trace.chmod(0o777)
    # Both are programs that `git status` starts because the repository says so.
    program = write(tree.base / "program", f"#!/bin/sh\nid -u >>{trace}/$$\ncat\n", 0o755)
    git(folder, "config", "core.fsmonitor", str(program))
    git(folder, "config", "filter.evil.clean", str(program))
    write(folder / ".gitattributes", "*.py filter=evil\n")
    write(folder / "train.py", "print('hallo')\n")
    given(tree)
    training = tree.look(owner="nobody").training
    assert (training.commit, training.dirty) == (head, (" M train.py", "?? .gitattributes"))
    assert {path.read_text().strip() for path in trace.iterdir()} == {str(NOBODY)}


def test_what_a_host_without_gpus_is_not_asked_is_not_looked_at(tree: Tree) -> None:
    furnish_nvidia(tree)
    for tool in ("systemctl", "mokutil", "gcc"):
        tree.tool(tool, f"echo called >{tree.base}/called")
    record = tree.look()
    assert not (tree.base / "called").exists()
    assert (record.driver.users, record.driver.persistenced, record.driver.mok) == ((), None, None)
    assert (record.kernel.installed, record.nvidia.packages, record.power.sessions) == ((), (), ())
    assert record.driver.loaded == VERSION
