"""A person's mistake, or a host's state, that ends a command: one sentence, and no traceback."""

from __future__ import annotations


class TrainError(Exception):
    """What is wrong and what to do about it, in one sentence."""


class BusyError(TrainError):
    """Somebody else does the same at this moment."""


class DamagedError(TrainError):
    """The record of a run is not whole."""
