"""Builds of torch on throwaway hosts, from the lab's stand-in for PyTorch's tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from running import Deployer

from pyinfra_gpu_rehearsal import Lab, LabHost
from pyinfra_gpu_rehearsal.stand_in.serving import Served

HOST, BESIDE = "gpu1", "gpu2"
PREFIX = "/opt/pyinfra-gpu"
BUILD = f"{PREFIX}/build"
STEPS = 302  # compiles and links of the stand-in


class Builder(Deployer):
    """Keeps its wheels apart from this user's own."""

    def environment(self, report: Any) -> dict[str, str]:
        return {**super().environment(report), "XDG_CACHE_HOME": str(self.folder)}


def building(lab: Lab, folder: Any, tree: Served, *data: str) -> Builder:
    """Return what deploys with a torch that is built from this tree."""
    declared = (
        "smoke=skip",
        "environment_dynamo=false",
        "pytorch_source=source",
        "training_requirements=null",
        f"pytorch_git_url={tree.git_url}",
        f"pytorch_commit={tree.commit}",
        f"pytorch_extra_index_url={tree.index_url}",
    )
    return Builder(lab, folder, data=(*declared, *data))


@dataclass
class Build:
    """What there is of a build on a host."""

    host: LabHost

    def phase(self) -> str:
        """Return the phase in which the build is, or ended; empty where there was none."""
        said = self.host.run(f"cat {BUILD}/building", check=False).stdout.split()
        return said[1] if said else ""

    def compiled(self) -> int:
        """Return how many objects stand in the build's folder."""
        found = self.host.run(f"find {BUILD}/source/build -name '*.o' -size +0", check=False)
        return len(found.stdout.split())

    def finished(self) -> int:
        """Return how many files ninja compiled and linked in all its runs; it notes each."""
        log = f"{BUILD}/source/build/.ninja_log"
        return int(self.host.run(f"grep -cE '\\.(o|a|so)\\s' {log}").stdout)

    def reached(self, phase: str, objects: int = 0) -> bool:
        """Tell whether the build is in this phase, with so many objects."""
        return self.phase() == phase and self.compiled() >= objects


def hits(host: LabHost) -> int:
    """Return how many files of the build ccache had when they were asked for."""
    stats = host.run(f"CCACHE_DIR={BUILD}/ccache ccache --print-stats").stdout.split()
    return int(stats[stats.index("direct_cache_hit") + 1])
