"""The catalogue as hosts get it, beside the programs that match it."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from pyinfra_gpu import own_cache
from pyinfra_gpu.diagnosis.catalogue import catalogue, own_texts
from pyinfra_gpu.on_host.diagnosis.entries import packed

CODE = (
    "diagnosis/catalogue.py",
    "diagnosis/host_facts.py",
    "on_host/diagnosis/entries.py",
    "on_host/diagnosis/host_facts.py",
    "on_host/diagnosis/patterns.py",
    "on_host/diagnosis/steps.py",
    "stacks/reading.py",
)
"""What makes the packed form of the data; `tests/unit/diagnosis/test_bundled.py` holds that."""


@cache
def for_hosts() -> bytes:
    """Return the content of `on_host/diagnosis/catalogue.json` in a program packed for hosts.

    Every run compares hosts' programs with it. To read the data, check it and compile its patterns
    takes a fifth of a run with nothing to do; so the result is kept for as long as they are as they
    were. Raises StacksError as `catalogue` does.
    """
    code = [(files("pyinfra_gpu") / path).read_bytes() for path in CODE]
    data = [f"{layer}\n{text}".encode() for layer, text in own_texts().items()]
    return own_cache.kept("catalogue", [*code, *data], lambda: packed(catalogue()))
