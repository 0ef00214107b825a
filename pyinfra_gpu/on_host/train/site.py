"""What the deploy left on the host for the launcher: paths, presets, limits."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import calling, presets
from .errors import TrainError

VERSION = 1
AGAIN = "run `pyinfra INVENTORY deploy.py` for this host"


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """One host as it was declared.

    + python, checkout, env_file, state, stamp, lock: absolute paths
    + env_names: the variables that the env file is to have
    + accelerator: "nvidia" or "cpu"; ranks: of a run on the CPU that does not say how many
    + torch: version that is declared
    + presets: as data gives them
    + stop_grace_s: between SIGTERM and SIGKILL; log_mib: of one rank's log before it is rotated
    + keep_runs: ended runs that are kept; 0: all
    + retry_wait_s: before the first retry; each further one waits twice as long
    + notify: the command that is told how runs go; none if empty
    + reboot_wait_s: after a boot until the host is proven, for runs that go on by themselves
    """

    prefix: str
    python: str
    checkout: str
    env_file: str
    env_names: tuple[str, ...]
    state: str
    stamp: str
    lock: str
    owner: str | None
    accelerator: str
    rehearsal: bool
    ranks: int
    torch: str
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    stop_grace_s: int = 30
    log_mib: int = 64
    keep_runs: int = 50
    retry_wait_s: int = 30
    reboot_wait_s: int = 86400
    notify: tuple[str, ...] = ()

    @property
    def runs(self) -> Path:
        """The folder of the runs."""
        return Path(self.state) / "runs"

    @property
    def claims(self) -> Path:
        """The folder of the locks on GPUs."""
        return Path(self.state) / "claims"

    @property
    def queue(self) -> Path:
        """The folder of the tickets of those that wait."""
        return Path(self.state) / "queue"

    @property
    def command(self) -> str:
        """How a person calls the launcher here."""
        return f"{self.prefix}/bin/train"

    @property
    def unit(self) -> Path:
        """The template unit that the deploy left."""
        return Path(self.prefix) / "train/pyinfra-gpu-train@.service"

    @property
    def unit_again(self) -> Path:
        """The unit that looks after a boot which runs are to go on."""
        return Path(self.prefix) / "train/pyinfra-gpu-train-again.service"


def load() -> Site:
    """Return the site of the launcher that runs; raises TrainError."""
    # bin/train lies beside train/site.json, wherever the prefix is.
    path = Path(sys.argv[0]).absolute().parents[1] / "train/site.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.pop("schema") != VERSION:
            raise TrainError(f"{path} is of another version: {AGAIN}")
        site = Site(**document)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise TrainError(f"{path} cannot be read ({error}): {AGAIN}") from None
    state = Path(site.state)
    # Root could write there, and what it wrote were lost to the owner, whose runs these are.
    roots = os.getuid() == 0 and state.exists() and _of(state) != 0
    if roots or not os.access(site.state, os.W_OK):
        name = _owner(site)
        remedy = f"run `{shlex.join(['sudo', '-u', name, site.command, *_words()])}`"
        if calling.caller():
            remedy = f"declare owner = '{name}' for this host, or log in there as {name}"
        raise TrainError(f"runs are {name}'s here: {remedy}")
    return site


def _of(path: Path) -> int:
    return path.stat().st_uid


def _owner(site: Site) -> str:
    state = Path(site.state)
    try:
        return state.owner() if state.exists() else site.owner or "the owner"
    except KeyError:  # nobody has that number any more
        return f"#{_of(state)}"


def _words() -> list[str]:
    """Return what was typed, where every word of it may be shown."""
    words = sys.argv[1:]
    return ["..."] if presets.secret_in(words) else words
