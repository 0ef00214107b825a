"""A training without torch: it prints steps, saves, resumes, and has children that are hard to end.

--steps=N --seconds=S of a step, --hold=PATH that it keeps open, such as a GPU, --fill=PATH that it
writes to without end; --save=FOLDER every ten steps, --resume=FILE of those; --stubborn=1: it and a
child that left its session ignore SIGTERM; --why=TEXT: at its first start it fails with that, and
leaves a child.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

given = dict(word[2:].split("=", 1) for word in sys.argv[1:])
steps, seconds = int(given.get("steps", "20")), float(given.get("seconds", "0.1"))
held = Path(given["hold"]).open("rb") if "hold" in given else None  # noqa: SIM115 - until the end
rank = os.environ.get("RANK", "0")
fails = "why" in given and not Path("seen").exists()
if given.get("stubborn") or fails:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleep = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", sleep, "tick.py"], start_new_session=True)
if fails:
    Path("seen").touch()
    sys.exit(given["why"])
done = int(Path(given["resume"]).read_text()) if "resume" in given else 0
for step in range(done + 1, steps + 1):
    if "fill" in given:
        with Path(given["fill"]).open("ab") as file:
            file.write(bytes(1 << 20))
    print(f"step {step}/{steps}  loss {4 / step:.4f}", flush=True)
    if "save" in given and step % 10 == 0:
        Path(given["save"]).mkdir(parents=True, exist_ok=True)
        Path(given["save"], f"step-{step:06}").write_text(str(step))
    time.sleep(seconds)
Path(f"done{rank}.json").write_text(json.dumps({"steps": steps}))
