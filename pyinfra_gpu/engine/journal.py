"""What a run found, changed and could not do, per host and stage: the material of every report.

The journal is a pyinfra state callback, so it lives exactly as long as one run and there is no
module-level state. Operations write into it through the functions at the end; where no
journal is attached (somebody uses an operation in a deploy of their own) they do nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pyinfra import context
from pyinfra.api.host import Host
from pyinfra.api.state import BaseStateCallback, State, StateStage

from pyinfra_gpu.diagnosis.explained import Explained
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.stages.finding import Finding


@dataclass(slots=True)
class Entry:
    """One stage on one host."""

    host: str
    stage: str
    summaries: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problem: str | None = None
    unreadable: bool = False
    seconds: float = 0.0

    @property
    def found(self) -> list[str]:
        """What was found, in a few words each: where something differs, that alone."""
        differs = [each.found for each in self.findings if each.acts or each.effect != "note"]
        return differs or self.summaries

    @property
    def actions(self) -> list[str]:
        """What is done about it, or in a plan would be."""
        return [each.action for each in self.findings if each.acts]


class Journal(BaseStateCallback):
    """Collects entries while pyinfra runs, and hands itself to `finish` at the end."""

    def __init__(self, finish: Callable[[State, Journal], None]) -> None:
        self.entries: dict[str, dict[str, Entry]] = {}
        self.verdicts: dict[str, Explained] = {}
        self.across: dict[str, Explained] = {}
        self.looks: dict[str, Record] = {}
        self.planned: set[str] = set()
        self.as_declared: set[str] = set()
        self.plan_shown = False
        self.interrupted = False
        self._finish = finish
        self._gone: set[str] = set()
        self._phase: StateStage | None = None

    def entry(self, host: str, stage: str) -> Entry:
        """Return the entry of this stage on this host, made at first use."""
        self._follow_phase()
        return self.entries.setdefault(host, {}).setdefault(stage, Entry(host=host, stage=stage))

    def of(self, host: str) -> list[Entry]:
        """Return the entries of a host, in the order in which they were begun."""
        return list(self.entries.get(host, {}).values())

    def saw(self, host: str, record: Record) -> None:
        """Keep the first look at this host: what it was before this run did anything."""
        self._follow_phase()
        self.looks.setdefault(host, record)

    def _follow_phase(self) -> None:
        """Drop what was noted while planning as soon as acting begins; a dry run keeps it.

        Operations run twice when pyinfra asks before it acts: once to plan, once to act. Nothing
        will be done to the hosts that are as declared, so theirs stays.
        """
        if self._phase != context.state.current_stage:
            self._phase = context.state.current_stage
            for kept in (self.entries, self.looks):
                for host in kept.keys() - self.as_declared:
                    del kept[host]
            self.across.clear()

    def host_disconnect(self, state: State, host: Host) -> None:  # type: ignore[override]
        """Report once, when the last host is disconnected.

        pyinfra's ``operation_end`` is not called once the last host has failed; a disconnect
        always happens, after pyinfra's own results table.
        """
        self._gone.add(host.name)
        if self._gone >= {each.name for each in state.activated_hosts}:
            self._finish(state, self)


def attach(finish: Callable[[State, Journal], None]) -> None:
    """Attach one journal to the current run; further calls (one per host) change nothing."""
    if current() is None:
        context.state.add_callback_handler(Journal(finish))  # type: ignore[no-untyped-call]


def current() -> Journal | None:
    """Return the journal of the current run, if one is attached."""
    handlers = context.state.callback_handlers
    return next((each for each in handlers if isinstance(each, Journal)), None)


def entry(stage: str) -> Entry:
    """Return the current host's entry of a stage; where there is no journal, one nobody reads."""
    book = current() or Journal(lambda state, book: None)
    return book.entry(context.host.name, stage)


def summary(stage: str, what: str) -> None:
    """Note in a few words what there is in a part of a stage in which nothing differs."""
    noted = entry(stage).summaries  # a stage in which nothing is noted was judged all the same
    if what and what not in noted:
        noted.append(what)


def found(stage: str, finding: Finding) -> None:
    """Note one way in which the host was not as declared."""
    entry(stage).findings.append(finding)


def warn(stage: str, what: str) -> None:
    """Note something that needs a person's attention but stops nothing."""
    entry(stage).warnings.append(what)


def problem(stage: str, sentence: str) -> None:
    """Note the one sentence that says why this host cannot go on, unless a person ended the run."""
    book = current()
    if not (book and book.interrupted):
        entry(stage).problem = sentence


def verdict(value: Explained) -> None:
    """Keep the smoke test's verdict of the current host for the report."""
    if book := current():
        book.verdicts[context.host.name] = value


def across(value: Explained) -> None:
    """Keep the verdict that the multi-node step left on the current host."""
    if book := current():
        book.across[context.host.name] = value
