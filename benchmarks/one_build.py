"""One build, three hosts: what is built, what is sent, how soon a run follows, what waiting costs.

    .venv/bin/python benchmarks/one_build.py

Two to three minutes on two cores, with three throwaway hosts of its own and the lab's stand-in for
PyTorch's source. A first run is killed while it waits for the build; the second follows it to its
end, and a third has nothing to do. Exits with 1 where a figure is not what docs/source-build.md
promises: one build, two installs of its very bytes, followed within 2 s, below 1 % of a core while
it waits, and one SSH channel for each host with nothing to do.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyinfra_gpu_rehearsal import Lab, LabHost
from pyinfra_gpu_rehearsal.stand_in.serving import serve_stand_in

PROJECT = Path(__file__).resolve().parents[1]
BUILD = "/opt/pyinfra-gpu/build"
STEPS = 302
"""Compiles and links of the stand-in."""
PATIENCE_S = 300.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Deploy:
    """A run that goes on, and its lines as they come.

    + lines: (seconds since it began, line)
    """

    run: subprocess.Popen[str]
    began: float
    lines: list[tuple[float, str]] = field(default_factory=list)
    _came: queue.SimpleQueue[str | None] = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.run.stdout is not None
        for line in self.run.stdout:
            self._came.put(line.rstrip())
        self._came.put(None)

    def until(self, text: str) -> float:
        """Return when a line with this text came; "" waits for the end."""
        while (line := self._came.get(timeout=PATIENCE_S)) is not None:
            now = time.monotonic() - self.began
            self.lines.append((now, line))
            if text and text in line:
                return now
        if text:
            sys.exit(f"no line said {text!r}:\n" + "\n".join(line for _, line in self.lines))
        return time.monotonic() - self.began

    def cpu_seconds(self) -> float:
        """Return the processor time that the controller's process took by now."""
        row = Path(f"/proc/{self.run.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(row[11]) + int(row[12])) / _TICKS


def deploy(lab: Lab, folder: Path, data: list[str]) -> Deploy:
    """Start a run for all hosts, as a user does."""
    known = {
        "PYINFRA_GPU_REHEARSAL": str(lab.directory),
        "PYINFRA_GPU_REPORT": str(folder / "report.json"),
        "PYINFRA_PROGRESS": "off",
        "PYTHONUNBUFFERED": "1",
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    given = [word for each in data for word in ("--data", each)]
    command = [str(Path(sys.executable).parent / "pyinfra"), "-y", *given]
    run = subprocess.Popen(
        [*command, "inventories/rehearsal.py", "deploy.py"], cwd=PROJECT, text=True,
        env={**os.environ, **known}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    return Deploy(run, time.monotonic())


def of_build(host: LabHost, name: str) -> dict[str, Any]:
    """Return a document of the build's folder."""
    try:
        return dict(json.loads((host.upper / f"{BUILD[1:]}/{name}").read_text()))
    except (OSError, ValueError):
        return {}


def waiting(run: Deploy, host: LabHost, steps: int) -> tuple[float, float]:
    """Wait for so many steps more; return the seconds, and those of the processor meanwhile."""
    began, cpu = time.monotonic(), run.cpu_seconds()
    last = int(of_build(host, "state.json").get("steps_done", 0)) + steps
    while int(of_build(host, "state.json").get("steps_done", 0)) < last:
        time.sleep(0.2)
        if time.monotonic() - began > PATIENCE_S:
            sys.exit("the build does not go on")
    return time.monotonic() - began, run.cpu_seconds() - cpu


def measure(lab: Lab, folder: Path) -> list[str]:
    """Print what was measured; return what is not as promised."""
    hosts = lab.up(3, say=lambda _: None)
    served = serve_stand_in(lab, say=lambda _: None)
    data = ["smoke=skip", "environment_dynamo=false", "training_requirements=null"]
    data += ["pytorch_source=source", f"pytorch_git_url={served.git_url}"]
    data += [f"pytorch_commit={served.commit}", f"pytorch_extra_index_url={served.index_url}"]

    first = deploy(lab, folder, data)
    first.until("torch (stand-in): compile")
    seconds, cpu = waiting(first, hosts[0], STEPS // 2)
    first.run.kill()
    first.until("")
    second = deploy(lab, folder, data)
    asked = second.until("Starting operation: PyTorch | Build torch")
    followed = second.until("[gpu1] torch (stand-in): ")
    took = second.until("")
    if second.run.wait() != 0:
        sys.exit("\n".join(line for _, line in second.lines))
    stages = json.loads((folder / "report.json").read_text())["hosts"]
    before = [host.ssh_sessions() for host in hosts]
    third = deploy(lab, folder, data)
    third.until("")
    channels = [host.ssh_sessions() - n for host, n in zip(hosts, before, strict=True)]
    built, state = of_build(hosts[0], "wheel.json"), of_build(hosts[0], "state.json")
    brought = sum("from the cache" in line for _, line in second.lines)
    same = [of_build(host, "wheel.json").get("sha256") == built["sha256"] for host in hosts[1:]]
    installs = [host.upper / f"{BUILD[1:]}/log.txt" for host in hosts[1:]]
    torch = {
        name: next(each["seconds"] for each in host["stages"] if each["stage"] == "pytorch")
        for name, host in stages.items()
    }
    print(f"built on {hosts[0].name} alone: {state['compiled']} of {STEPS} steps compiled")
    print(f"a wheel of {built['size']} bytes, brought to {brought} hosts from the cache")
    print(f"seconds of the pytorch stage, waiting included: {torch}; the whole run {took:.1f}")
    print(f"followed {followed - asked:.2f} s after the run came to it")
    print(
        f"{cpu:.2f} s of a processor in {seconds:.1f} s of waiting: {cpu / seconds:.2%} of a core"
    )
    print(f"SSH channels of a run with nothing to do: {channels}")
    promised = {
        "one build": int(state["compiled"]) == STEPS and not any(map(Path.exists, installs)),
        "two installs of its bytes": same == [True, True] and brought == 2,
        "followed within 2 s": followed - asked < 2,
        "below 1 % of a core": cpu / seconds < 0.01,
        "one channel each, nothing changed": channels == [1, 1, 1] and third.run.wait() == 0,
    }
    return [what for what, so in promised.items() if not so]


def main() -> int:
    """Measure on hosts of its own."""
    with tempfile.TemporaryDirectory(prefix="pyinfra-gpu-one-build-") as work:
        lab = Lab(Path(work) / ".rehearsal", training=PROJECT / "examples/tiny-gpt")
        try:
            wrong = measure(lab, Path(work))
        finally:
            lab.down(say=lambda _: None)
    print("\n".join(f"WRONG: {each}" for each in wrong) or "all of it as promised")
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
