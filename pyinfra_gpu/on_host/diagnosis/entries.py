"""The entries of the catalogue, and how they travel to a host: as JSON, read without anything else.

What the fields mean, and how an entry is written, stands in the controller's `diagnosis/catalogue`.
"""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from .host_facts import Condition, HostFacts
from .patterns import Pattern, Text, asked_about, pattern
from .steps import Step

FILE = "catalogue.json"
"""Beside this module where it is packed for a host."""

Kind = Literal["root", "secondary", "wrapper", "warn", "evidence", "expected"]
LAYERS: Mapping[str, str] = {
    "driver": "DRV",
    "cuda": "CUDA",
    "libs": "LIB",
    "store": "STORE",
    "nccl": "NCCL",
    "compile": "CMP",
    "host": "HOST",
}
"""Layer (and name of its file) -> how its ids start."""

_LAYER_OF = {start: layer for layer, start in LAYERS.items()}

ANY = "*"
_LENT_TO = ("root", "secondary", "wrapper")  # of these kinds is what cases are lent to
NONE: frozenset[str] = frozenset()


class Lines(Protocol):
    """All lines of a log; see `Elsewhere`."""

    def told(
        self, pattern: Pattern, also: Pattern | None, groups: Mapping[str, str | None]
    ) -> object | None:
        """Return what the first line tells that the pattern matches; None if there is none."""

    def differing(self, pattern: Pattern) -> object | None:
        """Return what two lines tell that the pattern matches otherwise; None if all are alike."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What an entry means where its message carries one of these values and the host says so.

    + values: None if any value will do
    + seen: a line that the log has as well, wherever; None if none is asked for. It may ask for
      what the message has, see `Pattern.about`
    + also: another line that it must have beside `seen`
    + differs: what the log says in two ways; None if nothing of the kind is asked for
    """

    values: frozenset[str] | None = None
    facts: tuple[Condition, ...] = ()
    seen: Pattern | None = None
    also: Pattern | None = None
    differs: Pattern | None = None
    kind: Kind
    cause: str
    fix: tuple[Step, ...]
    explains: frozenset[str] = NONE

    @property
    def lendable(self) -> bool:
        """Whether another line alone decides it, and its words need none of its message's."""
        asked = [each for each in (self.seen, self.also, self.differs) if each]
        if not asked or self.values is not None or self.facts or self.kind != "root":
            return False
        if any(asked_about(each) for each in asked):
            return False
        held = {"other"}.union(*(each.regex.groupindex for each in asked))
        texts = (self.cause, *(form for step in self.fix for form in step.forms))
        return held.issuperset(name for text in texts for name in re.findall(r"<([a-z_]+)>", text))

    def fits(
        self, value: str | None, groups: Mapping[str, str | None], facts: HostFacts, log: Lines
    ) -> bool:
        """Tell whether this is the reading of a message with these groups.

        + value: of the group that chooses
        """
        if self.values is not None and (value is None or not self.values & {value, ANY}):
            return False
        if not all(condition.holds(facts) for condition in self.facts):
            return False
        if self.differs is not None and log.differing(self.differs) is None:
            return False
        return self.seen is None or log.told(self.seen, self.also, groups) is not None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One known failure.

    + kind: `root` names a cause; `secondary` follows from another failure and `wrapper` only
      repeats one, neither is ever reported; `warn`, `evidence` and `expected` are reported
      where nothing failed that they do not explain
    + patterns: the message's wordings
    + fix: what to do, in this order; `<name>` stands for the pattern's group of that name
    + clause, remedy: the cause, and what to do, in one clause each; empty where nobody wrote one
    + weak: names a cause only if nothing else failed: a time-out, a signal
    + passing: mostly goes away by itself: the same program may well succeed a little later
    + lends: its cases are told by what another line says alone, so that they hold as well where the
      log has one of its consequences in place of its message
    + only_decided: says nothing where none of its cases fits: its message has any number of causes
    + precedes: explains only what comes after it in the log: what came before has another cause
    + awaited: stands for any exception that no entry explains, of a rank that others then waited
      for; it has no message of its own, and its patterns are not searched for
    + explains: ids and layers that are its consequences where both are seen
    + case_group: the group whose value chooses one of `cases`
    + samples: lines as people see them; + source: where the facts are from. Hosts are sent neither
    """

    id: str
    kind: Kind
    patterns: tuple[Pattern, ...]
    cause: str
    fix: tuple[Step, ...]
    samples: tuple[str, ...] = ()
    source: str = ""
    clause: str = ""
    remedy: str = ""
    weak: bool = False
    passing: bool = False
    lends: bool = False
    only_decided: bool = False
    precedes: bool = False
    awaited: bool = False
    explains: frozenset[str] = NONE
    case_group: str | None = None
    cases: tuple[Case, ...] = ()

    @property
    def layer(self) -> str:
        """The layer it belongs to, which is also the name of its file."""
        return _LAYER_OF[self.id.partition("-")[0]]

    def case(self, groups: Mapping[str, str | None], facts: HostFacts, log: Lines) -> Case | None:
        """Return the case for a match with these groups on this host, None if none fits.

        + log: where it was found
        """
        value = groups.get(self.case_group) if self.case_group else None
        return next((case for case in self.cases if case.fits(value, groups, facts, log)), None)


Reading = tuple[str, Case | None]
"""An entry's id, and which of its cases is meant."""


