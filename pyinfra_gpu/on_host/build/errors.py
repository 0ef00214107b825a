"""Why a build cannot go on: one sentence, and the lines of the log that show it."""

from __future__ import annotations


class BuildError(Exception):
    """A build stopped.

    + sentence: what was found, what was expected, what helps
    + lines: of the log, the first error first; the controller explains them
    + quoted: the line of the log with which the sentence ends, where it quotes one
    """

    def __init__(self, sentence: str, lines: tuple[str, ...] = (), quoted: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.lines = lines
        self.quoted = quoted


class StoppedError(Exception):
    """Somebody asked the build to end: a shutdown, or `systemctl stop`."""
