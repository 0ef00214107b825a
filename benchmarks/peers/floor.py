"""The floor: what SSH itself takes. Connects to all hosts at once and runs one command on each.

python floor.py HOSTS.json      with "hosts" (name, address, port, key, known_hosts) and "command"
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko


def ask(host: dict[str, str], command: str) -> int:
    """Run the command on one host, and return how many bytes it said."""
    with paramiko.SSHClient() as client:
        client.load_host_keys(host["known_hosts"])
        key = paramiko.Ed25519Key.from_private_key_file(host["key"])
        client.connect(
            host["address"], int(host["port"]), host["user"], pkey=key,
            allow_agent=False, look_for_keys=False,
        )  # fmt: skip
        _, stdout, _ = client.exec_command(command)
        return len(stdout.read())


def main() -> None:
    """Ask all of them, each in a thread of its own."""
    given = json.loads(Path(sys.argv[1]).read_text())
    with ThreadPoolExecutor(len(given["hosts"])) as pool:
        sizes = list(pool.map(lambda host: ask(host, given["command"]), given["hosts"]))
    print(min(sizes), "bytes and more from", len(sizes))


if __name__ == "__main__":
    main()
