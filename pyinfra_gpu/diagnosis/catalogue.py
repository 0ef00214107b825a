"""The known failures of `causes/*.yaml`, packed as hosts get them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from pyinfra_gpu import own_cache
from pyinfra_gpu.on_host.diagnosis import causes


@cache
def catalogue() -> causes.Catalogue:
    """Return the package's own catalogue."""
    return causes.unpacked(for_hosts())


@cache
def for_hosts() -> bytes:
    """Return the content of `on_host/diagnosis/catalogue.json` in a program packed for hosts.

    Reading YAML takes a second, so the result is kept until the data changes.
    """
    code = (files("pyinfra_gpu.on_host.diagnosis") / "causes.py").read_bytes()
    return own_cache.kept("catalogue", [code, *_texts()], lambda: causes.packed(written()))


def written() -> dict[str, dict[str, Any]]:
    """Return the entries by name, as the files have them."""
    import yaml

    loaded = [yaml.safe_load(text) for text in _texts()]
    return {name: entry for section in loaded for name, entry in section.items()}


def _texts() -> list[bytes]:
    folder = files("pyinfra_gpu.diagnosis") / "causes"
    names = sorted(each.name for each in folder.iterdir() if each.name.endswith(".yaml"))
    return [(folder / name).read_bytes() for name in names]
