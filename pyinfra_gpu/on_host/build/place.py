"""Where everything of a build is, below its folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """One build's folder.

    + root: holds plan, state and log
    """

    root: Path

    @property
    def state(self) -> Path:
        """How far the build is, for whoever asks."""
        return self.root / "state.json"

    @property
    def pid(self) -> Path:
        """Number of the process that builds; of one that is gone where none does."""
        return self.root / "pid"

    @property
    def lock(self) -> Path:
        """Held by the process that builds."""
        return self.root / "lock"

    @property
    def reserve(self) -> Path:
        """Holds some room of the disk, so that what failed can be told where there is none left."""
        return self.root / ".reserve"

    @property
    def log(self) -> Path:
        """All that the programs of the build print."""
        return self.root / "log.txt"

    @property
    def source(self) -> Path:
        """The tree, only when it is whole."""
        return self.root / "source"

    @property
    def part(self) -> Path:
        """The tree as long as it is fetched."""
        return self.root / "source.part"

    @property
    def build(self) -> Path:
        """CMake's folder, where PyTorch's own build has it."""
        return self.source / "build"

    @property
    def environment(self) -> Path:
        """The virtual environment of the tools."""
        return self.root / "tools"

    @property
    def proof(self) -> Path:
        """The clean virtual environment in which the wheel is proven."""
        return self.root / "proof"

    @property
    def made(self) -> Path:
        """Where the backend puts the wheel, before it is known to be the declared one."""
        return self.root / "dist"

    @property
    def wheels(self) -> Path:
        """Holds the wheel that was built, and no other."""
        return self.root / "wheels"

    @property
    def manifest(self) -> Path:
        """What the wheel is: written when it is proven."""
        return self.root / "wheel.json"

    @property
    def ccache(self) -> Path:
        """What ccache keeps, where there is ccache."""
        return self.root / "ccache"
