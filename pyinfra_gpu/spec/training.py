"""What is trained: the environment of its programs, and the repo they are in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pyinfra_gpu.spec import presets as of_runs
from pyinfra_gpu.spec import sources
from pyinfra_gpu.spec import values as v
from pyinfra_gpu.spec import variables as env
from pyinfra_gpu.spec.key import Given, key


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentSpec:
    """The env file; `variables` are the user's own, sorted by name."""

    name: str = key(
        v.matching(r"[a-z0-9][a-z0-9-]{0,39}", "is not a short lower-case name"),
        default="training",
        allowed="at most 40 of a-z, 0-9 and -, not starting with -",
        example="nanochat",
        help="names the env file and the training checkout",
    )
    variables: tuple[tuple[str, str], ...] = key(
        env.variables,
        default={},
        allowed="a dict of names and texts",
        example={"NCCL_DEBUG": "WARN"},
        help="added to the env file",
        settle=lambda given, pairs: tuple(pairs),
        synonyms=("env",),
    )
    dynamo: bool = key(
        v.boolean,
        default=True,
        example=False,
        help="False switches torch.compile off for programs of this environment",
    )


def commit_remedy(data: Mapping[str, object]) -> str:
    """Return how to find a commit; the repo's URL is shown only if it passed its own check."""
    try:
        url = sources.git_url(data.get("training_repo"))
    except v.BadValueError:
        url = "URL"
    return f"set training_commit to what `git ls-remote {url} main` prints"


def is_declared(given: Given) -> bool:
    """Return whether there is something to train."""
    return given.declares("training_repo") and given.declares("training_commit")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingSpec:
    """The training repo at one commit, and how it is run; `presets` as one JSON text."""

    repo: str = key(
        sources.git_url,
        default=None,
        allowed="a git URL (https, http, ssh, git, file or user@host:path), or None",
        example="https://github.com/karpathy/nanochat",
        help="the training repo; None = no training stage",
        synonyms=("repo", "training_url"),
    )
    commit: str = key(
        sources.commit,
        default=None,
        allowed="40 hexadecimal digits",
        example="92d63d4a1f0e5b7c8d9e0f1a2b3c4d5e6f708192",
        help="the commit to check out",
        remedy=commit_remedy,
        synonyms=("training_branch", "training_ref", "training_tag", "training_version"),
    )
    local_changes: Literal["report", "overwrite"] = key(
        v.choice("report", "overwrite"),
        default="report",
        example="overwrite",
        help="what to do about changes in the checkout; 'overwrite' keeps a backup",
    )
    submodules: bool = key(
        v.boolean,
        default=True,
        example=False,
        help="check the repo's submodules out too, each at the commit recorded for it",
    )
    lfs: bool = key(
        v.boolean,
        default=True,
        example=False,
        help="fetch the repo's files of git LFS, where git-lfs is on the host",
    )
    requirements: str | None = key(
        sources.requirements,
        default=None,
        allowed="a path in the repo to a requirements .txt or pyproject.toml, or None",
        example="requirements.txt",
        help="what to install for training, torch excepted",
    )
    presets: str = key(
        of_runs.presets,
        default={},
        allowed="a dict of presets, as docs/train.md describes them",
        example={"tiny": {"file": "train.py", "arguments": {"steps": 200}}},
        help="what `train start PRESET` runs, and with which arguments",
        settle=lambda given, presets: json.dumps(presets),
    )
    stop_grace_s: int = key(
        v.integer(1, 3600),
        default=30,
        example=120,
        help="seconds that a run has to end by itself when it is stopped",
        synonyms=("training_stop_grace",),
    )
    log_mib: int = key(
        v.integer(1, 4096),
        default=64,
        example=256,
        help="MiB of one rank's log before it is rotated; two older files are kept",
    )
    keep_runs: int = key(
        v.integer(0, 100_000),
        default=50,
        example=200,
        help="ended runs whose logs are kept; 0 = all. Checkpoints are never deleted",
    )
    retry_wait_s: int = key(
        v.integer(1, 3600),
        default=30,
        example=120,
        help="seconds before a run begins again by `--retries`; twice as long each further time",
    )
    reboot_wait_s: int = key(
        v.integer(60, 2_592_000),
        default=86_400,
        example=7200,
        help="seconds after a boot that runs with `resume_after_reboot` wait for a smoke test",
    )
    notify: tuple[str, ...] = key(
        of_runs.command,
        default=(),
        allowed="a list of texts, the first one an absolute path",
        example=["/usr/local/bin/tell-me"],
        help="a command that gets JSON on its standard input when a run ends, fails, stalls or"
        " is resumed; the owner runs it",
        settle=lambda given, words: tuple(words),
    )
