"""Running pyinfra's own command line against the throwaway hosts, as a user would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyinfra_gpu_rehearsal import Lab

PROJECT = Path(__file__).resolve().parents[2]
INVENTORY = "inventories/rehearsal.py"
GPU_HOST = "gpu1"  # the one host of the lab that has simulated GPUs


@dataclass(frozen=True)
class Run:
    """What one run of pyinfra said and did."""

    code: int
    output: str
    report: dict[str, Any]
    seconds: float

    def status(self, host: str) -> str:
        return str(self.report["hosts"][host]["status"])

    def stage(self, host: str, stage: str) -> dict[str, Any]:
        for each in self.report["hosts"][host]["stages"]:
            if each["stage"] == stage:
                return dict(each)
        raise AssertionError(f"{host} has no stage {stage} in {self.report}\n{self.output}")

    def changed(self, host: str) -> list[str]:
        return [
            f"{each['stage']}: {what}"
            for each in self.report["hosts"][host]["stages"]
            for what in each["changed"]
        ]

    def problems(self, host: str) -> list[str]:
        stages = self.report["hosts"][host]["stages"]
        return [each["problem"] for each in stages if each["problem"]]


@dataclass(frozen=True)
class Check:
    """What one `pyinfra-gpu check --json` said."""

    code: int
    answer: dict[str, Any]
    seconds: float

    def deviations(self, host: str) -> dict[str, dict[str, Any]]:
        return {each["id"]: each for each in self.answer["hosts"][host]["deviations"]}


@dataclass(frozen=True)
class Deployer:
    """Starts pyinfra in the project's folder, with one lab's hosts."""

    lab: Lab
    folder: Path
    arguments: tuple[str, ...] = ()  # of every deploy
    # Compiling is half a minute of each smoke test: test_smoke_alone.py does it, the others do not.
    data: tuple[str, ...] = ("environment_dynamo=false",)

    def environment(self, report: Path) -> dict[str, str]:
        return {
            **os.environ,
            "PYINFRA_GPU_REHEARSAL": str(self.lab.directory),
            "PYINFRA_GPU_REPORT": str(report),
            "PYINFRA_PROGRESS": "off",
            "XDG_STATE_HOME": str(self.folder),  # where `check` keeps what it found before
        }

    def command(self, *arguments: str, inventory: str = INVENTORY) -> list[str]:
        program = str(Path(sys.executable).parent / "pyinfra")
        return [program, *arguments, *self.declared, inventory, "deploy.py"]

    @property
    def declared(self) -> list[str]:
        return [word for each in self.data for word in ("--data", each)]

    def start(self, *arguments: str, limit: str | None = None) -> subprocess.Popen[str]:
        """Start a run in the background, for tests that cut it off."""
        chosen = ("--limit", limit) if limit else ()
        return subprocess.Popen(
            self.command("-y", *self.arguments, *chosen, *arguments),
            cwd=PROJECT,
            env=self.environment(self.folder / "cut-off.json"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def run(
        self,
        *arguments: str,
        limit: str | None = None,
        inventory: str = INVENTORY,
        timeout: float = 300,
    ) -> Run:
        report = self.folder / f"report-{time.monotonic_ns()}.json"
        chosen = ("--limit", limit) if limit else ()
        started = time.monotonic()
        done = subprocess.run(
            self.command(*self.arguments, *arguments, *chosen, inventory=inventory),
            cwd=PROJECT,
            env=self.environment(report),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=timeout,
            check=False,
        )
        seconds = time.monotonic() - started
        text = done.stdout + done.stderr
        content = json.loads(report.read_text()) if report.exists() else {"hosts": {}}
        return Run(done.returncode, text, content, seconds)

    def deploy(self, *arguments: str, limit: str | None = None) -> Run:
        return self.run("-y", *arguments, limit=limit)

    def dry(self, limit: str | None = None) -> Run:
        return self.run("--dry", limit=limit)

    def check(self, *, limit: str | None = None) -> Check:
        """Run `pyinfra-gpu check --json` as a user would, and insist on an answer."""
        program = str(Path(sys.executable).parent / "pyinfra-gpu")
        chosen = ("--limit", limit) if limit else ()
        started = time.monotonic()
        done = subprocess.run(
            [program, "check", INVENTORY, "--json", *self.declared, *chosen],
            cwd=PROJECT,
            env=self.environment(self.folder / "unused.json"),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=120,
            check=False,
        )
        seconds = time.monotonic() - started
        assert done.stdout, done.stderr
        return Check(done.returncode, json.loads(done.stdout), seconds)

    def converge(self, limit: str | None = None) -> Run:
        """Deploy and insist that it worked."""
        result = self.deploy(limit=limit)
        assert result.code == 0, result.output
        return result
