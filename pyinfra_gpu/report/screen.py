"""What a terminal shows of many hosts, laid out by rich; it obeys nothing that a host wrote.

A check, a plan, a run and its smoke tests are all the same: for each host a state and rows below
it. Hosts of which the same is shown are shown once.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from pyinfra_gpu.host_names import brief, natural
from pyinfra_gpu.text import WIDTH, one_line

BLANK = Text("")
VARIES = "\0"
"""Stands in the text of a row for what varies."""

_LABEL = 17  # columns of "next deploy" and its like, with what is before and behind it


@dataclass(frozen=True, kw_only=True)
class Row:
    """One thing that is shown of a host.

    + label: what stands before the text; None: the text has the whole width
    + style: how it is coloured on a terminal, up to its first colon, where it has no label
    + varies: what may differ among hosts that are shown together, such as a moment: both ends of
      it stand where the text has VARIES
    + verbatim: to be copied, and never broken; that of the first host is shown
    """

    text: str
    label: str | None = None
    indent: int = 2
    style: str = ""
    varies: str = field(default="", compare=False)
    verbatim: str = field(default="", compare=False)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What is shown of a host: a state, and rows below it.

    + long: whether the state is a sentence of its own, before which the names stand
    """

    name: str
    state: str
    style: str = ""
    rehearsal: bool = False
    long: bool = False
    rows: tuple[Row, ...] = ()


def printed(blocks: Sequence[RenderableType], width: int = WIDTH, *, coloured: bool = False) -> str:
    """Return the blocks as a terminal of this width shows them, without blanks at lines' ends.

    + coloured: for a terminal that knows colours
    """
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=coloured, highlight=False, emoji=False)
    console.print(Group(*blocks), crop=False)
    return re.sub(r" +$", "", file.getvalue(), flags=re.MULTILINE).strip("\n")


def line(text: str, first: str = "", word: str = "", style: str = "") -> RenderableType:
    """Return a text, whose further lines stand below its beginning.

    + first: what stands before it; + word, style: what of it is coloured, and how
    """
    shown = Text(one_line(text), overflow="fold")
    if word:
        shown.highlight_words([word], style)
    if not first:
        return shown
    grid = Table.grid(expand=True)
    grid.add_column(width=len(first), no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    grid.add_row(Text(first), shown)
    return grid


def hosts(shown: Iterable[Shown], *, apart: bool = False) -> list[RenderableType]:
    """Return a block for each group of hosts of which the same is shown, in the order they came.

    + apart: each host by itself
    """
    groups: dict[object, list[Shown]] = {}
    for host in shown:
        same = (host.name if apart else "", host.state, host.rehearsal, host.rows)
        groups.setdefault(same, []).append(host)
    blocks: list[RenderableType] = []
    length = 0
    for group in groups.values():
        block = [_head(group), *_rows(group)]
        if blocks and max(length, len(block)) > 1:  # single lines stay together
            blocks.append(BLANK)
        blocks += block
        length = len(block)
    return blocks


def _head(group: Sequence[Shown]) -> RenderableType:
    first, names = group[0], brief(host.name for host in group)
    label = " (rehearsal)" if first.rehearsal else ""
    text = f"{names}{label}  {first.state}"
    if len(group) > 1 and not first.long:
        text = f"{len(group)} hosts{label} {first.state}: {names}"
    return line(text, word=first.state.partition(",")[0] if first.style else "", style=first.style)


def _rows(group: Sequence[Shown]) -> Iterator[RenderableType]:
    for same in zip(*(host.rows for host in group), strict=True):
        row, ends = same[0], sorted({each.varies for each in same}, key=natural)
        text = row.text.replace(VARIES, " to ".join(ends[:1] + ends[1:][-1:]))
        blanks = " " * row.indent
        if row.label is None:
            yield line(text, blanks, text.partition(":")[0] if row.style else "", row.style)
        else:
            yield line(text, f"{blanks}{one_line(row.label)}".ljust(_LABEL))
        if row.verbatim:
            whole = f"{blanks}  {one_line(row.verbatim)}"
            yield Text(whole, no_wrap=True, overflow="ignore")


def remarks(texts: Iterable[tuple[str, str, str]]) -> list[RenderableType]:
    """Return each text once with the hosts that it is about, below an empty line; "! " first.

    + texts: (mark, host, text), where the text may begin with the host's name
    """
    said: dict[tuple[str, str], set[str]] = {}
    for mark, host, text in texts:
        plain = re.sub(rf"(^|; ){re.escape(host)}: ", r"\1", text)
        said.setdefault((mark, plain), set()).add(host)
    ordered = sorted(said, key=lambda each: each[0] != "! ")
    lines = [line(f"{brief(said[mark, text])}: {text}", mark) for mark, text in ordered]
    return [BLANK, *lines] if lines else []


def counted(states: Sequence[str], rehearsals: int) -> str:
    """Return the line that says how many hosts there are in which state.

    + states: of each host, in the order to be shown; + rehearsals: how many are simulated
    """
    text = f"{len(states)} host{'s' if len(states) != 1 else ''}"
    if rehearsals:
        some = f"{rehearsals} of them " if rehearsals < len(states) else ""
        text += f" ({some}rehearsal)"
    counts = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
    return f"{text}: {', '.join(counts)}" if counts else "no host was looked at"
