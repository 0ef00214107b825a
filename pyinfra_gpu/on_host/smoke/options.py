"""What is asked of a smoke test: one value, which travels whole, as JSON on a command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from .document import Mode

REHEARSAL_CPU: Final = "rehearsal-cpu"
REHEARSAL_1GPU: Final = "rehearsal-1gpu"
"""One GPU, and one NCCL rank on it: what the mode "gpu" becomes on a host of one GPU."""
GPU: Final = "gpu"
LARGEST_MIB = {GPU: 256, REHEARSAL_1GPU: 256, REHEARSAL_CPU: 64}
"""The largest all-reduce; on a CPU more would take half a minute. pyinfra_gpu.spec reads it too."""
MAX_RANKS = 16
"""Beyond that no pattern of bfloat16 values has an exact sum, see `collectives.period`."""


@dataclass(frozen=True)
class Options:
    """One smoke test, as a deploy asks for it; sizes are in MiB.

    + output: the verdict's file, an absolute path; a folder for everything else lies beside it
    + host: its name in the inventory
    + ranks: all of them; gpus: how many the host is declared to have, 0 for what is found
    + fingerprint: of what the result depends on; it goes into the verdict
    + compile: whether programs here are meant to use torch.compile
    + hosts: of a step of several hosts: host -> the number of its ranks; the first one serves
      torchrun's store, at `address` and `port`
    """

    mode: Mode
    output: str
    host: str = "localhost"
    ranks: int = 2
    gpus: int = 0
    deadline_s: int = 180
    allreduce_mib: int = 64
    fingerprint: str | None = None
    compile: bool = True
    hosts: Mapping[str, int] = field(default_factory=dict)
    address: str = ""
    port: int = 0

    @property
    def logs(self) -> Path:
        """The directory for everything that this test writes beside the verdict."""
        return Path(f"{self.output}.logs")

    @property
    def ranks_here(self) -> int:
        """How many of the ranks are on this host."""
        return self.hosts.get(self.host, self.ranks)

    def as_json(self) -> str:
        """Return it as one word of a command line."""
        return json.dumps(asdict(self))
