"""Running pyinfra's own command line against the throwaway hosts, as a user would."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from pyinfra_gpu_rehearsal import Lab, LabHost
from tests import forked
from tests.forked import PROJECT, Process

ON_HOST = Path(__file__).parent / "on_host"  # programs of the tests' own, for hosts
INVENTORY = "inventories/rehearsal.py"
GPU_HOST = "gpu1"  # the one host of the lab that has simulated GPUs

PROVEN, CONVERGED = "proven", "converged"  # snapshots: with and without a smoke test that passed
SMOKE_PATIENCE = "smoke_deadline_s=900"  # its own 180 s are enough where nobody else works
PATIENCE_S = 1200  # for what takes a minute at most; a busy machine may take long

# What a login through sshd and sudo leaves in any running system, whoever logs in.
SYSTEM_OWN = ("var/log/", "var/lib/systemd/", "var/cache/", "tmp/", "run/", "etc/.pwd.lock")


def written_files(host: LabHost, without: tuple[str, ...] = ()) -> dict[str, str]:
    """Digest of everything on the host that a deploy could have written.

    + without: beginnings of relative paths that are not looked at, and so not read
    """
    files, without = {}, (*SYSTEM_OWN, *without)
    for folder, _, names in os.walk(host.upper):
        for name in names:
            path = Path(folder) / name
            relative = str(path.relative_to(host.upper))
            if relative.startswith(without) or not path.is_file() or path.is_symlink():
                continue
            files[relative] = hashlib.sha256(path.read_bytes()).hexdigest()
    return files


@dataclass(frozen=True)
class Run:
    """What one run of pyinfra said and did."""

    code: int
    output: str
    report: dict[str, Any]

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


def quietly(_: str) -> None:
    """Take the place of print where a test does not look at what a lab says."""


def hold_apt(host: LabHost, *, unit: str) -> None:
    """Let a process of the systemd unit UNIT hold apt's lock on the host, until it is stopped."""
    host.put(ON_HOST / "hold_apt.py", "/root/hold_apt.py")
    notify = "--service-type=notify --property=NotifyAccess=all"
    host.run(f"systemd-run -q --unit={unit} {notify} python3 /root/hold_apt.py")


@dataclass
class Kept:
    """A host that tests find, and leave, in one state.

    A test that fails leaves it in another: the next one gets it restored.
    """

    restore: Callable[[], LabHost]
    _as_it_was: LabHost | None = None

    @contextmanager
    def lent(self) -> Iterator[LabHost]:
        """Give the host for as long as one test takes."""
        host = self._as_it_was or self.restore()
        self._as_it_was = None
        yield host
        self._as_it_was = host


@dataclass(frozen=True)
class Check:
    """What one `pyinfra-gpu check --json` said."""

    code: int
    answer: dict[str, Any]

    def deviations(self, host: str) -> dict[str, dict[str, Any]]:
        """Return what was found by its id; a second of the same id is "ID #2"."""
        found: dict[str, dict[str, Any]] = {}
        for each in self.answer["hosts"][host]["deviations"]:
            before = sum(id_.partition(" ")[0] == each["id"] for id_ in found)
            found[f"{each['id']} #{before + 1}" if before else each["id"]] = each
        return found


