"""What one look costs a host: seconds of its processor.

    .venv/bin/python benchmarks/look.py [LOOKS]

Needs a throwaway host that is deployed: make rehearsal. The probe's own text is run there as root,
LOOKS times (10), in several rounds of which the quickest counts: others may use this machine too.
"""

from __future__ import annotations

import resource
import sys
import tempfile
from pathlib import Path

from pyinfra.api import Config, State
from pyinfra.context import ctx_state
from pyinfra_cli.inventory import make_inventory

from pyinfra_gpu.engine.look import request_text
from pyinfra_gpu.spec import resolve
from pyinfra_gpu_rehearsal import Lab, LabHost

PROJECT = Path(__file__).resolve().parents[1]
ROUNDS = 5
PLACE = "/root/look.py"


def look_texts() -> dict[str, str]:
    """Return the program of a look for each throwaway host, as a deploy sends it."""
    state = State()
    ctx_state.set(state)
    inventory = make_inventory(
        str(PROJECT / "inventories/rehearsal.py"),
        group_data_directories=[str(PROJECT / "group_data")],
    )
    state.init(inventory, Config())
    return {host.name: request_text(resolve({**host.data.dict()}, host.name)) for host in inventory}


def placed(host: LabHost, text: str) -> None:
    """Put the program onto the host, as PLACE."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(text)
        file.flush()
        host.put(Path(file.name), PLACE)


def looks(host: LabHost, number: int) -> str:
    """Return the command that looks that many times, as a login user's sudo would."""
    look = f"/usr/bin/python3 -I -S - <{PLACE} >/dev/null"
    again = f"i=0; while [ $i -lt {number} ]; do i=$((i + 1)); {look}; done"
    return f"export SUDO_USER={host.user}; {again}"


def seconds(host: LabHost, number: int) -> float:
    """Return the processor seconds of one look, of that many."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    host.run(looks(host, number))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used / number


def main(number: int) -> None:
    """Measure, and print."""
    host = Lab().hosts()[0]
    text = look_texts()[host.name]
    placed(host, text)
    seconds(host, 1)
    best = min(seconds(host, number) for _ in range(ROUNDS))
    print(f"one look at {host.name}: {best:.3f} s of its processor; {len(text)} characters sent")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
