"""The launcher on this machine: a prefix of its own, with a checkout, called as its owner does."""

from __future__ import annotations

import getpass
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from pyinfra_gpu import on_host
from pyinfra_gpu.diagnosis.catalogue import for_hosts


@cache
def bundle() -> bytes:
    return on_host.train_bundle(sys.executable, for_hosts())


class Here:
    """A prefix on this machine, with a checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("bin", "train", "state", "checkout"):
            (folder / name).mkdir()
        self.program = folder / "bin/train"
        self.program.write_bytes(bundle())
        self.program.chmod(0o755)
        (folder / "x.env").write_text('NCCL_DEBUG=WARN\nWANDB_API_KEY="0123456789"\n')
        self.site(
            presets={
                "tick": {"file": "tick.py", "launch": "python", "arguments": {"steps": 3}},
                "big": {
                    "file": "tick.py",
                    "launch": "python",
                    "checkpoint_gib": 1 << 19,
                },
            }
        )
        lines = "import os, sys\nprint('step 1/3  loss 0.5', flush=True)\n"
        subprocess.run(["git", "init", "-q", folder / "checkout"], check=True)
        self.commit(lines + "sys.exit(len(sys.argv[1:]) - 1)\n")

    def commit(self, lines: str) -> None:
        """Make this the program that is trained."""
        (self.folder / "checkout/tick.py").write_text(lines)
        for words in (("add", "."), ("commit", "-qm", "one")):
            identity = ("-c", "user.name=x", "-c", "user.email=x@y")
            subprocess.run(["git", *identity, "-C", self.folder / "checkout", *words], check=True)

    def site(self, **changed: Any) -> None:
        path = self.folder / "train/site.json"
        document = {
            "prefix": str(self.folder),
            "python": sys.executable,
            "checkout": str(self.folder / "checkout"),
            "env_file": str(self.folder / "x.env"),
            "env_names": ["NCCL_DEBUG", "WANDB_API_KEY"],
            "state": str(self.folder / "state"),
            "stamp": str(self.folder / "stamp.json"),
            "owner": getpass.getuser(),
            "accelerator": "cpu",
            "ranks": 1,
            "torch": "2.13.0",
            **(json.loads(path.read_text()) if path.exists() else {}),
            **changed,
        }
        path.write_text(json.dumps(document))

    def train(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.program), *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