class Catalogue:
    """All entries, and which of them follow from which."""

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self.entries = entries
        self.by_id = {entry.id: entry for entry in entries}
        self.awaited = next((entry for entry in entries if entry.awaited), None)
        searched = [entry for entry in entries if not entry.awaited]
        self._patterns = [(entry, each) for entry in searched for each in entry.patterns]
        self._places: dict[str, list[int]] = {}  # in `_patterns`, by the anchor
        for place, (_, each) in enumerate(self._patterns):
            self._places.setdefault(each.anchor, []).append(place)
        self._lent = self._lending()
        self._of_layer = {layer: set[str]() for layer in LAYERS}
        for entry in entries:
            self._of_layer[entry.layer].add(entry.id)
        self._reached: dict[tuple[str, frozenset[str]], frozenset[str]] = {}

    def _lending(self) -> dict[str, tuple[Case, ...]]:
        """Return what each entry is lent: the cases of what explains it, see `lent`."""
        lent: dict[str, tuple[Case, ...]] = {entry.id: () for entry in self.entries}
        for entry in self.entries:
            cases = tuple(case for case in entry.cases if entry.lends and case.lendable)
            for effect in sorted(entry.explains & lent.keys()) if cases else ():
                lent[effect] += cases
        for entry in self.entries:
            for effect in sorted(entry.explains & lent.keys()):
                if self.by_id[effect].only_decided:
                    lent[effect] += lent[entry.id]
        return lent

    def near(self, text: Text) -> list[tuple[Entry, Pattern]]:
        """Return the patterns whose anchors stand in the text, each with its entry, in order."""
        there = text.holding(self._places)
        places = sorted(place for anchor in there for place in self._places[anchor])
        return [self._patterns[place] for place in places]

    def lent(self, entry: Entry) -> tuple[Case, ...]:
        """Return the cases of what explains the entry that another line alone decides.

        What was typed decides between the causes of a failure, whichever of its consequences was
        in the log; an entry that says nothing by itself has what its causes are lent, too. So has
        what names no cause: a rank whose connection was closed often is all that is left of it.
        """
        return self._lent[entry.id] if entry.kind in _LENT_TO else ()

    def explains(self, one: Reading, other: str) -> bool:
        """Tell whether the entry `other` is a consequence of `one`, directly or through others."""
        return other in self._effects(*one)

    def circle(self) -> tuple[str, str] | None:
        """Return two entries each of which explains the other, None if there are none."""
        effects = {
            entry.id: {
                id_
                for case in (None, *entry.cases, *self.lent(entry))
                for id_ in self._effects(entry.id, case)
            }
            for entry in self.entries
        }
        pairs = ((one, other) for one, reached in effects.items() for other in reached)
        return next(((one, other) for one, other in pairs if one in effects[other]), None)

    def _effects(self, id_: str, case: Case | None) -> frozenset[str]:
        """Return what follows from an entry read so; few of them are asked about."""
        targets = self.by_id[id_].explains | (case.explains if case else NONE)
        if (id_, targets) not in self._reached:
            self._reached[id_, targets] = self._reach(id_, targets)
        return self._reached[id_, targets]

    def _reach(self, start: str, targets: frozenset[str]) -> frozenset[str]:
        """Return the ids that follow from `start`, which is one of them if they go in a circle.

        Of a whole layer named as an effect, the entries' own effects are not followed.
        """
        reached: set[str] = set()
        pending = set(targets)
        while pending:
            target = pending.pop()
            if target in LAYERS:
                reached |= self._of_layer[target] - {start}
            elif target not in reached:
                reached.add(target)
                pending |= self.by_id[target].explains
        return frozenset(reached)


