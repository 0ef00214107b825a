"""The known failures: reviewed data, read and checked.

`catalogue/LAYER.yaml` maps ids to entries:

    CUDA-01:
      kind: root                # what it is, see `Entry`
      patterns:                 # regular expressions (Python's, MULTILINE) for the message's
        - 'some error in (?P<file>\\S{1,80})'   # wordings. Each holds 6 plain characters outside
                                # brackets, no top-level `|`, and bounds every repetition. A space
                                # also matches a line break. Colours, timestamps, ranks' labels and
                                # typographic quotes are gone before a pattern sees the text.
      samples: ["..."]          # lines as people see them: each pattern matches one, and each of
                                # them is matched
      cause: what is wrong      # <file> stands for the pattern's group of that name
      fix:                      # what to do, in this order. A text is right in a shell and for a
        - "`ls -l {file}`"      # run of our launcher, whose record knows {file}; what else stands
        - "Once {NCCL_DEBUG=WARN}"    # between braces, mostly commands about variables, which a
        - "{unset CC}"          # run has elsewhere: see `on_host/diagnosis/steps`
        - shell: "... `torchrun --log-dir logs ...` keeps one file per rank"    # a step in two
          run: "... `train logs {run}` shows it"    # forms; where one is left out, the step does
                                # not apply in that situation
      source: where the facts are from
      clause: what is wrong     # optional, as the rest: cause and fix in one clause each, for the
      remedy: do this           # sentence in which a run says why one of its commands failed
      weak: yes                 # names a cause only if nothing else failed
      passing: yes              # mostly goes away by itself; `train start --retries` begins again
      lends: yes                # its cases decide also for what it explains: each of them is told
                                # by a line that needs no message beside it (no module is loaded)
      only_decided: yes         # a message of any number of causes (KeyError): nothing where no
                                # case fits
      precedes: yes             # explains only what comes after it in the log: a driver that could
                                # not be installed is why there is none, not when somebody tries
                                # to install it because there is none
      awaited: yes              # any exception that nothing explains, of a rank that others then
                                # waited for; its patterns are not searched for. One entry has it
      explains: [CUDA-02, nccl] # ids and layers that are its consequences where both are seen
      case_group: file          # the group whose value chooses among the cases
      cases:                    # other readings of the same message. The first that fits replaces
                                # kind, cause and fix; where none does, the entry's own hold
        - values: ["a.so"]      # of case_group; ["*"] for any, if the group took part at all
          facts: {compat_on_path: yes, shm_mib: "< 1024", gpu: GeForce}
                                # what the host says, see `HostFacts`: all must hold; what is not
                                # known does not
          seen: 'a row (?P<of>\\d)'  # what the same log has as well, wherever: mostly what a person
                                # typed after the failure; <of> then stands for its group. Each
                                # case has values, facts, seen or differs. With the groups `more`
                                # and `less`, whole numbers, the one must be the greater; with
                                # `half` in place of `less`, greater than twice that, with `last`
                                # than the numbers from 0 to that, with `listed` than how many
                                # that has between its commas
                                # `<<file>>` in it is what the message has as its group `file`
          seen_in: "a row 2"    # lines as people see them, which it matches
          also: 'another line'  # optional: the log must have this as well, anywhere, and so has
                                # `seen_in`; what both have as their group `same` must be equal
          differs: 'id : (?P<one>\\w{1,9})'   # instead of seen: two lines of the log differ in the
                                # group `one`; <one> and <other> then stand for the two values.
                                # `seen_in` has two such lines. With the group `same`, lines
                                # are compared that have the same there. Where several lines say
                                # the same, `seen` and `seen_in` are lists of equal length
          kind: root
          cause: ...
          fix: ["..."]
          explains: [cuda]      # optional, beside the entry's own
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, ClassVar, TypeGuard

from pydantic import BeforeValidator, Field, PlainValidator, TypeAdapter

from pyinfra_gpu.diagnosis.bundled import own_texts
from pyinfra_gpu.diagnosis.host_facts import read_conditions
from pyinfra_gpu.on_host.diagnosis.entries import LAYERS, NONE, Case, Catalogue, Entry
from pyinfra_gpu.on_host.diagnosis.host_facts import Condition
from pyinfra_gpu.on_host.diagnosis.patterns import (
    Pattern,
    PatternError,
    asked_about,
    check,
    pattern,
    together,
)
from pyinfra_gpu.on_host.diagnosis.steps import PLACES, Step, misread
from pyinfra_gpu.stacks.reading import (
    FileEntry,
    Flag,
    Table,
    Text,
    expected,
    keyed,
    misplaced,
    read,
    refuse_unknown,
    wrong,
)

_ID = re.compile(r"([A-Z]+)-\d{2,3}")


def _pattern(source: object) -> Pattern:
    if not isinstance(source, str) or not source:
        raise expected("text")
    return pattern(source)


_FORMS = ("shell", "run")


def _step(written: object) -> Step:
    """Return a step: a text that is right in both situations, or a mapping of its forms."""
    forms = dict.fromkeys(_FORMS, written) if isinstance(written, str) else written
    if not isinstance(forms, dict) or not forms or not {*forms} <= {*_FORMS}:
        raise expected("text, or a mapping of `shell` and `run`")
    for text in forms.values():
        if not isinstance(text, str) or not text:
            raise expected("text; a form that does not apply is left out")
        if braces := misread(text):
            raise expected(f"without {braces}: places are {', '.join(PLACES)}; see steps.py")
    return Step(**forms)


def _steps(written: object) -> tuple[Step, ...]:
    if not isinstance(written, list):
        raise expected("a list")
    steps = tuple(map(_step, written))
    if not all(any(step.forms[place] for step in steps) for place in range(len(_FORMS))):
        raise expected("at least one step in a shell, and one for a run")
    return steps


_Steps = Annotated[tuple[Step, ...], PlainValidator(_steps)]


def _one_each(written: object) -> object:
    """Return the cases with those that list several lines as one case for each line."""
    return [case for each in written for case in _alike(each)] if _listed(written) else written


def _alike(case: object) -> list[object]:
    if not isinstance(case, dict) or not _listed(case.get("seen")):
        return [case]
    seen, shown = case["seen"], case.get("seen_in")
    if not _listed(shown) or len(shown) != len(seen):
        raise misplaced("seen_in", f"must be a list of {len(seen)} texts, as `seen` is")
    return [{**case, "seen": one, "seen_in": line} for one, line in zip(seen, shown, strict=True)]


def _listed(written: object) -> TypeGuard[list[object]]:
    return isinstance(written, list)


@dataclass(frozen=True, kw_only=True)
class _FileCase(FileEntry, Case):
    """A case as the file has it."""

    values: frozenset[Text] | None = None
    facts: Annotated[tuple[Condition, ...], PlainValidator(read_conditions)] = ()
    seen: Annotated[Pattern | None, PlainValidator(_pattern)] = None
    also: Annotated[Pattern | None, PlainValidator(_pattern)] = None
    differs: Annotated[Pattern | None, PlainValidator(_pattern)] = None
    seen_in: Text = ""
    cause: Text
    fix: _Steps
    explains: frozenset[Text] = NONE


@dataclass(frozen=True, kw_only=True)
class _FileEntry(FileEntry, Entry):
    """An entry as the file has it."""

    KEYED_BY: ClassVar[str] = "id"

    patterns: Annotated[
        tuple[Annotated[Pattern, PlainValidator(_pattern)], ...], Field(min_length=1)
    ]
    samples: Annotated[tuple[Text, ...], Field(min_length=1)]
    cause: Text
    fix: _Steps
    source: Text
    clause: Text = ""
    remedy: Text = ""
    weak: Flag = False
    passing: Flag = False
    lends: Flag = False
    only_decided: Flag = False
    precedes: Flag = False
    awaited: Flag = False
    explains: frozenset[Text] = NONE
    case_group: Text | None = None
    cases: Annotated[tuple[_FileCase, ...], BeforeValidator(_one_each)] = ()


@cache
def catalogue() -> Catalogue:
    """Return the package's own catalogue.

    Its patterns and samples are not tried on each other here, which takes longer than all the
    rest: a test does that.
    """
    return read_catalogue(own_texts(), tried=True)


def read_catalogue(texts: Mapping[str, str], *, tried: bool = False) -> Catalogue:
    """Return the catalogue that the YAML `texts` (layer -> file's text) hold, checked as a whole.

    + tried: whether patterns and samples are known to fit each other

    Raises StacksError, with file, entry and reason in one sentence, if the data is wrong.
    """
    entries: dict[str, Entry] = {}
    files: dict[str, str] = {}
    for layer, text in texts.items():
        file = f"catalogue/{layer}.yaml"
        for each in read(text, file, _model()).values():
            found = _ID.fullmatch(each.id)
            if not found or found[1] != LAYERS[layer]:
                raise wrong(file, each.id, f"must be an id such as {LAYERS[layer]}-01")
            if not tried:
                _try(each, file)
            entries[each.id], files[each.id] = each, file
    for entry in entries.values():
        for target in sorted(entry.explains.union(*(case.explains for case in entry.cases))):
            place = f"{entry.id}.explains"
            refuse_unknown(files[entry.id], place, target, [*LAYERS, *entries])
    result = Catalogue(tuple(entries.values()))
    if circle := result.circle():
        one, other = circle
        it = f"must not lead to {other}, which explains it"
        raise wrong(files[one], f"{one}.explains", it)
    return result


@cache
def _model() -> TypeAdapter[Mapping[str, _FileEntry]]:
    return TypeAdapter(Annotated[Table[str, _FileEntry], keyed(_FileEntry)])


def _try(entry: Entry, file: str) -> None:
    asked = [each for case in entry.cases for each in (case.seen, case.also, case.differs) if each]
    for each in (*entry.patterns, *asked):
        try:
            check(each)
        except PatternError as error:
            raise wrong(file, f"{entry.id}.patterns", str(error), repr(each.source)) from None
    _check_samples(entry, file)
    _check_groups(entry, file)


def _check_samples(entry: Entry, file: str) -> None:
    for sample in entry.samples:
        if not any(each.regex.search(sample) for each in entry.patterns):
            it = "is matched by none of the patterns"
            raise wrong(file, f"{entry.id}.samples", it, sample)
    for each in entry.patterns:
        if not any(each.regex.search(sample) for sample in entry.samples):
            it = "matches none of the samples"
            raise wrong(file, f"{entry.id}.patterns", it, each.source)


def _check_groups(entry: Entry, file: str) -> None:
    groups = {name for each in entry.patterns for name in each.regex.groupindex}
    by_value = any(case.values is not None for case in entry.cases)
    if (entry.case_group is not None) != by_value or not {entry.case_group} - {None} <= groups:
        it = "must be a group that the cases have values of"
        raise wrong(file, f"{entry.id}.case_group", it)
    if not all(case.values or case.facts or case.seen or case.differs for case in entry.cases):
        raise wrong(file, f"{entry.id}.cases", "must each have values, facts, seen or differs")
    _check_names(entry.id, (entry.cause, entry.clause, entry.remedy, *_forms(entry)), groups, file)
    if entry.only_decided and not entry.cases:
        raise wrong(file, f"{entry.id}.only_decided", "needs cases that decide")
    for case in entry.cases:
        _check_case(case, entry, groups, file)


def _check_case(case: Case, entry: Entry, groups: set[str], file: str) -> None:
    id_, asked = entry.id, case.seen or case.differs
    shown_by = repr(asked.source) if asked else ""
    if case.differs and "one" not in case.differs.regex.groupindex:
        raise wrong(file, f"{id_}.differs", "must have the group `one`", shown_by)
    if case.also and not case.seen:
        raise wrong(file, f"{id_}.also", "must stand beside `seen`", case.also.source)
    own = groups.union(*(each.regex.groupindex for each in (asked, case.also) if each))
    if len(own & {"more", "less", "half", "last", "listed"}) not in (0, 2):
        it = "must compare the group `more` with `less`, `half`, `last` or `listed`"
        raise wrong(file, f"{id_}.seen", it, shown_by)
    about = frozenset[str]().union(*(asked_about(each) for each in (case.seen, case.also) if each))
    if not about <= groups:
        raise wrong(file, f"{id_}.seen", "asks for a group that no pattern has", shown_by)
    if isinstance(case, _FileCase) and asked and not _shown(case, entry):
        raise wrong(file, f"{id_}.seen", "does not match its seen_in", shown_by)
    own |= {"other"} if case.differs else set()
    _check_names(id_, (case.cause, *_forms(case)), own, file)


def _shown(case: _FileCase, entry: Entry) -> bool:
    lines = [" ".join(line.split()) for line in case.seen_in.splitlines()]  # as a log is read
    shown = "\n".join(lines)
    if case.differs is not None:
        return len({found["one"] for found in case.differs.regex.finditer(shown)}) > 1
    messages = [
        groups for sample in entry.samples for p in entry.patterns for groups in _groups(p, sample)
    ]
    return any(_decides(case, groups, shown) for groups in messages)


def _decides(case: Case, groups: Mapping[str, str | None], shown: str) -> bool:
    seen, also = (each.about(groups) if each else None for each in (case.seen, case.also))
    beside = _groups(also, shown) if also else [{}] if case.also is None else []
    return any(together(one, other) for one in _groups(seen, shown) for other in beside)


def _groups(asked: Pattern | None, text: str) -> list[dict[str, str | None]]:
    return [] if asked is None else [found.groupdict() for found in asked.regex.finditer(text)]


def _forms(it: Entry | Case) -> Iterator[str]:
    for step in it.fix:
        yield from dict.fromkeys(step.forms)


def _check_names(id_: str, texts: Sequence[str], groups: set[str], file: str) -> None:
    for text in texts:
        for name in re.findall(r"<([a-z_]+)>", text):
            if name not in groups:
                raise wrong(file, f"{id_}.fix", f"names <{name}>, which no pattern has")
