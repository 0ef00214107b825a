"""Pack what `tests/gpu/run` needs on a machine without this project's packages: `make gpu-kit`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

from pyinfra_gpu.facts.probe import asked_of
from pyinfra_gpu.on_host import probe_program, proofs
from pyinfra_gpu.spec import Paths
from pyinfra_gpu.stacks.bundle import smoke_bundle


def main(folder: Path) -> None:
    """Write the probe, the proofs and the smoke test into `folder`, which is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "proofs").mkdir(parents=True)
    asked = asked_of(Paths(prefix="/opt/pyinfra-gpu", name="training"), nvidia=True)
    (folder / "probe.py").write_text(probe_program("look", asked))
    for proof in get_args(proofs.Proof):
        (folder / f"proofs/{proof}.json").write_text(json.dumps(proofs.command(proof, {})))
    (folder / "smoke_test.pyz").write_bytes(smoke_bundle())
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True
    ).stdout.strip()
    (folder / "about.json").write_text(json.dumps({"commit": commit}) + "\n")
    print(f"packed into {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
