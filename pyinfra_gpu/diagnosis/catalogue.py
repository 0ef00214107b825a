"""The known failures of `causes/*.yaml`, checked, and packed as hosts get them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from pyinfra_gpu import own_cache
from pyinfra_gpu.on_host.diagnosis import causes


@cache
def catalogue() -> causes.Catalogue:
    """Return the package's own catalogue."""
    return causes.unpacked(for_hosts())


@cache
def for_hosts() -> bytes:
    """Return the content of `on_host/diagnosis/catalogue.json` in a program packed for hosts.

    Reading YAML takes a second, so the result is kept until the data or its reader changes.
    Raises CatalogueError, with file and entry, if the data is wrong.
    """
    folder = files("pyinfra_gpu.diagnosis") / "causes"
    names = sorted(each.name for each in folder.iterdir() if each.name.endswith(".yaml"))
    texts = {name.removesuffix(".yaml"): (folder / name).read_bytes() for name in names}

    def made() -> bytes:
        import yaml

        sections = {name: yaml.safe_load(text) for name, text in texts.items()}
        causes.read(sections)
        return causes.packed(sections)

    reader = (files("pyinfra_gpu.on_host.diagnosis") / "causes.py").read_bytes()
    named = [part for name, text in texts.items() for part in (name.encode(), text)]
    return own_cache.kept("catalogue", [reader, *named], made)
