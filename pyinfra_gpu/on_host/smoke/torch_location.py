"""Where `import torch` would find torch, and which version lies there, without importing it."""

from __future__ import annotations

import re
import sys
import sysconfig
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path


@dataclass(frozen=True)
class TorchLocation:
    """What this interpreter would import, and where its own packages lie."""

    found: str | None
    """The directory of the torch that would be imported, None if there is none."""
    version: str | None
    """Its version as written in its version.py, None if it cannot be read."""
    packages: str
    """The directory of this interpreter's own packages, where torch should be."""

    @property
    def own(self) -> bool:
        """Return whether the torch found is this environment's own."""
        return self.found is not None and Path(self.found).parent == Path(self.packages)


def locate(search: list[str] | None = None) -> TorchLocation:
    """Look along `search`, by default this process's own path with whatever PYTHONPATH added."""
    spec = PathFinder.find_spec("torch", sys.path if search is None else search)
    packages = str(Path(sysconfig.get_path("platlib")).resolve())
    if spec is None or not spec.origin:
        return TorchLocation(None, None, packages)
    found = Path(spec.origin).resolve().parent
    return TorchLocation(str(found), _version(found), packages)


def _version(directory: Path) -> str | None:
    try:
        text = (directory / "version.py").read_text(errors="replace")
    except OSError:
        return None
    match = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return match[1] if match else None
