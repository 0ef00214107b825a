"""What a terminal shows of many hosts, laid out by rich; it obeys nothing that a host wrote."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from pyinfra_gpu.host_names import brief
from pyinfra_gpu.text import WIDTH, one_line, wrapped

T = TypeVar("T")
BLANK = Text("")
_LABEL = 17  # columns of "next deploy" and its like, with what is before and behind it


def printed(blocks: Sequence[RenderableType], width: int = WIDTH, *, coloured: bool = False) -> str:
    """Return the blocks as a terminal of this width shows them, without blanks at lines' ends.

    + coloured: for a terminal that knows colours
    """
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=coloured, highlight=False, emoji=False)
    console.print(Group(*blocks), crop=False)
    return re.sub(r" +$", "", file.getvalue(), flags=re.MULTILINE).rstrip("\n")


def safe(text: str) -> Text:
    """Return a text that a host may have written, on one line and without escape sequences."""
    return Text(one_line(text), overflow="fold")


@dataclass(frozen=True)
class Sentence:
    """A paragraph; its further lines are indented, and no word is broken: it may be a host's name.

    + mark: what is before the first line; + word, style: what of it is coloured, and how
    """

    text: str
    mark: str = ""
    indent: str = "  "
    word: str = ""
    style: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = wrapped(
            self.text, self.mark, self.indent, whole_words=True, width=options.max_width
        )
        text = Text("\n".join(lines), no_wrap=True, overflow="ignore")
        if self.word and (start := text.plain.find(self.word)) >= 0:
            text.stylize(self.style, start, start + len(self.word))
        yield text


def labelled(rows: Iterable[tuple[str, str]], indent: int) -> Table:
    """Return texts beside their labels.

    + indent: columns before each label
    """
    grid = Table.grid(expand=True)
    grid.add_column(width=_LABEL, no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    for label, text in rows:
        grid.add_row(Text(" " * indent) + safe(label), safe(text))
    return grid


def alike(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Return the items in groups of the same key, in the order in which the first of each came."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def joined(groups: Sequence[Sequence[RenderableType]]) -> list[RenderableType]:
    """Return all blocks, with an empty line between two groups unless both are a single line."""
    blocks: list[RenderableType] = []
    groups = [group for group in groups if group]
    for number, group in enumerate(groups):
        if number and max(len(groups[number - 1]), len(group)) > 1:
            blocks.append(BLANK)
        blocks += group
    return blocks


def head(names: Sequence[str], state: str, *, rehearsal: bool = False) -> str:
    """Return the line above a group of hosts: "ws1  as declared", "2 hosts changed: ws1, ws2"."""
    label = " (rehearsal)" if rehearsal else ""
    if len(names) == 1:
        return f"{one_line(names[0])}{label}  {state}"
    return f"{len(names)} hosts{label} {state}: {one_line(brief(names))}"


def counted(states: Sequence[str], rehearsals: int) -> str:
    """Return the line that says how many hosts there are in which state.

    + states: of each host, in the order in which they are to be told; + rehearsals: how many are
    """
    text = f"{len(states)} host{'s' if len(states) != 1 else ''}"
    if rehearsals:
        some = f"{rehearsals} of them " if rehearsals < len(states) else ""
        text += f" ({some}rehearsal)"
    counts = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
    return f"{text}: {', '.join(counts)}" if counts else "no host was looked at"


def said_once(texts: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Return each text once with the hosts it is about, in the order in which they came.

    + texts: (host, text), where the text may begin with the host's name
    """
    said: dict[str, list[str]] = {}
    for host, text in texts:
        hosts = said.setdefault(re.sub(rf"(^|; ){re.escape(host)}: ", r"\1", text), [])
        if host not in hosts:
            hosts.append(host)
    return list(said.items())
