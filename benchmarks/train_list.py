"""How long `pyinfra-gpu train INVENTORY list` takes over twenty hosts, by real SSH connections.

    pyinfra-gpu rehearsal up 2 && pyinfra -y inventories/rehearsal.py deploy.py
    .venv/bin/python benchmarks/train_list.py [HOSTS]

The hosts are the throwaway ones that are up, each under several names: as many connections,
launchers and answers as of so many hosts, and all of them on this machine's cores, where real ones
would answer with their own. It prints the seconds of three calls, and their processor seconds.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
INVENTORY = """
import sys
sys.path[:0] = [{inventories!r}]
import rehearsal as _rehearsal
_up = _rehearsal.cpu or _rehearsal.gpu
cpu = [(f"h{{n}}", {{**_up[n % len(_up)][1], "ssh_config_file": {config!r}}})
       for n in range({hosts})]
"""
LAB = Path(os.environ.get("PYINFRA_GPU_REHEARSAL", PROJECT / ".rehearsal"))
CALLS = 3


def _renamed(config: str, hosts: int) -> str:
    """Return the blocks of the hosts that are up in turn, under the names h0, h1, ..."""
    blocks = [f"Host{block}" for block in re.split("^Host(?= )", config, flags=re.MULTILINE)[1:]]
    named = [block for block in blocks if "HostName" in block]
    return "\n".join(
        re.sub("^Host .*", f"Host h{n}", named[n % len(named)], count=1) for n in range(hosts)
    )


def main(hosts: int) -> None:
    """Print how long each call takes; end where one does not list all hosts."""
    command = [str(Path(sys.executable).parent / "pyinfra-gpu"), "train"]
    with tempfile.TemporaryDirectory() as folder:
        inventory = Path(folder) / "twenty.py"
        config = Path(folder) / "ssh_config"
        config.write_text(_renamed((LAB / "ssh_config").read_text(encoding="utf-8"), hosts))
        text = INVENTORY.format(
            inventories=str(PROJECT / "inventories"), config=str(config), hosts=hosts
        )
        inventory.write_text(text, encoding="utf-8")
        for _ in range(CALLS):
            before, began = os.times(), time.perf_counter()
            words = [*command, str(inventory), "list"]
            done = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=False)
            wall, after = time.perf_counter() - began, os.times()
            used = after.children_user - before.children_user
            used += after.children_system - before.children_system
            last = done.stdout.strip().splitlines()[-1:] or [done.stderr]
            if not last[0].startswith(f"{hosts} hosts: "):
                sys.exit(f"not all hosts answered:\n{done.stdout}{done.stderr}")
            print(f"{wall:.2f} s, {used:.2f} s of them the controller's processor: {last[0]}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
