"""Why a lock cannot be made."""

from __future__ import annotations


class LockingError(Exception):
    """No lock can be made; the message is one sentence with what to do."""
