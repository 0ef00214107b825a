"""The known failures of `causes/*.yaml`, packed as hosts get them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from pyinfra_gpu.on_host.diagnosis import causes


@cache
def catalogue() -> causes.Catalogue:
    """Return the package's own catalogue."""
    return causes.unpacked(for_hosts())


@cache
def for_hosts() -> bytes:
    """Return the content of `on_host/diagnosis/catalogue.json` in a program packed for hosts."""
    return causes.packed(written())


def written() -> dict[str, dict[str, Any]]:
    """Return the entries by name, as the files have them."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast
    folder = files("pyinfra_gpu.diagnosis") / "causes"
    found = sorted((x for x in folder.iterdir() if x.name.endswith(".yaml")), key=lambda x: x.name)
    loaded = [yaml.load(each.read_bytes(), loader) for each in found]  # noqa: S506 - both are safe
    return {name: entry for section in loaded for name, entry in section.items()}
