"""The catalogue as hosts get it, beside the programs that match it."""

from __future__ import annotations

from functools import cache

from pyinfra_gpu.diagnosis.catalogue import catalogue
from pyinfra_gpu.on_host.diagnosis.entries import packed


@cache
def for_hosts() -> bytes:
    """Return the content of `on_host/diagnosis/catalogue.json` in a program packed for hosts.

    Raises StacksError as `catalogue` does.
    """
    return packed(catalogue())
