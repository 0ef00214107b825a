"""The catalogue as it is matched: what hosts get beside their programs, and what is read here."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from pyinfra_gpu import own_cache
from pyinfra_gpu.on_host.diagnosis.entries import LAYERS, Catalogue, packed, unpacked

CODE = (
    "diagnosis/bundled.py",
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
def catalogue() -> Catalogue:
    """Return the package's own catalogue as hosts get it: without samples and sources.

    To read that takes a fifth of the second that the data as people write it takes. Raises
    StacksError as `diagnosis.catalogue` does.
    """
    return unpacked(for_hosts())


def own_texts() -> dict[str, str]:
    """Return the package's own data: layer -> its file's text."""
    folder = files("pyinfra_gpu.diagnosis") / "catalogue"
    return {layer: (folder / f"{layer}.yaml").read_text(encoding="utf-8") for layer in LAYERS}


@cache
def for_hosts() -> bytes:
    """Return the content of `on_host/diagnosis/catalogue.json` in a program packed for hosts.

    Every run compares hosts' programs with it. To read the data and check it takes a fifth of a
    run with nothing to do; so the result is kept for as long as they are as they were. Raises
    StacksError as `diagnosis.catalogue` does.
    """
    code = [(files("pyinfra_gpu") / path).read_bytes() for path in CODE]
    data = [f"{layer}\n{text}".encode() for layer, text in own_texts().items()]
    return own_cache.kept("catalogue", [*code, *data], _made)


def _made() -> bytes:
    from pyinfra_gpu.diagnosis.catalogue import catalogue as written  # with pydantic and YAML

    return packed(written())
