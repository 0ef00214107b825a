"""The command `remove`: takes off hosts what this project put there, and says what it leaves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from posixpath import dirname
from typing import TYPE_CHECKING

import click
from pyinfra.api.command import StringCommand
from pyinfra.api.state import StateStage

from pyinfra_gpu import on_host
from pyinfra_gpu.drift.concern import deferred_by
from pyinfra_gpu.drift.layout import ROOT, owner_name
from pyinfra_gpu.engine import deadlines, lease
from pyinfra_gpu.engine.look import Unanswered, bounded_command, reach
from pyinfra_gpu.engine.privilege import as_owner, as_root, guard
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.pytorch_build import BuildState
from pyinfra_gpu.packages import files
from pyinfra_gpu.report.check.cli import of_hosts
from pyinfra_gpu.report.check.running import Request, probed, visit
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
_ALONE = "LEFT ALONE"
_LONGEST = 300  # characters of a reason


class RefusedError(Exception):
    """Nothing is removed from a host; the message is a clause."""


@click.command(
    "remove",
    epilog="exit code: 0 removed, or nothing was there; 1 a host could not be reached or was left"
    " alone, or nobody said yes.",
)
@of_hosts
@click.option("-y", "--yes", is_flag=True, help="do not ask")
def command(request: Request, yes: bool) -> int:
    """Take off hosts what a deploy put there.

    Shows what this project has on each host, asks, and removes it: its files in /etc, its programs,
    the virtual environment. Driver, toolkit and packages stay, and so do training checkouts, runs
    and checkpoints. A host on which a run or a build is at work is left alone.
    """
    plan = _at_all(request, act=False)
    if any(map(_goes, plan)):
        try:
            if not yes and not click.confirm("Remove this?", err=True):
                return 1
        except click.Abort:  # nobody is there to say yes, or Ctrl-C
            click.echo("\nnothing was removed; -y does not ask", err=True)
            return 1
        plan = _at_all(request, act=True)
    return int(not plan or any(host.state == _ALONE for host in plan))


def _at_all(request: Request, *, act: bool) -> list[Shown]:
    """Ask all hosts, show what they say, and return it; nothing where the inventory is wrong."""
    found: dict[str, Shown] = {}
    one = partial(_at_one, act=act)
    names, reasons = visit(request, one, lambda each, _: found.update({each.name: each}))
    shown = [found[name] for name in names]
    blocks = [*hosts(shown), *(line(reason, "! ") for reason in reasons)]
    if not act and any(map(_goes, shown)):
        blocks += [BLANK, line(_STAYS)]
    click.echo(printed(blocks, columns()))
    return shown


def _goes(host: Shown) -> bool:
    return any(row.label == "remove" for row in host.rows)


def _at_one(state: State, host: Host, *, act: bool) -> Shown:
    """Look at one host and remove what is ours, or say what would be; never raises."""

    def rows(spec: HostSpec, seen: Record) -> tuple[Row, ...] | Unanswered:
        if reason := _at_work(spec, seen):
            return Unanswered(reason=reason)
        try:
            if act:
                state.current_stage = StateStage.Execute
                lease.ensure(state, host, spec)
            said = dict.fromkeys(_said(state, host, spec, seen, act=act))
        except (lease.LeaseError, RefusedError) as error:
            return Unanswered(reason=shortened(str(error), _LONGEST))
        return tuple(Row(label=word, text=text) for word, text in said)

    told, shown = "nothing to remove", probed(state, host, rows)
    if isinstance(shown, Unanswered):
        told, shown = _ALONE, (Row(label="because", text=shown.reason),)
    simulated = host.data.get("rehearsal") is True
    done = Shown(name=host.name, state=told, rehearsal=simulated, rows=shown)
    return replace(done, state="removed" if act else "would be removed") if _goes(done) else done


def _at_work(spec: HostSpec, record: Record) -> str:
    """Return who works on the host, or why nobody can tell; empty where nobody does."""
    if spec.training is not None and isinstance(record.launcher.runs, Unknown):
        return f"cannot tell whether a run is at work: {record.launcher.runs.reason}"
    if runs := deferred_by(record):
        return f"{runs} at work: wait, or stop it with `train stop`, and run again"
    if isinstance(record.build.state, BuildState) and record.build.state.running:
        return "torch is being built: wait until that has ended, and run again"
    return ""


def ours(spec: HostSpec) -> tuple[str, ...]:
    """Return each path that a deploy of this host may have made, as its stages declare them.

    Of the folders below the prefix, what stays in them is the program's to say.
    """
    below = f"{spec.paths.prefix}/"
    all_of = [getattr(p, name) for p in (spec.paths, beside(spec.paths)) for name in vars(Paths)]
    tails = [p.removeprefix(below) for p in all_of if isinstance(p, str) and p.startswith(below)]
    tops = [below + top for top in dict.fromkeys(tail.partition("/")[0] for tail in tails)]
    ours = (*files.ALL, *system_files.ALL, dirname(system_files.REBOOTS))
    outside = ours if spec.privilege == "sudo" else ()
    return (*tops, *outside)


def _said(
    state: State, host: Host, spec: HostSpec, record: Record, *, act: bool
) -> Iterator[tuple[str, str]]:
    """Yield ("remove" or "keep", path), of the owner's part and then of root's."""
    owner, root = as_owner(spec, record), as_root(spec)
    alone = owner == root or owner_name(spec, record) == ROOT
    for user in (root,) if alone else (owner, root):
        header = system_files.HEADER.strip()
        words = ("1" if act else "", guard(user), spec.paths.prefix, header, *ours(spec))
        text = on_host.program("remove/remove.sh", *words, uses=("files/root_only.sh",))
        command, seconds = StringCommand(text), deadlines.CLONE
        ask = partial(bounded_command, state, host, command, user, seconds=seconds)
        said = reach(host, ask, seconds=seconds)
        begun = "broken off, and some of it is gone: " if act else ""
        if isinstance(said, Unanswered):
            raise RefusedError(begun + said.reason)
        ok, output = said
        if not ok:
            raise RefusedError(begun + "; ".join(output.stderr_lines[-3:]))
        yield from (each.partition(" ")[::2] for each in output.stdout_lines)
