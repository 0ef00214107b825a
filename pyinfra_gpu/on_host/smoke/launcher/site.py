"""How the ranks are started: by torchrun, as training is."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import environment
from ..checks import compile_check
from ..journal import RANK, SINGLE
from ..judge import failure
from ..judge.check import Check, measurements
from ..judge.ranks import FINISHED
from ..judge.single import SINGLE_FINISHED
from ..options import REHEARSAL_CPU, Options
from .group import Plan

# The store's address would otherwise be the hostname, which need not resolve.
_ALONE = ("--standalone", "--local-addr", "127.0.0.1")


@dataclass(frozen=True)
class Site:
    """What all processes of one test share.

    + mode: of this run, which is not always the one asked for
    + directory: for their journals, logs and caches
    """

    options: Options
    mode: str
    ranks: int
    bundle: Path
    directory: Path

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of any process of this test."""
        off = {} if self.options.compile else compile_check.OFF
        return {**environment.clean(os.environ, self.mode), **off}

    def _common(self, word: str) -> list[str]:
        return [
            *(str(self.bundle), word, str(self.directory)),
            *("--launcher-pid", str(os.getpid()), "--mode", self.mode),
        ]

    def singles(self, devices: int, checks: Sequence[Check]) -> Plan:
        """Return the plan of S1 to S3, one process a device."""
        command = [sys.executable, *self._common("--single"), "--devices", str(devices)]
        return Plan(
            command=command,
            environment=self.environment,
            count=devices,
            kind=SINGLE,
            names=failure.SINGLES,
            checks=checks,
            ended=SINGLE_FINISHED,
            log=self.directory / "single.log",
            logs="single{}.log",
        )

    def all_ranks(self, checks: Sequence[Check], compiled: bool) -> Plan:
        """Return the plan of S4; `compiled` is whether torch.compile works here."""
        return self._ranks(
            self.directory,
            checks,
            _ALONE,
            ["--measure", ",".join(measurements(checks)), *(["--compiled"] if compiled else [])],
            compile_check.caches(self.directory / "compiled" / "ranks"),
        )

    def across(
        self, checks: Sequence[Check], rendezvous: Sequence[str], interface: str | None
    ) -> Plan:
        """Return the plan of this host's ranks in a step across hosts.

        + rendezvous: torchrun's arguments that say where all hosts meet
        + interface: by which the ranks reach the others, None to let the back end choose
        """
        variables = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
        words = ["--measure", ",".join(measurements(checks))]
        return self._ranks(self.directory, checks, rendezvous, words, variables)

    def rerun(
        self, directory: Path, checks: Sequence[Check], variables: Mapping[str, str | None]
    ) -> Plan:
        """Return a plan of small all-reduces only, in an existing `directory` of its own.

        + variables: set for it, or with None, removed
        """
        return self._ranks(directory, checks, _ALONE, ["--measure", "allreduces"], variables)

    def _ranks(
        self,
        directory: Path,
        checks: Sequence[Check],
        rendezvous: Sequence[str],
        words: Sequence[str],
        variables: Mapping[str, str | None],
    ) -> Plan:
        options, ranks = self.options, str(self.ranks)
        torchrun = [
            *(sys.executable, "-m", "torch.distributed.run", *rendezvous),
            *("--nproc-per-node", ranks, "--max-restarts", "0"),
            *("--log-dir", str(directory / "logs"), "--redirects", "3"),
        ]
        worker = Site(options, self.mode, self.ranks, self.bundle, directory)._common("--worker")
        worker += ["--deadline", str(options.deadline)]
        worker += ["--allreduce-mib", str(options.allreduce_mib), *words]
        changed = {**self.environment, **self._of_nccl(directory), **variables}
        return Plan(
            command=[*torchrun, *worker],
            environment={name: value for name, value in changed.items() if value is not None},
            count=self.ranks,
            kind=RANK,
            names=failure.RANKS,
            checks=checks,
            ended=FINISHED,
            log=directory / "torchrun.log",
            logs="logs/*/attempt_0/{}/std*.log",
        )

    def _of_nccl(self, directory: Path) -> dict[str, str]:
        if self.mode == REHEARSAL_CPU:
            return {}
        from ..gpu import transport

        return {**environment.flight_recorder(directory), **transport.environment(directory)}
