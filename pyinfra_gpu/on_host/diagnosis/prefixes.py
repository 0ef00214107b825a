"""What launchers, loggers, containers and the kernel put before a message."""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST = 6  # container, label, time, rank, logger: more is not a prefix any more

LABEL = re.compile(
    r"[ ]{0,6}(?!\[(?:rank|default)\d)(?:(?P<label>[\w.@-]{1,60}|[Rr]ank[ ]\d{1,5})[:>]"
    r"|[\[(](?P<boxed>[A-Za-z][\w.-]{0,59}|\d{1,5}"
    r"|(?:[Rr]ank|[Hh]ost|[Nn]ode|[Pp]ane|[Tt]erminal|[Ww]indow)[ :=]{1,2}\d{1,5})[\])]:?)[ ]"
)
"""`srun --label` ("1: "), pdsh ("node03: "), scripts ("[node03] "); other words look the same."""

WRITER = re.compile(
    r"(?:\[(?P<host>[A-Za-z][\w.-]{0,59})\]|(?P<task>\d{1,5}):|(?P<name>[A-Za-z][\w.-]{0,59}):)[ ]"
)
"""What may be a label on some lines only: "[node-a] " as scripts put it, `srun --label`, pdsh."""

# Every part is bounded, so that a line of any length costs the same.
_DATE = r"\d{4}[-/]\d\d[-/]\d\d[T_ ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_MONTH_DAY = r"[A-Z][a-z]{2}[ ]{1,2}\d{1,2}[ ]\d\d:\d\d:\d\d"
_WORD = r"[\w./@-]{1,64}"
_PREFIX = re.compile(
    rf"""
    # torchrun --tee, Open MPI, PyTorch's own
    \[rank(?P<rank>\d{{1,5}})\]:[ ]?
  | \[?[Rr]ank[ :=]{{0,2}}(?P<said>\d{{1,5}})\]?[ ]\|[ ]
  | \[default(?P<local>\d{{1,4}})\]:[ ]?
  | \[[\w.@-]{{1,80}},(?P<mpi>\d{{1,5}})\]<std(?:out|err)>:[ ]?
    # clocks
  | [\[(]?{_DATE}[\])]?:?[ ]{{1,4}}
  | \[?\d\d:\d\d:\d\d(?:[.,]\d{{1,9}})?\]?[ ]
  | \[(?:\d{{4}}-\d\d-\d\d[ ])?\d\d:\d\d\][ ]
  | \[\d\d/\d\d/\d\d[ ]\d\d:\d\d:\d\d\][ ]
  | [A-Z][a-z]{{2}}[ ]{_MONTH_DAY}[ ]\d{{4}}(?=\[)
    # journald, syslog, the kernel
  | {_MONTH_DAY}[ ](?P<host>{_WORD})[ ]{_WORD}(?:\[\d{{1,8}}\])?:[ ]
  | (?P<named>{_WORD})[ ](?:kernel|{_WORD}\[\d{{1,8}}\]):[ ]
  | \[[ ]{{0,10}}\d{{1,10}}\.\d{{3,9}}\][ ]
  | \[[A-Z][a-z]{{2}}[ ]{_MONTH_DAY}[ ]\d{{4}}\][ ]
  | kernel:[ ]
    # containers: Kubernetes' files, kubectl logs --prefix, docker compose
  | std(?:out|err)[ ][FP][ ]
  | \[pod/(?P<pod>[\w./-]{{1,120}})\][ ]
  | (?P<container>[\w.-]{{1,60}})[ ]{{0,20}}\|(?:[ ]|$)
    # BuildKit: the number of its step and the seconds since that began
  | \#\d{{1,4}}[ ]\d{{1,6}}\.\d{{1,4}}(?:[ ]|$)
    # loggers: glog's, PyTorch's, vLLM's, loguru's; Ray's workers
  | \[?[IWEF]\d{{3,4}}[ ]\d\d:\d\d:\d\d[.\d]{{0,12}}[ ]{{1,2}}(?:\d{{1,8}}[ ])?
    [\w/.-]{{1,120}}:\d{{1,6}}\][ ]?
  | \[[IWEF][ ][\w/.-]{{1,120}}:\d{{1,6}}\][ ]
  | (?:INFO|DEBUG|WARNING|ERROR)[ ]\d\d-\d\d[ ]\d\d:\d\d:\d\d[ ]
    (?:\[?[\w/.]{{1,80}}:\d{{1,6}}\][ ]?)?
  | \|[ ](?:TRACE|DEBUG|INFO|SUCCESS|WARNING|ERROR|CRITICAL)[ ]{{1,5}}\|[ ][\w.<>:]{{1,120}}[ ]-[ ]
  | \((?P<worker>[\w.=,:\ -]{{0,80}}pid=\d{{1,8}}[\w.=,:\ -]{{0,80}})\)[ ]
    # pytest's, MPICH's
  | E[ ]{{3,7}}(?=\w)
  | \[\d{{1,7}}\][ ]
    """,
    re.VERBOSE,
)


OF_A_HOST = re.compile(
    rf"(?:{_MONTH_DAY}|{_DATE})[ ](?P<host>{_WORD})[ ](?:kernel|{_WORD}\[\d{{1,8}}\]):[ ]"
)
"""A line of a journal or syslog."""


@dataclass(frozen=True, slots=True)
class Prefixes:
    """What stood before a message; the message begins at `end`."""

    end: int
    count: int
    rank: int | None
    label: str


def split(
    line: str, *, labelled: bool, writers: frozenset[str] = frozenset(), several: bool = False
) -> Prefixes:
    """Return what stands before the message of `line`.

    + labelled: whether a leading word and colon tells who wrote the line
    + writers: labels that do so in this log; see `WRITER`
    + several: whether the journals of several hosts stand in it, so that a host's name does so
    """
    rank = local = None
    label = ""
    place = count = 0
    if labelled and (found := LABEL.match(line)):
        place, label = found.end(), found["label"] or found["boxed"]
        count = 1
    elif (found := WRITER.match(line)) and found[0] in writers:
        place, label = found.end(), found["host"] or found["task"] or found["name"]
        count = 1
    for _ in range(MOST):
        found = _PREFIX.match(line, place)
        if not found:
            break
        place, count = found.end(), count + 1
        if said := found["rank"] or found["mpi"] or found["said"]:
            rank = int(said)
        elif found["local"]:
            local = int(found["local"])
        label = label or found["pod"] or found["container"] or found["worker"] or ""
        label = label or (several and (found["host"] or found["named"])) or ""
    # On one host the local rank is the rank; on several, a rank's own prefix says more.
    return Prefixes(place, count, rank if rank is not None else local, label)
