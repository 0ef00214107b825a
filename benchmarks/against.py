"""What a run with nothing to do and a check cost, beside what they cost at an earlier revision.

    .venv/bin/python benchmarks/against.py REVISION [ROUNDS] [FOLDER]

Each version has a throwaway host that it deployed itself, in FOLDER, where they stay; without one
they are made for this alone, and removed. The two take turns, and the first round does not count.
Seconds of a processor, the controller's and the host's, say more than those on the wall where
others use this machine too.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyinfra_gpu_rehearsal import Lab, LabHost

PROJECT = Path(__file__).resolve().parents[1]
DATA = ("--data", "environment_dynamo=false", "--data", "smoke_deadline_s=900")
FIGURES = ("wall", "controller", "host", "both processors")
AS_DECLARED = {"run": "1 as declared", "check": "exit code 0"}


@dataclass
class Version:
    """One state of the sources, and the host that it looks after."""

    name: str
    tree: Path
    host: LabHost
    figures: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def command(self, what: str) -> list[str]:
        """Return the command of a "run" or a "check"."""
        inventory, limit = "inventories/rehearsal.py", ("--limit", self.host.name)
        folder = Path(sys.executable).parent
        if what == "check":
            return [str(folder / "pyinfra-gpu"), "check", inventory, *DATA, *limit]
        return [str(folder / "pyinfra"), "-y", *DATA, *limit, inventory, "deploy.py"]

    def execute(self, what: str, lab: Path) -> tuple[int, str, tuple[float, ...]]:
        """Return the exit code, what was printed, and the seconds in the order of FIGURES."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.tree),
            "PYINFRA_GPU_REHEARSAL": str(lab),
            "PYINFRA_PROGRESS": "off",
            "XDG_STATE_HOME": str(lab / "state"),
        }
        with tempfile.TemporaryFile("w+") as said:
            before, started = host_seconds(self.host), time.perf_counter()
            process = subprocess.Popen(
                self.command(what),
                cwd=self.tree,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
            )
            _, status, used = os.wait4(process.pid, 0)
            wall = time.perf_counter() - started
            process.returncode = os.waitstatus_to_exitcode(status)
            controller = used.ru_utime + used.ru_stime
            host = host_seconds(self.host) - before
            said.seek(0)
            seconds = (wall, controller, host, controller + host)
            return process.returncode, said.read(), seconds

    def measure(self, what: str, lab: Path, *, counts: bool) -> None:
        """Run it once; it must find nothing to do."""
        code, said, seconds = self.execute(what, lab)
        if code or AS_DECLARED[what] not in said:
            sys.exit(f"{self.name}: {self.host.name} is not as declared\n{said}")
        if counts:
            kept = self.figures.setdefault(what, {name: [] for name in FIGURES})
            for name, value in zip(FIGURES, seconds, strict=True):
                kept[name].append(value)


def host_seconds(host: LabHost) -> float:
    """Return the processor seconds of everything that ran on the host in this boot."""
    lines = (host.power.path / "cpu.stat").read_text().splitlines()
    return int(dict(line.split() for line in lines)["usage_usec"]) / 1e6


@contextmanager
def sources(revision: str) -> Iterator[Path]:
    """Give the sources of a revision in a folder of their own."""
    git = ["git", "-C", str(PROJECT), "worktree"]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "sources")
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), revision], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


@contextmanager
def laboratory(folder: str | None) -> Iterator[Lab]:
    """Give two throwaway hosts, kept where a folder for them is named."""
    with tempfile.TemporaryDirectory() as own:
        lab = Lab(Path(folder or own, ".rehearsal"), training=PROJECT / "examples/tiny-gpt")
        try:
            lab.up(2)
            yield lab
        finally:
            if folder is None:
                lab.down()


def table(old: Version, new: Version) -> None:
    """Print minimum and median of both, and how much more the newer takes."""
    print(f"{'':24}{old.name:>17}{new.name:>17}   more, by minimum and median")
    for what in AS_DECLARED:
        for name in FIGURES:
            before, now = (version.figures[what][name] for version in (old, new))
            pairs = [(min(before), min(now)), (statistics.median(before), statistics.median(now))]
            shown = "".join(
                f"{min(each):>8.2f} {statistics.median(each):>6.2f} s" for each in (before, now)
            )
            more = ", ".join(f"{(b / a - 1) * 100:+.0f} %" for a, b in pairs)
            print(f"{what:6}{name:18}{shown}   {more}")


def main() -> None:
    """Deploy each host by its version, then let both take turns."""
    if not sys.argv[1:]:
        sys.exit(__doc__)
    rounds = int(sys.argv[2]) if sys.argv[2:] else 10
    folder = sys.argv[3] if sys.argv[3:] else None
    with sources(sys.argv[1]) as tree, laboratory(folder) as lab:
        new = Version("now", PROJECT, lab.host("gpu1"))
        old = Version(sys.argv[1][:12], tree, lab.host("gpu2"))
        for version in (old, new):
            code, said, _ = version.execute("run", lab.directory)
            if code:
                sys.exit(f"{version.name}: the deploy failed\n{said}")
        for number in range(rounds + 1):
            for what in AS_DECLARED:
                for version in (old, new) if number % 2 else (new, old):
                    version.measure(what, lab.directory, counts=number > 0)
        table(old, new)


if __name__ == "__main__":
    main()
