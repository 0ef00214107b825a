"""pyinfra's lines for each operation and host, folded: what changed nothing anywhere is not a line.

pyinfra 3.10 has no option for that, so it is a filter on its logger. Whatever it does not recognise
passes: with other words in a later pyinfra the lines would be back, and nothing would be lost.
"""

from __future__ import annotations

import logging
import re

from pyinfra import context, logger

from pyinfra_gpu.engine import journal
from pyinfra_gpu.host_names import FEW, brief
from pyinfra_gpu.text import without_escapes, wrapped

_HEADER = "--> "
_OPERATION = "--> Starting "
_TABLES = ("--> Detected changes:", "--> Results:")
_OF_A_HOST = re.compile(r"\[(?P<host>[^\]]+)\]\s+(?P<said>.*)")
_NOTHING = re.compile(r"Connected|No changes|Skipped|Ready: .*\.py")
_DONE = "Success"
_INDENT = " " * 4  # what pyinfra puts before a line that is no header


class Folded(logging.Filter):
    """Drops what says of a host that nothing happened, and the headers with nothing below them.

    Where this run has a table of ours, pyinfra's own tables of the same are left out. Of more than
    `FEW` hosts, those on which an operation succeeded are one line.
    """

    def __init__(self) -> None:
        super().__init__()
        self._header: logging.LogRecord | None = None
        self._in_table = False
        self._done: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a line is shown now; what was kept back for it is shown before it."""
        if record.levelno < logging.INFO:
            return True
        text = without_escapes(record.getMessage())
        if text.startswith(_HEADER):
            return self._is_shown_header(record, text)
        if record.levelno == logging.INFO and (self._in_table or self._is_folded(record, text)):
            return False
        self._show_header()
        return True

    def _is_shown_header(self, record: logging.LogRecord, text: str) -> bool:
        self._show_done(record)
        self._header = record if text.startswith(_OPERATION) else None
        self._in_table = text.startswith(_TABLES) and _has_table()
        return self._header is None

    def _is_folded(self, record: logging.LogRecord, text: str) -> bool:
        found = _OF_A_HOST.fullmatch(text)
        if found is None:
            return False
        if found["said"] == _DONE and _left_a_problem(found["host"]):
            return True
        if found["said"] == _DONE and _hosts() > FEW:
            self._done.append(found["host"])
            return True
        return bool(_NOTHING.fullmatch(found["said"]))

    def _show_header(self) -> None:
        if self._header is not None:
            header, self._header = self._header, None
            logger.callHandlers(header)

    def _show_done(self, like: logging.LogRecord) -> None:
        """Say on which hosts the operation before this header succeeded."""
        if not self._done:
            return
        self._show_header()
        told = f"{_DONE}: {brief(self._done)}"
        self._done = []
        lines = wrapped(told, _INDENT, f"{_INDENT}  ", whole_words=True)
        text = "\n".join(lines).removeprefix(_INDENT)
        record = logging.LogRecord(like.name, logging.INFO, like.pathname, 0, text, None, None)
        logger.callHandlers(record)


def fold() -> None:
    """Fold the lines of this run; further calls change nothing."""
    if not any(isinstance(each, Folded) for each in logger.filters):
        logger.addFilter(Folded())


def _has_table() -> bool:
    return _begun() and journal.current() is not None


def _left_a_problem(host: str) -> bool:
    book = journal.current() if _begun() else None
    return book is not None and book.has_problem(host)


def _hosts() -> int:
    return len(context.state.activated_hosts) if _begun() else 0


def _begun() -> bool:
    there: bool = context.ctx_state.isset()  # type: ignore[no-untyped-call]
    return there and context.state.initialised
