"""pyinfra's lines of operations that change nothing, left out.

pyinfra has no option for that, so it is a filter on its logger. Whatever it does not recognise
passes: with other words in a later pyinfra the lines would be back, and nothing would be lost.
"""

from __future__ import annotations

import logging
import re

from pyinfra import context, logger

from pyinfra_gpu.engine import journal
from pyinfra_gpu.text import without_escapes

_OPERATION = "--> Starting "
_TABLES = ("--> Detected changes:", "--> Results:")
_NOTHING = re.compile(r"\[[^\]]+\]\s+(Connected|No changes|Skipped|Ready: .*\.py)")
_SUCCESS = re.compile(r"\[(?P<host>[^\]]+)\]\s+Success")


class Folded(logging.Filter):
    """Drops what says that nothing happened, and the headers with nothing below them.

    Where this run has a table of ours, pyinfra's own tables of the same are left out.
    """

    _header: logging.LogRecord | None = None
    _in_table = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a line is shown now; the header that it belongs to is shown before it."""
        if record.levelno < logging.INFO:
            return True
        text = without_escapes(record.getMessage())
        if text.startswith("--> "):
            self._header = record if text.startswith(_OPERATION) else None
            self._in_table = text.startswith(_TABLES) and _book() is not None
            return not (self._header or self._in_table)
        if record.levelno == logging.INFO and (self._in_table or _says_nothing(text)):
            return False
        if self._header is not None:
            header, self._header = self._header, None
            logger.callHandlers(header)
        return True


def fold() -> None:
    """Fold the lines of this run; further calls change nothing."""
    if not any(isinstance(each, Folded) for each in logger.filters):
        logger.addFilter(Folded())


def _says_nothing(text: str) -> bool:
    if found := _SUCCESS.fullmatch(text):  # what came before it says that it was none
        book = _book()
        return book is not None and book.has_problem(found["host"])
    return _NOTHING.fullmatch(text) is not None


def _book() -> journal.Journal | None:
    begun = context.ctx_state.isset() and context.state.initialised  # type: ignore[no-untyped-call]
    return journal.current() if begun else None
