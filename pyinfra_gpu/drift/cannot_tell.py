"""A reason to stop that is a lack of knowledge, which is neither health nor drift."""

from __future__ import annotations


class CannotTell(str):
    """A sentence that says what could not be read on a host, and why."""

    __slots__ = ()
