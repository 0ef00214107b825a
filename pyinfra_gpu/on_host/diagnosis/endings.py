"""Where a log says that a program ended well, and what that program had got over until then."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .log import TYPED, Stream

_LAST = 3  # lines in which a run says that it has finished
_NOTICES = 6  # and an installer: pip's notices of a newer pip follow
_LOOKED_AT = 300  # characters of a line
_STATUS = re.compile(
    r"[$#%\u276f>] echo [\w=: \"']{0,20}\$\?"
)  # typed: the status of what ended before
_ZERO = re.compile(r"[\w=: ]{0,20}\b0$")

# What trainers and tests say last. "epoch 5/5" is the last one, once its bar is gone.
_TRAINED = (
    r"\b[Tt]raining (?:is |was |has )?(?:complete|completed|done|finished|ended)\b(?! with error)"
    # The Trainer's last line, DeepSpeed's, Lightning's, YOLO's, fairseq's, Megatron's.
    r"|'train_runtime': \d|\bexits successfully\b"
    r"|Trainer\.fit` stopped: `max_(?:epochs|steps|time)=[^`]{1,40}` reached"
    r"|\b\d{1,6} epochs completed in \d|\b[Dd]one training in \d|\bafter training is done\]"
    r"|\b[Tt]otal training time:? \d|\bOPTIMIZATION DONE\b|^Results saved to \S"
    r"|\b[Ee]poch:? ?\[?(?P<of>\d{1,6}) ?/ ?(?P=of)\b(?!.{0,80}\d%\|)"
    r"|\b[Ww]rote (?:model_)?final\b|\b(?:best|final|last|model_final)\.(?:pt|pth|ckpt|safetensors)"
    r" (?:is |was )?saved\b|\b[Ss]aved (?:the )?(?:final|best|trained) (?:model|weights|adapter)\b"
    r"|\b[Ff]inal (?:model|weights|checkpoint|adapter) (?:is |was )?saved\b"
    # pytest's last line, unittest's, ctest's, googletest's, that of NVIDIA's tests of NCCL.
    r"|^[= ]{0,40}\d{1,5} passed\b[^\n]{0,60} in [\d.]{1,9}s|^OK(?: \([\w=, ]{1,60}\))?$"
    r"|^(?:[Aa]ll )?(?:[Ss]elf-?|[Ss]moke[ -])?(?:tests?|checks?)(?: have| has)? passed\b"
    r"|\b100% tests passed\b|^\[ {2}PASSED {2}\] \d|^# Out of bounds values : 0 OK"
)
# What launchers, shells, schedulers and services say of a program's end.
_ENDED = (
    r"\bworker group successfully finished\b|\bWorkerState\.SUCCEEDED\b|^[Dd]one\b"
    r"|\b(?:finished|completed) successfully\b|\bsuccessfully (?:finished|completed)\b"
    r"|^exit(?: ?(?:code|status))?[:= ]{1,3}0$|\bCOMPLETED 0:0\b|\brc=0$|\bJobState=COMPLETED\b"
    r"|\bState: COMPLETED \(exit code 0\)|\bexited with code 0$"
    r"|\b[Ee]xit(?:ed)? (?:status|code):? 0$"
    r"|\bfinished with exit code 0\b"
    r"|^Job '[\w-]{1,60}' succeeded$|^Job succeeded$"
)
_FINISHED = re.compile(f"{_TRAINED}|{_ENDED}")
_TRAINED_WELL = re.compile(_TRAINED)
_INSTALLED = re.compile(
    # pip, setup.py, uv's list, conda, mamba.
    r"^Successfully (?:installed|built|uninstalled) \S|^Finished processing dependencies for \S"
    r"|^[+~] [\w.-]{1,60}==\d\S{0,40}$|^(?:Installed|Audited) \d{1,5} packages? in \d"
    r"|^(?:Executing|Verifying) transaction: .{0,40}done|^# \$ (?:conda|mamba) deactivate$"
    r"|^Transaction finished$"
    # DKMS, NVIDIA's installers, a package manager; another one ends so without a module, too.
    r"|^Complete!$"
    r"|\bDKMS: install completed|^dkms autoinstall on \S{1,60} succeeded for "
    r"|^(?:-> )?Installation of the (?:kernel module for the )?NVIDIA .{1,120} is now complete"
    # CMake, ninja, setuptools, cargo, bazel.
    r"|^-- (?:Build files have been written to: |Installing: )|^\[100%\] Built target \S"
    r"|^\[(?P<last>\d{1,6})/(?P=last)\] \S|^Finished [`']?release|\bBuild completed successfully\b"
    # docker, Apptainer.
    r"|^Successfully tagged \S|\bnaming to \S{1,200} (?:\d{1,4}\.\d{1,3}s )?done\b"
    r"|^Status: (?:Downloaded newer image|Image is up to date) for |\bBuild complete: \S"
)
# torchrun began its ranks anew, and they came to their end: what ended them before is over.
_RESTARTS = re.compile(r"attempts left; will restart worker group")
_GROUP_ENDED = re.compile(r"worker group successfully finished|WorkerState\.SUCCEEDED")


_Whose = tuple[int, int | None, bool]
"""A source, a stream of it by its number (None: all of them), and whether exceptions are over."""


@dataclass(frozen=True)
class GoodEnds:
    """Where programs ended well.

    + last: the number of the last line that says so; 0 if none does
    + over: the numbers of the first and the last line of each program up to its good end, in order
    """

    last: int = 0
    over: Mapping[_Whose, Sequence[tuple[int, int]]] = field(default_factory=dict)

    def got_over(self, stream: Stream, number: int, *, exception: bool) -> bool:
        """Tell whether the program that wrote this line went on with it to a good end."""
        source = _source(stream)
        return any(
            _within(self.over.get((source, whose, exceptions), ()), number)
            for whose in (id(stream), None)
            for exceptions in ((True,) if exception else (True, False))
        )


def _within(ranges: Sequence[tuple[int, int]], number: int) -> bool:
    place = bisect_right(ranges, number, key=lambda each: each[0])
    return place > 0 and number <= ranges[place - 1][1]


def finished(stream: Stream) -> bool:
    """Tell whether a run says in its last lines that it has finished."""
    return any(_FINISHED.search(text[:_LOOKED_AT]) for text in stream.shown[-_LAST:])


def good_ends(streams: Sequence[Stream]) -> GoodEnds:
    """Return where programs ended well, before the next was typed."""
    typed: dict[int, list[int]] = {}
    for stream in streams:
        begins = typed.setdefault(_source(stream), [])
        begins += [stream.lines[place].number for place in stream.typed]
    for begins in typed.values():
        begins.sort()
    over: dict[_Whose, list[tuple[int, int]]] = {}
    last = 0
    for stream in streams:
        for first, command in _commands(stream, typed[_source(stream)]):
            last = max(last, _end(command))
            for whose, end in _overs(stream, command).items():
                over.setdefault(whose, []).append((first, end))
    return GoodEnds(last, {whose: sorted(ranges) for whose, ranges in over.items()})


_Command = list[tuple[int, str]]
"""Numbers and texts of the lines from one that was typed, if there is one, to the next."""


def _commands(stream: Stream, typed: Sequence[int]) -> Iterator[tuple[int, _Command]]:
    """Yield the number of the line at which each command begins, and what the stream has of it."""
    command: _Command = []
    begun = 0
    for line, text in zip(stream.lines, stream.shown, strict=True):
        place = bisect_right(typed, line.number)
        if place != begun and command:
            yield (typed[begun - 1] if begun else 0), command
            command = []
        begun = place
        command.append((line.number, text[:_LOOKED_AT]))
    if command:
        yield (typed[begun - 1] if begun else 0), command


def _end(command: _Command) -> int:
    """Return the number of the line that says that the command ended well; 0 if none does."""
    printed = _printed(command)
    asked = len(printed) < len(command) and _STATUS.search(command[0][1])
    if asked and (ends := [number for number, text in printed[:1] if _ZERO.match(text)]):
        return ends[0]
    return max((number for number, text in printed[-_LAST:] if _FINISHED.search(text)), default=0)


def _printed(command: _Command) -> _Command:
    return command[1:] if TYPED.match(command[0][1]) else command


def _overs(stream: Stream, command: _Command) -> dict[_Whose, int]:
    """Return up to which line all is over by the last words of a command.

    They are a trainer's, a test's, an installer's or torchrun's. What a shell says of an end is not
    asked: a script goes on after what failed in it.
    """
    source = _source(stream)
    printed = _printed(command)
    ends: dict[_Whose, int] = {}
    for number, text in printed[-_LAST:]:
        if _TRAINED_WELL.search(text):
            ends[source, id(stream), False] = number
        if _GROUP_ENDED.search(text) and any(_RESTARTS.search(line) for _, line in printed):
            ends[source, None, True] = number
    for number, text in printed[-_NOTICES:]:
        if _INSTALLED.search(text):
            ends[source, id(stream), True] = number
    return ends


def _source(stream: Stream) -> int:
    return stream.lines[0].source if stream.lines else 0
