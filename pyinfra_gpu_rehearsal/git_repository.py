"""The training repository: one folder as a bare git repository with one commit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pyinfra_gpu_rehearsal.commands import remove_tree, run

IGNORED = ("__pycache__/", "*.pyc", ".venv/", ".pytest_cache/", ".ruff_cache/", ".mypy_cache/")


def publish(source: Path, bare: Path, *, submodules: Mapping[str, str] | None = None) -> str:
    """Make the bare repository BARE from the files of the folder SOURCE; return its commit.

    + submodules: path -> commit of each submodule; SOURCE has its .gitmodules, and not its files

    It can be cloned over plain HTTP. Its commit depends on the files alone.
    """
    remove_tree(bare)
    (bare / "info").mkdir(parents=True)
    (bare / "info/exclude").write_text("\n".join(IGNORED) + "\n")
    # An environment in which no setting of this user counts.
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    for role in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{role}_NAME": "pyinfra-gpu rehearsal", f"GIT_{role}_DATE": "1767225600 +0000"}
        env |= {f"GIT_{role}_EMAIL": "rehearsal@localhost"}

    def git(*words: str | Path) -> str:
        purpose = f"making a git repository from {source}"
        return run(["git", *words], purpose=purpose, env=env).stdout.strip()

    git("init", "--quiet", "--bare", "--initial-branch=main", bare)
    env |= {"GIT_DIR": str(bare.absolute()), "GIT_WORK_TREE": str(source.absolute())}
    git("-C", source, "-c", "core.autocrlf=false", "add", "--all", ".")
    for path, inner in (submodules or {}).items():
        git("update-index", "--add", "--cacheinfo", f"160000,{inner},{path}")
    commit = git("commit-tree", git("write-tree"), "-m", f"{source.name} as it is in the folder")
    git("update-ref", "refs/heads/main", commit)
    git("repack", "-a", "-d", "--quiet")
    git("update-server-info")
    return commit
