"""The command `remove`: takes off hosts what this project put there, and says what it leaves."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from posixpath import dirname
from typing import TYPE_CHECKING, Any

import click
from pyinfra.api.command import StringCommand
from pyinfra.api.state import StateStage
from pyinfra.context import ctx_host

from pyinfra_gpu import on_host
from pyinfra_gpu.drift.deferral import deferred_by
from pyinfra_gpu.drift.layout import owner_name
from pyinfra_gpu.engine import deadlines, lease
from pyinfra_gpu.engine.declared import declared
from pyinfra_gpu.engine.look import Unanswered, answer, bounded_command, reach
from pyinfra_gpu.engine.privilege import as_owner, as_root, guard
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.pytorch_build import BuildState
from pyinfra_gpu.packages import files
from pyinfra_gpu.report.check.cli import add_request, request_of
from pyinfra_gpu.report.check.running import Request, visit
from pyinfra_gpu.report.screen import BLANK, Row, Shown, hosts, line, printed
from pyinfra_gpu.spec import HostSpec, Paths, system_files
from pyinfra_gpu.spec.paths import beside
from pyinfra_gpu.text import columns, shortened

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.facts.record import Record

_STAYS = (
    "The driver, the CUDA toolkit and other packages stay as they are, and held where they are held"
    " (`apt-mark showhold`); so does linger of the owner."
)
_LONGEST = 300  # characters of a reason


class RefusedError(Exception):
    """Nothing is removed from a host; the message is a clause."""


@dataclass(frozen=True, kw_only=True)
class Removal:
    """What is removed from a host, or would be.

    + removed, kept: paths, what is kept with the reason; + problem: why nothing is, or not all
    """

    name: str
    rehearsal: bool = False
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    problem: str = ""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``remove``."""
    parser = subparsers.add_parser(
        "remove",
        help="take off hosts what a deploy put there, but driver, toolkit, runs and checkouts",
        description="Show what this project has on each host, ask, and remove it: its files in"
        " /etc, its programs, the virtual environment. Driver, toolkit and packages stay, and so do"
        " training checkouts, runs and checkpoints. A host on which a run or a build is at work"
        " is left alone.",
        epilog="exit code: 0 removed, or nothing was there; 1 a host could not be reached or was"
        " left alone, or nobody said yes.",
    )
    add_request(parser)
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.set_defaults(handler=handle)


def handle(options: argparse.Namespace) -> int:
    """Show the plan, ask, act, and return the exit code."""
    request = request_of(options)
    plan = _all(request, act=False)
    if plan is None:
        return 1
    failed = any(each.problem for each in plan)
    if not any(each.removed for each in plan):
        return int(failed)
    if not options.yes and not click.confirm("Remove this?", err=True):
        return 1
    done = _all(request, act=True)
    return int(done is None or any(each.problem for each in done))


def _all(request: Request, *, act: bool) -> list[Removal] | None:
    """Ask all hosts, and show what they say; None where the inventory is wrong."""
    found: dict[str, Removal] = {}
    one = partial(_visited, act=act)
    names, reasons = visit(request, one, lambda each, _: found.update({each.name: each}))
    for reason in reasons:
        click.echo(f"! {reason}", err=True)
    removals = [found[name] for name in names]
    blocks = hosts(_shown(each, act=act) for each in removals)
    if not act and any(each.removed for each in removals):
        blocks += [BLANK, line(_STAYS)]
    click.echo(printed(blocks, columns()))
    return None if reasons else removals


def _shown(each: Removal, *, act: bool) -> Shown:
    state = "nothing to remove"
    if each.removed:
        state = "removed" if act else "would be removed"
    rows = [Row(label="remove", text=path) for path in each.removed]
    rows += [Row(label="keep", text=text) for text in each.kept]
    if each.problem:
        state, rows = "LEFT ALONE", [*rows, Row(label="because", text=each.problem)]
    return Shown(name=each.name, state=state, rehearsal=each.rehearsal, rows=tuple(rows))


def _visited(state: State, host: Host, *, act: bool) -> Removal:
    """Look at one host and remove what is ours, or say what would be; never raises."""
    simulated = host.data.get("rehearsal") is True
    try:
        with ctx_host.use(host):
            spec = declared(host)
            seen = answer(state, host, spec)
            if isinstance(seen, Unanswered):
                raise RefusedError(seen.reason)
            if other := lease.other_name(host, seen):
                raise RefusedError(other)
            _refuse_at_work(spec, seen)
            if act:
                state.current_stage = StateStage.Execute
                lease.ensure(state, host, spec)
            lines = [*dict.fromkeys(_lines(state, host, spec, seen, act=act))]
    except Exception as error:  # one host's failure is one host's failure
        known = isinstance(error, RefusedError | lease.LeaseError)
        text = str(error) if known else f"it failed ({type(error).__name__}: {error})"
        return Removal(name=host.name, rehearsal=simulated, problem=shortened(text, _LONGEST))
    told = [line.partition(" ")[::2] for line in lines]
    return Removal(
        name=host.name,
        rehearsal=simulated,
        removed=tuple(path for word, path in told if word == "remove"),
        kept=tuple(text for word, text in told if word == "keep"),
    )


def _refuse_at_work(spec: HostSpec, record: Record) -> None:
    """Raise RefusedError where a training run or a build is at work, or nobody can tell."""
    if spec.training is not None and isinstance(record.launcher.runs, Unknown):
        raise RefusedError(f"cannot tell whether a run is at work: {record.launcher.runs.reason}")
    if runs := deferred_by(record):
        raise RefusedError(f"{runs} at work: wait, or stop it with `train stop`, and run again")
    if isinstance(record.build.state, BuildState) and record.build.state.running:
        raise RefusedError("torch is being built: wait until that has ended, and run again")


def ours(spec: HostSpec) -> tuple[str, ...]:
    """Return each path that a deploy of this host may have made, as its stages declare them.

    Of the folders below the prefix, what stays in them is the program's to say.
    """
    paths = (spec.paths, beside(spec.paths))
    declared = (getattr(each, name) for each in paths for name in vars(Paths))
    below = f"{spec.paths.prefix}/"
    tails = (p.removeprefix(below) for p in declared if isinstance(p, str) and p.startswith(below))
    tops = [below + tail for tail in dict.fromkeys(each.partition("/")[0] for each in tails)]
    if spec.privilege != "sudo":
        return tuple(tops)
    folders = (dirname(system_files.REBOOTS), system_files.KEPT)
    return (*tops, *files.ALL, *system_files.ALL, *folders)


def _lines(state: State, host: Host, spec: HostSpec, record: Record, *, act: bool) -> Iterator[str]:
    """Yield what the program says, of the owner's part and then of root's."""
    header = system_files.HEADER.strip()
    users: Sequence[dict[str, Any]] = [as_owner(spec, record)]
    if spec.privilege == "sudo" and owner_name(spec, record) != "root":
        users = [*users, as_root(spec)]
    for user in users:
        words = ("1" if act else "", guard(user), spec.paths.prefix, header, *ours(spec))
        text = on_host.program("remove/remove.sh", *words, uses=("files/root_only.sh",))
        ask = partial(
            bounded_command, state, host, StringCommand(text), user, seconds=deadlines.CLONE
        )
        said = reach(host, ask, seconds=deadlines.CLONE)
        if isinstance(said, Unanswered):
            raise RefusedError(said.reason)
        ok, output = said
        if not ok:
            raise RefusedError("; ".join(output.stderr_lines[-3:]) or "the host did not say why")
        yield from output.stdout_lines
