"""One whole smoke test on this machine's GPUs, as on a host, and the evidence it leaves."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyinfra_gpu.stacks.bundle import smoke_bundle

_FOLDER = Path(__file__).parent / "evidence"


@dataclass(frozen=True)
class Run:
    """How one run ended."""

    code: int
    verdict: dict[str, Any]
    printed: str

    def checks(self, *statuses: str) -> dict[str, str]:
        """Return id -> detail of the checks with one of `statuses`."""
        found = [check for check in self.verdict["checks"] if check["status"] in statuses]
        return {check["id"]: check["detail"] for check in found}


def run(folder: Path, mode: str, *arguments: str, **variables: str) -> Run:
    """Run the packed smoke test with this interpreter, as the deploy does."""
    bundle, output = folder / "smoke_test.pyz", folder / "verdict.json"
    bundle.write_bytes(smoke_bundle())
    command = [sys.executable, str(bundle), "--mode", mode, "--output", str(output), *arguments]
    environment = {**os.environ, **variables}
    # what the tests themselves need would be reported as a stray
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    print(done.stdout, done.stderr)
    return Run(done.returncode, json.loads(output.read_text()), done.stdout)


def keep(made: Run) -> Path:
    """Write what was measured, beside what was expected, as evidence; return the file."""
    verdict = made.verdict
    name = verdict["gpus"][0]["name"] if verdict["gpus"] else "no GPU"
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower().removeprefix("nvidia ")).strip("-")
    folder = Path(os.environ.get("GPU_EVIDENCE", _FOLDER))
    folder.mkdir(parents=True, exist_ok=True)
    day = time.strftime("%Y-%m-%d", time.gmtime())
    path = folder / f"{len(verdict['gpus'])}x-{slug}-{verdict['mode']}-{day}.json"
    kept = ("mode", "status", "proof", "started", "duration_s", "stages", "gpus", "metrics")
    document = {
        "exit_code": made.code,
        "kernel": platform.release(),
        "driver": verdict["gpus"][0]["driver"] if verdict["gpus"] else None,
        "software": {key: verdict["software"][key] for key in ("python", "torch")},
        **{key: verdict[key] for key in kept},
        "thresholds": verdict["checks"],
        "xids_new": verdict["xids_new"],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path
