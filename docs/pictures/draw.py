"""Draw the pictures of the documents from the two hosts of `make rehearsal`: `draw.py FOLDER`.

It breaks something on gpu1, repairs it by a deploy, and trains there. For the page it needs
chromium.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

INVENTORY = "inventories/rehearsal.py"
BIN = Path(sys.executable).parent
TRAIN = "/opt/pyinfra-gpu/bin/train"
DAMAGE = """
sudo ln -sfn /nowhere /usr/lib/x86_64-linux-gnu/libcuda.so
sudo apt-mark -q unhold libcuda1
sudo rm /opt/pyinfra-gpu/venv/lib/python3*/site-packages/torch/nn/functional.py
"""


def output(command: str) -> str:
    """Return what a command prints on a terminal of 80 columns, with its colours."""
    environment = {**os.environ, "COLUMNS": "80", "LINES": "40", "TERM": "xterm-256color"}
    words = [
        "script",
        "--quiet",
        "--return",
        "--command",
        f"stty cols 80 rows 40; PATH={BIN}:$PATH {command}",
    ]
    with tempfile.NamedTemporaryFile() as typescript:
        done = subprocess.run(
            [*words, typescript.name],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    return done.stdout.replace("^@", "").replace("\r\n", "\n").replace("\r", "\n")


def draw(folder: Path, name: str, command: str, *, after: str = "", title: str = "") -> None:
    """Draw what a command prints.

    + after: what is before this text is left out
    """
    text = output(command)
    _, found, rest = text.partition(after) if after else ("", "", text)
    lines = [line for line in (found + rest).splitlines() if "% (" not in line]  # pyinfra's spinner
    console = Console(record=True, width=80, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi("\n".join(lines).strip("\n")))
    console.save_svg(str(folder / f"{name}.svg"), title=title or command)


def main() -> None:
    """Draw all pictures into the folder that is the only argument."""
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    host = ["ssh", "-q", "-F", ".rehearsal/ssh_config", "gpu1"]
    subprocess.run([*host, DAMAGE], check=True)
    shown = "gpu1 (rehearsal)  "  # what stands above is how far it is
    draw(folder, "check", f"pyinfra-gpu check {INVENTORY}", after=shown)
    draw(folder, "run", f"pyinfra -y {INVENTORY} deploy.py", after=shown)

    subprocess.run([*host, f"{TRAIN} start balanced --set steps=600"], check=True)
    watch = f"{' '.join(host)} -tt {TRAIN} watch --once"
    ready = time.monotonic() + 120
    while "loss" not in output(watch) and time.monotonic() < ready:
        time.sleep(5)
    draw(folder, "watch", watch, title="train watch")
    subprocess.run([*host, f"{TRAIN} stop"], check=True)

    with tempfile.TemporaryDirectory() as kept:
        page = Path(kept, "page.html")
        output(f"pyinfra-gpu report {INVENTORY} -o {page}")
        shot = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1100,1000"]
        picture = f"--screenshot={folder / 'page.png'}"
        subprocess.run(["chromium", *shot, picture, page.as_uri()], check=True)


if __name__ == "__main__":
    main()
