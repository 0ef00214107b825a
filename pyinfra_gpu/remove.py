"""The command `remove`: takes off hosts what this project put there, and says what it leaves."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from posixpath import dirname
from typing import TYPE_CHECKING

import click
from pyinfra.api.state import StateStage

from pyinfra_gpu import on_host
from pyinfra_gpu.engine import deadlines, lease
from pyinfra_gpu.engine.look import Unanswered, answer
from pyinfra_gpu.engine.privilege import as_owner, as_root, guard
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.pytorch_build import BuildState
from pyinfra_gpu.packages import files
from pyinfra_gpu.report.check.cli import of_hosts
from pyinfra_gpu.report.check.running import Request, ask, run_program
from pyinfra_gpu.report.screen import BLANK, Row, Shown, hosts, line, printed
from pyinfra_gpu.spec import HostSpec, Paths, system_files
from pyinfra_gpu.spec.paths import beside
from pyinfra_gpu.stages.layout.findings import ROOT, owner_name
from pyinfra_gpu.stages.rules import running
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
    answers, reasons = ask(request, partial(_at_one, act))
    shown = [
        Shown(name=name, state=_ALONE, rows=(Row(label="because", text=each.reason),))
        if isinstance(each, Unanswered)
        else each
        for name, each in answers.items()
    ]
    blocks = [*hosts(shown), *(line(reason, "! ") for reason in reasons)]
    if not act and any(map(_goes, shown)):
        blocks += [BLANK, line(_STAYS)]
    click.echo(printed(blocks, columns()))
    return shown


def _goes(host: Shown) -> bool:
    return any(row.label == "remove" for row in host.rows)


def _at_one(act: bool, state: State, host: Host, spec: HostSpec) -> Shown | Unanswered:
    """Look at one host and remove what is ours, or say what would be: the owner, and then root."""
    record = answer(state, host, spec)
    if isinstance(record, Unanswered):
        return record
    if reason := _at_work(spec, record):
        return Unanswered(reason=reason)
    if act:
        state.current_stage = StateStage.Execute
        try:
            lease.ensure(state, host, spec)
        except lease.LeaseError as error:
            return Unanswered(reason=shortened(str(error), _LONGEST))
    owner, root = as_owner(spec, record), as_root(spec)
    alone = owner == root or owner_name(spec, record) == ROOT
    rows: dict[Row, None] = {}
    for user in (root,) if alone else (owner, root):
        header = system_files.HEADER.strip()
        words = ("1" if act else "", guard(user), spec.paths.prefix, header, *ours(spec))
        program = on_host.program("remove/remove.sh", *words, uses=("files/root_only.sh",))
        said = run_program(state, host, program, user, seconds=deadlines.CLONE)
        if isinstance(said, Unanswered):
            begun = "broken off, and some of it is gone: " if act else ""
            return Unanswered(reason=shortened(begun + said.reason, _LONGEST))
        things = (each.partition(" ") for each in said)
        rows |= dict.fromkeys(Row(label=word, text=path) for word, _, path in things)
    gone = "removed" if act else "would be removed"
    found = Shown(name=host.name, state=gone, rehearsal=spec.rehearsal, rows=tuple(rows))
    return found if _goes(found) else replace(found, state="nothing to remove")


def _at_work(spec: HostSpec, record: Record) -> str:
    """Return who works on the host, or why nobody can tell; empty where nobody does."""
    if spec.training is not None and isinstance(record.launcher.runs, Unknown):
        return f"cannot tell whether a run is at work: {record.launcher.runs.reason}"
    if runs := running(record):
        return f"{runs} at work: wait, or stop it with `train stop`, and run again"
    if isinstance(record.build.state, BuildState) and record.build.state.running:
        return "torch is being built: wait until that has ended, and run again"
    return ""


def ours(spec: HostSpec) -> tuple[str, ...]:
    """Return each path that a deploy of this host may have made, as its stages declare them.

    Of the folders below the prefix, what stays in them is the program's to say.
    """
    below = f"{spec.paths.prefix}/"
    all_of = [
        str(getattr(p, name)) for p in (spec.paths, beside(spec.paths)) for name in vars(Paths)
    ]
    tops = (below + p.removeprefix(below).partition("/")[0] for p in all_of if p.startswith(below))
    outside = (*files.ALL, *system_files.ALL, dirname(system_files.REBOOTS))
    return (*dict.fromkeys(tops), *(outside if spec.privilege == "sudo" else ()))
