"""What a program of this folder saw: shown as it goes, and kept as a file of the tree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from pyinfra_gpu_rehearsal import Lab, LabHost

ROOT = Path(__file__).resolve().parents[2]
EVIDENCE = Path(__file__).parents[2] / "build/evidence"


@dataclass
class Report:
    """What was seen, as the text of the evidence; `wrong` is what should not have been."""

    parts: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def add(self, title: str, text: str) -> None:
        """Add a part, and show it."""
        print(f"-- {title}\n{text.strip()}\n", flush=True)
        self.parts.append(f"## {title}\n\n```\n{text.strip()}\n```\n")

    def expect(self, what: str, so: bool) -> None:
        """Note what is to be so."""
        print(f"{'ok' if so else 'WRONG'}  {what}", flush=True)
        self.parts.append(f"- {'ok' if so else '**WRONG**'}: {what}\n")
        if not so:
            self.wrong.append(what)

    def write(self, name: str, title: str, about: str) -> int:
        """Write the evidence NAME, and return an exit code: 0 only if nothing was wrong."""
        today = time.strftime("%Y-%m-%d", time.gmtime())
        path = EVIDENCE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([f"# {title}, {today}\n", f"{about}\n", *self.parts]))
        print(f"{len(self.wrong)} wrong; {path.relative_to(ROOT)}")
        return int(bool(self.wrong))


@dataclass(frozen=True)
class Program:
    """Runs our own programs for the hosts of a lab, as a user would."""

    lab: Lab
    inventory: str

    def _run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        variables = {
            "PYINFRA_GPU_REHEARSAL": str(self.lab.directory),
            "PYINFRA_GPU_REPORT": str(self.lab.directory / "report.json"),
            "PYINFRA_PROGRESS": "off",
            "XDG_STATE_HOME": str(self.lab.directory / "state"),
        }
        return subprocess.run(
            [str(word) for word in words],
            cwd=ROOT,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=1500,
            check=False,
        )

    def deploy(self, file: str) -> tuple[int, str]:
        """Run one deploy file, and return its exit code and what was said."""
        pyinfra = Path(sys.executable).parent / "pyinfra"
        done = self._run(pyinfra, "-y", self.inventory, file)
        return done.returncode, done.stdout + done.stderr

    def changed(self) -> dict[str, list[str]]:
        """Return what the last deploy changed, by host."""
        hosts = json.loads((self.lab.directory / "report.json").read_text())["hosts"]
        return {
            name: [what for stage in host["stages"] for what in stage["changed"]]
            for name, host in hosts.items()
        }

    def check(self) -> dict[str, dict[str, str]]:
        """Return what `check` says: host -> id -> what was found."""
        program = Path(sys.executable).parent / "pyinfra-gpu"
        done = self._run(program, "check", self.inventory, "--json")
        try:
            hosts = json.loads(done.stdout)["hosts"]
        except (ValueError, KeyError):
            said = f"check ended with {done.returncode}: {done.stdout}{done.stderr}"
            raise SystemExit(said) from None
        return {
            name: {each["id"]: each["found"] for each in host["deviations"]}
            for name, host in hosts.items()
        }


def said(host: LabHost, command: str) -> str:
    """Return what a command printed on the host, both channels."""
    return host.run(f"{{ {command}; }} 2>&1", check=False, timeout=300).stdout
