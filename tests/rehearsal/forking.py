"""Smoke tests on a throwaway host that import torch once, and not once a process.

Four processes of a smoke test import torch, which is two thirds of what one takes of a processor.
Where a test asks for a smoke test and not for how its processes start, `forking` has them forked by
the launcher. Elsewhere they start as on a user's host: in a first deploy, in the first step across
hosts, by hand, with compiling, and where torch itself fails (test_smoke_alone.py).
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from running import ON_HOST

from pyinfra_gpu_rehearsal import LabHost
from tests.on_host import preloaded_server
from tests.on_host.preloaded import TORCH

FORKS = "PYINFRA_GPU_COLD" not in os.environ  # as for runs of pyinfra, see running.py
FOLDER = "/usr/local/lib/pyinfra-gpu-preloading"
# What the system's Python runs at each start, and so that of every virtual environment.
SITE = "$(echo /usr/lib/python3*/sitecustomize.py)"
FOUND_S = 0.5
"""Seconds in which torch is imported only where it is there; to find it takes a few milliseconds of
them, and to import it two seconds where nobody else works."""
MARK = "# forks smoke tests"
BEGIN = f"""
{MARK}
if sys.orig_argv[2:3] == ["--mode"] and sys.orig_argv[1].endswith("/smoke_test.pyz"):
    sys.path.insert(0, {FOLDER!r})
    import preloading
    sys.path.remove({FOLDER!r})
    preloading.begin({TORCH!r})
"""


def forking(host: LabHost) -> LabHost:
    """Have the smoke tests of this host fork, unless all is to be real; return the host."""
    if FORKS and host.run(f"grep -q '{MARK}' {SITE}", check=False).returncode:
        host.run(f"mkdir -p {FOLDER}")
        for source in (Path(preloaded_server.__file__), ON_HOST / "preloading.py"):
            host.put(source, f"{FOLDER}/{source.name}")
        host.run(f"cat >>{SITE}", stdin=BEGIN)
    return host


def forked(host: LabHost, logs: str) -> list[bool]:
    """Return whether each process that imported torch found it there already.

    + logs: the folder with the journals of a smoke test
    """
    lines = host.run(f"cat {logs}/*.jsonl").stdout.splitlines()
    facts = [each for each in map(json.loads, lines) if each["kind"] == "fact"]
    return [each["seconds"] < FOUND_S for each in facts if each["name"] == "import"]