@dataclass(frozen=True)
class Deployer:
    """Runs pyinfra in the project's folder, with one lab's hosts.

    + forks: a run is forked from a process that has imported pyinfra (tests/forked.py); the
      environment variable PYINFRA_GPU_COLD is for figures of what a user waits
    + project: the folder whose policy is run
    """

    lab: Lab
    folder: Path
    arguments: tuple[str, ...] = ()  # of every deploy
    # Half a minute of a smoke test is compiling, five seconds are its large all-reduces:
    # test_smoke_alone.py does both, the others do not.
    data: tuple[str, ...] = ("environment_dynamo=false", "smoke_allreduce_mib=1", SMOKE_PATIENCE)
    forks: bool = "PYINFRA_GPU_COLD" not in os.environ
    project: Path = PROJECT
    file: ClassVar[str] = "deploy.py"

    def environment(self, report: Path) -> dict[str, str]:
        return {
            **os.environ,
            "PYINFRA_GPU_REHEARSAL": str(self.lab.directory),
            "PYINFRA_GPU_REPORT": str(report),
            "PYINFRA_PROGRESS": "off",
            "XDG_STATE_HOME": str(self.folder),  # where `check` keeps what it found before
        }

    def command(self, *arguments: str) -> list[str]:
        program = str(Path(sys.executable).parent / "pyinfra")
        return [program, *arguments, *self.declared, INVENTORY, self.file]

    @property
    def declared(self) -> list[str]:
        return [word for each in self.data for word in ("--data", each)]

    def cold(self) -> Self:
        """Return the same, running the installed programs as a user does."""
        return replace(self, forks=False)

    def start(self, *, limit: str | None = None) -> Process:
        """Start a deploy in the background, as `deploy` runs it."""
        chosen = ("--limit", limit) if limit else ()
        command = self.command("-y", *self.arguments, *chosen)
        environment = self.environment(self.folder / "cut-off.json")
        if self.forks:
            return forked.Forked(command, environment, folder=self.project)
        return subprocess.Popen(
            command,
            cwd=self.project,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def run(self, *arguments: str, limit: str | None = None) -> Run:
        report = self.folder / f"report-{time.monotonic_ns()}.json"
        chosen = ("--limit", limit) if limit else ()
        command = self.command(*self.arguments, *arguments, *chosen)
        done = self._done(command, self.environment(report))
        content = json.loads(report.read_text()) if report.exists() else {"hosts": {}}
        return Run(done.returncode, done.stdout + done.stderr, content)

    def _done(
        self, command: list[str], environment: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        if self.forks:
            return forked.run(command, environment, PATIENCE_S, folder=self.project)
        return subprocess.run(
            command,
            cwd=self.project,
            env=environment,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def deploy(self, *arguments: str, limit: str | None = None) -> Run:
        return self.run("-y", *arguments, limit=limit)

    def dry(self, limit: str | None = None) -> Run:
        return self.run("--dry", limit=limit)

    def check(self, *, limit: str | None = None) -> Check:
        """Run `pyinfra-gpu check --json` as a user would, and insist on an answer."""
        program = str(Path(sys.executable).parent / "pyinfra-gpu")
        chosen = ("--limit", limit) if limit else ()
        done = self._done(
            [program, "check", INVENTORY, "--json", *self.declared, *chosen],
            self.environment(self.folder / "unused.json"),
        )
        assert done.stdout, done.stderr
        return Check(done.returncode, json.loads(done.stdout))

    def train(
        self, action: str, *words: str, limit: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run `pyinfra-gpu train` as a user would.

        + words: options, and behind "--" what is the launcher's
        """
        only = [] if limit is None else ["--limit", limit]
        return self.verb("train", action, *self.declared, *only, *words)

    def verb(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run one of `pyinfra-gpu`'s verbs, which takes the inventory and these words."""
        program = str(Path(sys.executable).parent / "pyinfra-gpu")
        environment = self.environment(self.folder / "unused.json")
        return self._done([program, name, INVENTORY, *words], environment)

    def converge(self, limit: str | None = None) -> Run:
        """Deploy and insist that it worked."""
        result = self.deploy(limit=limit)
        assert result.code == 0, result.output
        return result


class OnlySmoke(Deployer):
    """Runs `pyinfra INVENTORY tasks/smoke.py`."""

    file = "tasks/smoke.py"


class OnlyDriver(Deployer):
    """Runs what the driver needs and nothing after it."""

    file = "tests/rehearsal/only_driver.py"


@dataclass(frozen=True)
class OnlyStage(Deployer):
    """Runs some stages of tasks/stages.py alone.

    + stage: their names
    """

    stage: str = ""
    file = "tests/rehearsal/only_stage.py"

    def environment(self, report: Path) -> dict[str, str]:
        return {**super().environment(report), "PYINFRA_GPU_ONLY_STAGE": self.stage}


def without_smoke_test(deployer: Deployer) -> Deployer:
    """Return the same without its last stage, which is half a minute of importing torch."""
    return replace(deployer, arguments=("--data", "smoke=skip"))


def until(seen: Callable[[], bool], seconds: float = 60, *, every: float = 0.05) -> None:
    """Wait until something is so, and fail where it is not in time.

    + every: seconds from one question to the next; each takes a hundredth of a processor's second
    """
    limit = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < limit, "it did not come to that"
        time.sleep(every)


def usual_offer(lab: Lab) -> None:
    """Let the repository offer what it offers at first, whatever an earlier test let it offer."""
    lab.nvidia.offer()


BOUND = "readlink /sys/bus/pci/devices/*/driver | xargs -n 1 basename"
"""Tells the driver that each GPU is bound to."""
LOADED = "cat /sys/module/nvidia/version"
"""Tells the version of the loaded driver."""


@contextmanager
def busy_gpu(host: LabHost) -> Iterator[str]:
    """Let a process of the host's user hold GPU 0, and yield the name of its unit."""
    unit = "busy-gpu.service"
    # Returns when `sleep` itself runs, which finds the device open as its standard input.
    host.run(
        f"systemd-run --quiet --collect --unit={unit} --uid=ubuntu --service-type=exec"
        " --property=StandardInput=file:/dev/nvidia0 sleep infinity"
    )
    yield unit
    host.run(f"systemctl stop {unit}", check=False)


def break_dkms(host: LabHost, on: bool = True) -> None:
    """Let every build of the driver's modules fail, or work again."""
    fails = "/etc/rehearsal/dkms-fails"
    host.run(f"mkdir -p /etc/rehearsal; touch {fails}" if on else f"rm -f {fails}")
