"""The training repository: one folder as a bare git repository with one commit.

Author, date and message are fixed, so that the commit depends on the files alone.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from pyinfra_gpu_rehearsal.commands import run

WHO, WHEN = "pyinfra-gpu rehearsal", "2026-01-01T00:00:00+00:00"
IGNORED = ("__pycache__/", "*.pyc", ".venv/", ".pytest_cache/", ".ruff_cache/", ".mypy_cache/")


def _environment(bare: Path, work_tree: Path) -> dict[str, str]:
    """Return an environment for git in which no setting of this user counts."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    return {
        **inherited,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_DIR": str(bare),
        "GIT_WORK_TREE": str(work_tree),
        **{
            f"GIT_{role}_{key}": value
            for role in ("AUTHOR", "COMMITTER")
            for key, value in (
                ("NAME", WHO),
                ("EMAIL", "rehearsal@localhost"),
                ("DATE", WHEN),
            )
        },
    }


def publish(source: Path, bare: Path, *, submodules: Mapping[str, str] | None = None) -> str:
    """Make the bare repository BARE from the files of the folder SOURCE; return its commit.

    + submodules: path -> commit of each submodule; SOURCE has its .gitmodules, and not its files

    It can be cloned over plain HTTP. An older repository at BARE is replaced in one step.
    """
    purpose = f"making a git repository from {source}"
    fresh = bare.with_name(f".{bare.name}.{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.parent.mkdir(parents=True, exist_ok=True)
    env = _environment(fresh, source.absolute())

    def git(*words: str) -> str:
        return run(["git", *words], purpose=purpose, env=env).stdout.strip()

    run(
        ["git", "init", "--quiet", "--bare", "--initial-branch=main", fresh],
        purpose=purpose,
        env={key: env[key] for key in env if key not in ("GIT_DIR", "GIT_WORK_TREE")},
    )
    (fresh / "info").mkdir(exist_ok=True)
    (fresh / "info/exclude").write_text("\n".join(IGNORED) + "\n")
    git("-c", "core.autocrlf=false", "add", "--all", ".")
    for path, inner in (submodules or {}).items():
        git("update-index", "--add", "--cacheinfo", f"160000,{inner},{path}")
    tree = git("write-tree")
    commit = git("commit-tree", tree, "-m", f"{source.name} as it is in the folder")
    git("update-ref", "refs/heads/main", commit)
    git("repack", "-a", "-d", "--quiet")
    git("update-server-info")
    shutil.rmtree(bare, ignore_errors=True)
    fresh.rename(bare)
    return commit
