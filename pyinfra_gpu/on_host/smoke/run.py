"""One test, from the first look at the host to the verdict; it never imports torch."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import (
    environment,
    files,
    gpus,
    hang,
    host,
    libraries,
    listening,
    precision,
    ranks,
    transport,
    verdict,
    xid,
)
from .check import Board, Check, Want, status_of
from .collectives import ALL_REDUCE
from .document import VERSION, Gpu, Listens, Software, Verdict
from .group import ENDED, Group, Plan
from .journal import Journal
from .options import GPU, REHEARSAL_1GPU, REHEARSAL_CPU, Options

_UNTIL = {"S1": 0.35, "S2": 0.40, "S3": 0.60, "S4": 0.94}
"""The share of the whole deadline at which each stage must have ended: what one leaves unused is
there for the next, and their sum can never exceed the whole."""
_LADDER_S, _OWN_CHOICE_S = 60.0, 30.0


class Test:
    """One test, from the first look at the host to the verdict."""

    def __init__(
        self, options: Options, bundle: Path, interruption: Callable[[], str | None]
    ) -> None:
        self._options, self._bundle, self._interruption = options, bundle, interruption
        self._began, self._started = time.monotonic(), now()
        self._gpus = gpus.read() if options.mode == GPU else None
        found = len(self._gpus["gpus"]) if self._gpus else 0
        declared = options.gpus or max(found, 1)
        one = options.mode == GPU and (options.gpus or found) == 1
        self._mode = REHEARSAL_1GPU if one else options.mode
        self._say = verdict.Announcer(self._mode)
        self._removed = environment.stray(os.environ, self._mode)
        self._directory = options.logs
        self._want = Want(
            ranks=(options.ranks or 2) if self._gpus is None else declared,
            allreduce_mib=options.allreduce_mib,
            mode=self._mode,
            torch_path=libraries.home(),
            gpus=declared if self._gpus else 0,
            gpu_host=self._gpus or {},
            kinds=gpus.kinds() if self._gpus else (),
            compile=options.compile,
        )
        self._board = Board(ranks.checks_of(self._mode), self._want, self._say.check)
        self._groups: list[Group] = []
        """The first of them is the test's own ranks, the others are tries after that."""
        self._remark: str | None = None
        self._afterwards: dict[str, Any] = {}
        self._kernel: list[str] | None = None
        self._cursor = host.mark()
        self._listens = Listens(listening.ANYONE, "smoke_limit_network is False")
        if options.limit_network:
            self._listens = listening.to_whom(listening.ITSELF)

    def run(self) -> int:
        """Run all stages; a stage runs only if nothing failed before it. Return the exit code."""
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir()
        label = verdict.LABELS[self._mode].partition(": ")[2]
        self._say.say(f"{self._options.host}: {label}")
        if self._listens.to == listening.ANYONE:
            self._say.say(f"others can connect to this test: {self._listens.how}")
        for stage in (self._try_host, self._try_ranks):
            if not self._board.failed:
                stage()
        if self._groups:
            self._look_back()
        shutil.rmtree(self._directory / "compiled", ignore_errors=True)
        return self._conclude()

    def _limit(self, stage: str) -> tuple[float, str]:
        """Return until when `stage` may run, and how that is called."""
        seconds = _UNTIL[stage] * self._options.deadline
        return self._began + seconds, f"{seconds:.0f} s ({stage}'s deadline)"

    # -- the stages

    def _checks(self, *stages: str) -> list[Check]:
        return [check for check in self._board.checks if check.id[:2] in stages]

    def _try_host(self) -> None:
        """S0."""
        began = time.monotonic()
        facts = host.before(self._directory, self._removed, self._mode)
        facts["gpu_host"] = self._gpus
        self._board.decide(self._checks("S0"), facts, time.monotonic() - began)

    def _try_ranks(self) -> None:
        """S1 to S4."""
        later = (ENDED, *ranks.AFTERWARDS)
        wanted = [c for c in self._checks("S1", "S2", "S3", "S4") if c not in later]

        def limit() -> tuple[float, str]:
            undecided = self._board.undecided(wanted)
            return self._limit(undecided[0].id[:2] if undecided else "S4")

        group = Group(self._plan(self._options, self._directory, wanted, {}))
        self._groups.append(group)
        group.run(self._board, limit, self._interruption)
        if group.hung or any(hang.watchdog_spoke(group.tail(rank)) for rank in group.journals):
            self._look_for_the_layer()
        elif self._gpus is not None and not self._board.failed:
            self._after_ranks(self._limit("S4")[0])

    def _plan(
        self,
        options: Options,
        directory: Path,
        checks: Sequence[Check],
        variables: Mapping[str, str | None],
    ) -> Plan:
        return ranks.plan_of_ranks(
            options, self._mode, self._want.ranks, self._bundle, directory, checks, variables
        )

    def _after_ranks(self, until: float) -> None:
        """Read which way NCCL's data went, try its own choice and the number formats."""
        own_until = min(until, time.monotonic() + _OWN_CHOICE_S)
        result, group = self._try_again(hang.OWN_CHOICE, own_until)
        seen = transport.read(group.plan.directory)
        clean = environment.clean(os.environ, self._mode)
        left = max(1.0, min(_LADDER_S, until - time.monotonic()))
        self._afterwards = {
            "transport": transport.read(self._directory),
            "own_choice": {
                "result": result,
                "interfaces": seen["interfaces"],
                "why": group.ending("its time").sentence,
            },
            "precision": precision.ladder([sys.executable, str(self._bundle)], clean, left),
        }
        self._board.decide(ranks.AFTERWARDS, self._afterwards)

    def _look_for_the_layer(self) -> None:
        """Repeat the all-reduce alone, with one thing changed each time."""
        self._say.say("a hang; small all-reduces are tried to find out where")
        self._remark = hang.locate(
            hang.ON_CPU if self._mode == REHEARSAL_CPU else hang.ON_GPUS,
            lambda variant, until: self._try_again(variant, until)[0],
            time.monotonic() + hang.EXTRA_S,
            lambda: self._interruption() is not None,
        )

    def _try_again(self, variant: hang.Variant, until: float) -> tuple[hang.Result, Group]:
        """Return how a small all-reduce ends with `variant`, and what ran."""
        directory = self._directory / f"rerun{len([*self._directory.glob('rerun*')])}"
        directory.mkdir()
        small = replace(self._options, allreduce_mib=1)
        board = Board([ALL_REDUCE, ENDED], replace(self._want, allreduce_mib=1))
        group = Group(self._plan(small, directory, [ALL_REDUCE], variant.variables))
        group.run(board, lambda: (until, "the try's time"), self._interruption)
        if not board.failed:
            return hang.PASSED, group
        begun = [journal for journal in group.journals.values() if "init" in journal.steps]
        return (hang.HUNG if len(begun) == self._want.ranks else hang.UNREACHED), group

    def _look_back(self) -> None:
        """S5, whatever came before: what the test has left is there all the same."""
        began = time.monotonic()
        pids = {journal.pid for group in self._groups for journal in group.journals.values()}
        left = {pid for group in self._groups for pid in group.left}
        self._kernel = host.since(self._cursor)
        facts = host.after(self._kernel, self._cursor, pids, left)
        if self._gpus is not None:
            facts["xids"] = None if self._kernel is None else xid.parse(self._kernel)
            first = self._journals().get(0, Journal(0))
            facts["gpu_after"] = gpus.after(pids, first.facts.get("bandwidth", {}).get("link"))
        self._board.decide(self._checks("S5"), facts, time.monotonic() - began)

    def _journals(self) -> dict[int, Journal]:
        return self._groups[0].journals if self._groups else {}

    # -- the end

    def _conclude(self) -> int:
        """Write verdict and evidence, and say how it went; return the exit code."""
        found = self._verdict()
        files.write(self._options.output, found.as_json())
        for check in found.having("warn"):
            self._say.say(f"WARN {check.id}: {check.detail}")
        status = found.status.upper()
        if found.failed:
            self._say.quote(found.failed.tail)
            self._say.say(f"{status} {found.failed.id}: {found.failed.sentence}")
        else:
            proof = "" if found.proof else ", not proof of a host with several GPUs"
            self._say.say(f"{status}{proof}, in {found.duration_s:.1f} s")
        self._say.say(f"verdict: {self._options.output}")
        return verdict.exit_code(found.status, self._mode)

    def _evidence(self) -> str | None:
        """Keep what explains the result; a verdict without it is better than none."""
        remarks = [
            f"{each.id}: {each.detail}"
            for each in self._board.results()
            if each.status in ("fail", "unknown", "warn")
        ]
        remarks += [self._remark] if self._remark else []
        rank = self._board.failed.rank if self._board.failed else None
        try:
            path = verdict.evidence(self._directory, self._groups, rank, self._kernel, remarks)
        except OSError as error:
            self._say.say(f"the evidence could not be kept: {error}")
            return None
        return str(path)

    def _verdict(self) -> Verdict:
        options, results = self._options, self._board.results()
        status, name = status_of(results), options.host
        listed = self._gpus["gpus"] if self._gpus else []
        last = self._groups[-1] if self._groups else None
        return Verdict(
            schema_version=VERSION,
            mode=self._mode,
            label=verdict.LABELS[self._mode],
            status=status,
            proof=verdict.proves(status, self._mode),
            host=name,
            fingerprint=options.fingerprint,
            started=self._started,
            finished=now(),
            duration_s=round(time.monotonic() - self._began, 3),
            deadline_s=options.deadline,
            software=self._software(),
            listens=self._listens,
            gpus=tuple(Gpu(**{key: gpu[key] for key in Gpu.__annotations__}) for gpu in listed),
            ranks=verdict.ranks(self._groups[0], name) if self._groups else (),
            checks=tuple(results),
            metrics=verdict.metrics(self._journals(), self._want.ranks, self._afterwards),
            failed=verdict.failed(self._board.failed, last, self._remark, name),
            evidence=self._evidence() if status != "pass" else None,
            rerun_command=self._rerun_command(),
            logs=str(self._directory),
        )

    def _software(self) -> Software:
        told = self._groups[0].agent.facts.get("identity", {}) if self._groups else {}
        return Software(
            smoke_test_sha256=hashlib.sha256(self._bundle.read_bytes()).hexdigest(),
            python=platform.python_version(),
            python_path=sys.executable,
            torch=told.get("torch"),
            torch_path=told.get("torch_path"),
            kernel=platform.release(),
            boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        )

    def _rerun_command(self) -> str:
        """Return the command that runs this test again by hand, with its verdict beside this."""
        output, given = self._options.output, sys.argv[1:]
        for name in ("--fingerprint", "--output"):
            if name in given:
                del given[given.index(name) : given.index(name) + 2]
        again = output.with_name(f"{output.stem}.by-hand{output.suffix}")
        return shlex.join([sys.executable, str(self._bundle), *given, "--output", str(again)])


def now() -> str:
    """Return the time as documents have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