def packed(known: Catalogue) -> bytes:
    """Return the entries as they travel; the same catalogue gives the same bytes, always."""
    entries = [_entry_as_json(each) for each in known.entries]
    return f"{json.dumps(entries, sort_keys=True, separators=(',', ':'))}\n".encode("ascii")


def unpacked(data: bytes) -> Catalogue:
    """Return the catalogue that `packed` made."""
    return Catalogue(tuple(_entry(each) for each in json.loads(data)))


def carried() -> Catalogue:
    """Return the catalogue that was packed beside this module; an empty one where none was."""
    try:
        data = pkgutil.get_data(__package__, FILE)
    except OSError:
        data = None
    return unpacked(data) if data else Catalogue(())


def _entry_as_json(entry: Entry) -> dict[str, Any]:
    told = {
        **_meaning_as_json(entry),
        "id": entry.id,
        "patterns": [each.source for each in entry.patterns],
        "clause": entry.clause,
        "remedy": entry.remedy,
        "weak": entry.weak,
        "passing": entry.passing,
        "lends": entry.lends,
        "only_decided": entry.only_decided,
        "precedes": entry.precedes,
        "awaited": entry.awaited,
        "case_group": entry.case_group,
        "cases": [_case_as_json(case) for case in entry.cases],
    }
    return {name: value for name, value in told.items() if value not in ("", [], None, False)}


def _case_as_json(case: Case) -> dict[str, Any]:
    told = _meaning_as_json(case)
    if case.values is not None:
        told["values"] = sorted(case.values)
    if case.facts:
        told["facts"] = {each.name: each.expected for each in case.facts}
    if case.seen is not None:
        told["seen"] = case.seen.source
    if case.also is not None:
        told["also"] = case.also.source
    if case.differs is not None:
        told["differs"] = case.differs.source
    return told


def _meaning_as_json(it: Entry | Case) -> dict[str, Any]:
    return {
        "kind": it.kind,
        "cause": it.cause,
        "fix": [_step_as_json(each) for each in it.fix],
        "explains": sorted(it.explains),
    }


def _step_as_json(step: Step) -> object:
    return step.shell if step.shell == step.run else [step.shell, step.run]


def _step(told: str | Sequence[str]) -> Step:
    return Step(told, told) if isinstance(told, str) else Step(*told)


def _entry(told: Mapping[str, Any]) -> Entry:
    return Entry(
        **_meaning(told),
        id=told["id"],
        patterns=tuple(pattern(each) for each in told["patterns"]),
        clause=told.get("clause", ""),
        remedy=told.get("remedy", ""),
        weak=told.get("weak", False),
        passing=told.get("passing", False),
        lends=told.get("lends", False),
        only_decided=told.get("only_decided", False),
        precedes=told.get("precedes", False),
        awaited=told.get("awaited", False),
        case_group=told.get("case_group"),
        cases=tuple(_case(each) for each in told.get("cases", ())),
    )


def _case(told: Mapping[str, Any]) -> Case:
    values = told.get("values")
    return Case(
        **_meaning(told),
        values=None if values is None else frozenset(values),
        facts=tuple(Condition(name, value) for name, value in told.get("facts", {}).items()),
        seen=pattern(told["seen"]) if "seen" in told else None,
        also=pattern(told["also"]) if "also" in told else None,
        differs=pattern(told["differs"]) if "differs" in told else None,
    )


def _meaning(told: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": told["kind"],
        "cause": told["cause"],
        "fix": tuple(map(_step, told["fix"])),
        "explains": frozenset(told.get("explains", ())),
    }
