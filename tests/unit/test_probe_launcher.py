"""What the probe tells of training runs: those of the owner, and of nobody else."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from probing import ROOT, Tree, tree_fixture, write  # noqa: F401

from pyinfra_gpu.facts.fields import Unknown


def unit(tree: Tree, user: int, name: str) -> Path:
    slices = f"sys/fs/cgroup/user.slice/user-{user}.slice/user@{user}.service/app.slice"
    folder = tree.root / slices / f"pyinfra-gpu-train@{name}.service"
    folder.mkdir(parents=True)
    return folder


def test_the_owners_runs_are_told_and_no_other_users(tree: Tree) -> None:
    own = os.geteuid()
    unit(tree, own, "20261122-200000-balanced")
    unit(tree, own, "20261122-210000-run-2")
    # Whoever may log in could keep every repair waiting, with an empty unit of that name.
    unit(tree, own + 4711, "20261122-220000-not-ours")
    assert tree.look().launcher.runs == ("20261122-200000-balanced", "20261122-210000-run-2")


def test_a_name_that_is_no_runs_is_none(tree: Tree) -> None:
    unit(tree, os.geteuid(), "a\nlauncher.run =forged")
    runs = tree.look().launcher.runs
    assert isinstance(runs, Unknown) or "forged" not in runs


def test_linger_is_told(tree: Tree) -> None:
    name = pwd.getpwuid(os.geteuid()).pw_name
    write(tree.root / f"var/lib/systemd/linger/{name}", "")
    assert tree.look().launcher.linger is True
