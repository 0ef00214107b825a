"""Judging by rules: short generators of findings, which raise where a host would not tell.

    def _linger(spec: HostSpec, record: Record) -> Iterator[Finding]:
        if not known(record.launcher.linger, "whether runs outlive a login"):
            yield repair(Id.TRAINING_MANAGER_OFF, "linger is off", "linger for runs", "linger")

    judge = Rules(_linger, _manager)

`judge(spec, record)` are the findings of every rule that could tell. `judge.unread(spec, record)`
says what the others could not: with one of those a stage is undetermined, so that nobody acts on a
guess, and no rule can forget to check that it is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stages.finding import CannotTell, Finding
from pyinfra_gpu.text import some

Rule = Callable[["HostSpec", "Record"], Iterable[Finding]]
"""In what a host differs in one respect; raises `CannotTell` where a fact for it is not known."""

T = TypeVar("T")


def known(value: T | Unknown, what: str = "what is there") -> T:
    """Return a fact.

    + what: it tells, for the sentence

    Raises CannotTell where the host would not tell it.
    """
    if isinstance(value, Unknown):
        raise CannotTell(f"cannot tell {what}: {value.reason}")
    return value


def if_known(value: T | Unknown, otherwise: T) -> T:
    """Return a fact for which nothing is refused: only a sentence, or a note, depends on it."""
    return otherwise if isinstance(value, Unknown) else value


def running(record: Record) -> str:
    """Name the training runs that are running; empty where none is known."""
    runs = if_known(record.launcher.runs, ())
    return f"run{'s' * (len(runs) > 1)} {some(runs, 3)}" if runs else ""


def where(applies: Callable[[HostSpec], bool], *rules: Rule) -> tuple[Rule, ...]:
    """Return rules that are asked only of hosts of which something is declared.

    + applies: whether it is
    """

    def only(rule: Rule) -> Rule:
        return lambda spec, record: rule(spec, record) if applies(spec) else ()

    return tuple(only(rule) for rule in rules)


class Rules:
    """The rules for one part of a host, asked once for each look.

    + rules: in the order in which is repaired what they find
    """

    def __init__(self, *rules: Rule) -> None:
        self._rules = rules
        self._last: tuple[HostSpec, Record, list[Finding], tuple[str, ...]] | None = None

    def __call__(self, spec: HostSpec, record: Record) -> list[Finding]:
        """Return in what the host is not as declared, as far as it could be looked at."""
        return [*self._judged(spec, record)[0]]

    def unread(self, spec: HostSpec, record: Record) -> tuple[str, ...]:
        """Return what could not be read and has to be known, a clause each."""
        return self._judged(spec, record)[1]

    def _judged(self, spec: HostSpec, record: Record) -> tuple[list[Finding], tuple[str, ...]]:
        # A look is known by being the very same two values, which never change: to compare all
        # that is in them would take longer than to judge again.
        if self._last is None or self._last[0] is not spec or self._last[1] is not record:
            found: list[Finding] = []
            unread: list[str] = []
            for rule in self._rules:
                try:
                    found.extend(rule(spec, record))
                except CannotTell as reason:
                    unread.append(str(reason))
            self._last = spec, record, found, tuple(unread)
        return self._last[2:]
