"""The training repository: one folder as a bare git repository with one commit.

Author, date and message are fixed, so that the commit depends on the files alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pyinfra_gpu_rehearsal.commands import remove_tree, run

WHEN = "2026-01-01T00:00:00+00:00"
IGNORED = ("__pycache__/", "*.pyc", ".venv/", ".pytest_cache/", ".ruff_cache/", ".mypy_cache/")


def publish(source: Path, bare: Path, *, submodules: Mapping[str, str] | None = None) -> str:
    """Make the bare repository BARE from the files of the folder SOURCE; return its commit.

    + submodules: path -> commit of each submodule; SOURCE has its .gitmodules, and not its files

    It can be cloned over plain HTTP. An older repository at BARE is replaced in one step.
    """
    fresh = bare.with_name(f".{bare.name}.{os.getpid()}")
    remove_tree(fresh)
    fresh.parent.mkdir(parents=True, exist_ok=True)
    # An environment in which no setting of this user counts.
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    for role in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{role}_NAME": "pyinfra-gpu rehearsal", f"GIT_{role}_DATE": WHEN}
        env |= {f"GIT_{role}_EMAIL": "rehearsal@localhost"}

    def git(*words: str | Path) -> str:
        purpose = f"making a git repository from {source}"
        return run(["git", *words], purpose=purpose, env=env).stdout.strip()

    git("init", "--quiet", "--bare", "--initial-branch=main", fresh)
    env |= {"GIT_DIR": str(fresh), "GIT_WORK_TREE": str(source.absolute())}
    (fresh / "info").mkdir(exist_ok=True)
    (fresh / "info/exclude").write_text("\n".join(IGNORED) + "\n")
    git("-C", source, "-c", "core.autocrlf=false", "add", "--all", ".")
    for path, inner in (submodules or {}).items():
        git("update-index", "--add", "--cacheinfo", f"160000,{inner},{path}")
    tree = git("write-tree")
    commit = git("commit-tree", tree, "-m", f"{source.name} as it is in the folder")
    git("update-ref", "refs/heads/main", commit)
    git("repack", "-a", "-d", "--quiet")
    git("update-server-info")
    remove_tree(bare)
    fresh.rename(bare)
    return commit
