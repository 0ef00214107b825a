"""The namespaces a lab stands in, and the rights with which those of its hosts are made."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyinfra_gpu_rehearsal.commands import run
from pyinfra_gpu_rehearsal.control_group import Group
from pyinfra_gpu_rehearsal.placing import USER_NAMESPACE, is_root


@dataclass(frozen=True, slots=True)
class Namespaces:
    """Where the processes of one lab live and with which rights its namespaces are made.

    Without root the lab stands in a user and a network namespace, held by a process of its own, in
    which this user is root; every command that touches the lab is run in there.
    """

    group: Group

    @property
    def holder(self) -> Group:
        """The group of the process that holds them; empty for root, who needs none."""
        return self.group.sub("namespaces")

    def prepare(self, log: Path) -> None:
        """Make the namespaces the lab stands in, where it needs any."""
        if is_root():
            return
        command = [*USER_NAMESPACE, "--net", "sleep", "infinity"]
        self.holder.start(command, log=log, purpose="making a user namespace")
        self.holder.only_process(comm="sleep", purpose="making a user namespace")

    def enter(self) -> list[str]:
        """Return the words that run what follows them where the lab stands."""
        if is_root():
            return []
        pid = self.holder.only_process(comm="sleep", purpose="finding the lab's user namespace")
        return ["nsenter", f"--target={pid}", "--user", "--net", "--"]

    def run(
        self, command: Sequence[str | Path], *, purpose: str, stdin: str | None = None,
        check: bool = True,
    ) -> None:  # fmt: skip
        """Run COMMAND where the lab stands; see commands.run()."""
        run([*self.enter(), *command], purpose=purpose, stdin=stdin, check=check)

    def start(
        self, group: Group, command: Sequence[str | Path], *, log: Path, purpose: str
    ) -> None:
        """Start COMMAND where the lab stands, in GROUP, detached from the caller."""
        group.start([*self.enter(), *command], log=log, purpose=purpose)


def remove_tree(path: Path) -> None:
    """Remove the folder PATH, whichever of the lab's users own what is in it."""
    if not path.exists():
        return
    if not is_root():
        command: list[str | Path] = [*USER_NAMESPACE, "rm", "-rf", "--", path]
        run(command, purpose=f"removing {path}", timeout=600)
    else:
        shutil.rmtree(path)
