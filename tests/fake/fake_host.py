"""Hosts for pyinfra's @fake connector: the probe's answer of a host in a chosen state."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import short
from pyinfra.api import Config, Inventory, State
from pyinfra.api.connect import connect_all
from pyinfra.api.deploy import add_deploy
from pyinfra.api.operations import run_ops
from pyinfra.api.state import StateStage
from pyinfra.context import ctx_state

from pyinfra_gpu import spec
from pyinfra_gpu.drift import environment, launcher_files, layout
from pyinfra_gpu.drift.fingerprint import fingerprint
from pyinfra_gpu.drift.training import stamp
from pyinfra_gpu.engine import converge as stage
from pyinfra_gpu.engine.declared import declared
from pyinfra_gpu.facts.parse import parse
from pyinfra_gpu.stacks.bundle import smoke_digest
from tasks.stages import base, cuda, driver, libcuda, preflight, pytorch, smoke, training
from tasks.stages import environment as environment_task

COMMIT = "0123456789abcdef0123456789abcdef01234567"
DATA: dict[str, object] = {
    "stack": "cpu-torch2.13",
    "training_repo": "https://example.org/tiny.git",
    "training_commit": COMMIT,
    "training_requirements": "pyproject.toml",
    "pytorch_lock": "ignore",  # test_lock.py has hosts with a lock, and without one
}
TASKS = (
    *(preflight, driver, base, cuda, libcuda, pytorch),
    *(environment_task, training, smoke),
)
PROBE = "pyinfra-gpu-probe"  # in the text of the probe, and in no other command

_PLAIN = {
    "system.kernel": "6.1.0-30-amd64",
    "system.architecture": "x86_64",
    "system.boot_id": "3d235e2e-1d37-47dd-ab61-25ad81ad7603",
    "system.cpus": "0-15",
    "system.memory": "MemTotal:       65842092 kB",
    "system.init": "systemd",
    "system.hostname": "ws1",
    "system.user": "ubuntu",
    "system.python3": "Python 3.11.2",
    "driver.nouveau": "0",
    "driver.nova": "0",
    "nvidia.asked": "0",
    "storage.free": "/dev/sda1 264212084 25749380 230641532 11% /",
    "storage.shm": "tmpfs 32342044 0 32342044 0% /dev/shm",
    "storage.noexec": None,
    "storage.volatile": None,
    "torch.python": "3.11.2",
    "torch.base": "/usr/bin/python3.11",
    "torch.installing": "0",
    "torch.uv": "uv 0.13.8 (x86_64-unknown-linux-gnu)",
    "training.requirements": "e0" * 32,
    "training.commit": COMMIT,
    "training.dirty_count": "0",
    "launcher.linger": "1",
    "launcher.manager": "1",
}
_LISTS = {
    "storage.inodes": ["16777216 16216947 /opt/pyinfra-gpu"],
    "system.os": ['PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"', 'VERSION_ID="12"', "ID=debian"],
    "gpus.device": [],
    "packages.installed": [
        *(
            "g++ 4:12.2.0-3",
            "ccache 4.7.5-1",
            "git 1:2.39.5",
            "python3-dev 3.11.2-1",
            "python3-venv 3.11.2-1",
        ),
    ],
    "packages.half_configured": [],
    "layout.hidden": [],
    "layout.left": [],
    "layout.target": [],
    "layout.unread": [],
    "torch.version_line": ["__version__ = '2.13.0+cpu'", "cuda = None", "git_version = 'cf30'"],
    "torch.distribution": ["torch-2.13.0+cpu.dist-info", "numpy-2.4.6.dist-info"],
    "torch.damaged": [],
    "torch.foreign": [],
    "torch.other": [],
    "torch.need": [],
    "training.dirty": [],
    "training.submodule": [],
    "launcher.run": [],
    "launcher.masked": [],
    "training.masked": [],
    "system.preload": [],
    "owned.closed": [],
    "owned.for_all": [],
}
_ABSENT = (
    "system.secure_boot",
    "driver.loaded",
    "driver.version_line",
    "driver.on_disk",
    "driver.license",
)
_NEVER = (
    "layout.open",
    "layout.owner_problem",
    "driver.libcuda",
    "driver.libml",
    "packages.lock",
    "torch.python_problem",
    "torch.declared",
    "training.lfs",
    "training.damaged",
    "packages.settings",
    "torch.elsewhere",
    "owned.preload_problem",
)


@dataclass
class FakeHost:
    """What a host looks like: completely deployed, except for what a test changes."""

    name: str = "ws1"
    data: dict[str, object] = field(default_factory=lambda: dict(DATA))
    plain: dict[str, str | None] = field(default_factory=dict)  # None: absent; "?why": unknown
    lists: dict[str, list[str]] = field(default_factory=dict)
    entries: dict[str, str | None] = field(default_factory=dict)  # path -> stat row, None: absent
    digests: dict[str, str] = field(default_factory=dict)  # path -> SHA-256 of a file of `entries`
    bare: bool = False
    answers: bool = True

    def spec(self) -> spec.HostSpec:
        return spec.resolve(self.data, self.name)

    def probe_lines(self) -> list[str]:
        wanted = self.spec()
        record = parse(self._lines(wanted, stamped=False))
        noted = {
            "training.stamp": stamp(record).model_dump_json(),
            "smoke.stamp": json.dumps(
                {
                    "fingerprint": fingerprint(wanted, record, smoke_digest()),
                    "status": "pass",
                    "mode": wanted.smoke.mode,
                    "finished": "2026-11-21T08:12:45Z",
                }
            ),
        }
        return self._lines(wanted, stamped=True, noted=noted)

    def _lines(
        self, wanted: spec.HostSpec, *, stamped: bool, noted: Mapping[str, str] | None = None
    ) -> list[str]:
        plain: dict[str, str | None] = {
            **_PLAIN,
            "system.hostname": self.name,
            "environment.text": environment.declared(wanted, "ubuntu")[0].content.decode(),
            **(noted or {}),
            "smoke.verdict": None,
        }
        lists = {**_LISTS, **self._layout(wanted)}
        if self.bare:
            for key in plain:
                if key.startswith(("torch.", "training.", "smoke.", "environment.")):
                    plain[key] = None
            plain |= {"torch.installing": "0", "training.dirty_count": "0"}
            for key in ("torch.version_line", "torch.distribution", "packages.installed"):
                lists[key] = []
        plain |= self.plain if stamped or not self.bare else {}
        lists |= self.lists
        verdict = plain["smoke.verdict"]
        if verdict and not verdict.startswith("?"):
            verdict = hashlib.sha256(verdict.encode()).hexdigest()
        plain["smoke.verdict_sha256"] = verdict
        return short.lines({**dict.fromkeys((*_ABSENT, *_NEVER)), **plain}, lists)

    def _layout(self, wanted: spec.HostSpec) -> dict[str, list[str]]:
        files = [*environment.declared(wanted, "ubuntu")]
        if wanted.training is not None:
            files += launcher_files.declared(wanted, wanted.training)
        rows: dict[str, str | None] = {
            path: f"41ed 0 root 4096 {path}" for path in layout.roots(wanted)
        }
        for path in (*layout.owners(wanted), wanted.paths.venv):
            rows[path] = f"41ed 1000 ubuntu 4096 {path}"
        rows[wanted.paths.lock] = f"81a0 0 root 0 {wanted.paths.lock}"
        for each in files:
            owner = "1000 ubuntu" if each.mode == "0600" else "0 root"
            mode, size = f"{0o100000 + int(each.mode, 8):x}", len(each.content)
            rows[each.path] = f"{mode} {owner} {size} {each.path}"
        if self.bare:
            rows = dict.fromkeys(rows)
        rows |= self.entries
        digests = [f"{_digest(each.content)}  {each.path}" for each in files if rows[each.path]]
        digests += [f"{digest}  {path}" for path, digest in self.digests.items()]
        return {
            "layout.asked": list(rows),
            "layout.absent": [path for path, row in rows.items() if row is None],
            "layout.stat": [row for row in rows.values() if row is not None],
            "layout.sha256": digests,
        }


@cache
def _digest(content: bytes) -> str:
    """The digest of a file; most hosts have the same ones, of which the launcher is large."""
    return hashlib.sha256(content).hexdigest()


class FakeRun:
    """pyinfra's real prepare and execute over fake hosts, through its Python interface.

    + asks: whether a person would be asked between the two, as without `-y`
    """

    def __init__(self, *hosts: FakeHost, asks: bool = True) -> None:
        self.hosts = {host.name: host for host in hosts}
        entries = [(f"@fake/{host.name}", self._data(host)) for host in hosts]
        self.state = State(Inventory((entries, {})), Config(), check_for_changes=asks)
        self.state.current_stage = StateStage.Prepare
        connect_all(self.state)

    @staticmethod
    def _data(host: FakeHost) -> dict[str, Any]:
        answer = {"stdout": host.probe_lines()} if host.answers else {"success": False}
        return {
            **host.data,
            "fake_responses": {PROBE: answer},
            "fake_delay": 0.0,
            "fake_delay_jitter": 0.0,
        }

    def prepare(self, *, leaves_alone: bool = False) -> FakeRun:
        """Load the story's stages for every host, as deploy.py does.

        + leaves_alone: give none to a host with nothing to do, as deploy.py does, too
        """
        from pyinfra.context import ctx_host

        for host in list(self.state.inventory):
            wanted = declared(host)
            with ctx_state.use(self.state), ctx_host.use(host):
                if not leaves_alone:
                    host.connector_data[stage._KEY] = False
            for task in TASKS:
                with ctx_state.use(self.state), ctx_host.use(host):
                    add_deploy(self.state, task, wanted, host=host)
        return self

    def execute(self) -> FakeRun:
        self._planned = {name: len(self.all_commands(name)) for name in self.hosts}
        self.state.current_stage = StateStage.Execute
        with ctx_state.use(self.state):
            run_ops(self.state)
        return self

    def commands(self, name: str) -> list[str]:
        """The commands that were run on a host, without the looks."""
        return [command for command in self.all_commands(name) if PROBE not in command]

    def executed(self, name: str) -> list[str]:
        """The commands of the execute phase alone, without the looks."""
        later = self.all_commands(name)[self._planned[name] :]
        return [command for command in later if PROBE not in command]

    def looks(self, name: str) -> int:
        return sum(PROBE in command for command in self.all_commands(name))

    def all_commands(self, name: str) -> list[str]:
        host = self.state.inventory.get_host(f"@fake/{name}")
        return [str(command) for command in host.connector.executed_commands]

    def plan(self, name: str) -> dict[str, bool]:
        """Operation name -> whether it would change something."""
        host = self.state.inventory.get_host(f"@fake/{name}")
        return {
            next(iter(self.state.op_meta[op_hash].names)): bool(data.operation_meta.will_change)
            for op_hash, data in self.state.ops[host].items()
        }

    def changing(self, name: str) -> list[str]:
        return [operation for operation, changes in self.plan(name).items() if changes]

    def failed(self) -> set[str]:
        return {host.name.removeprefix("@fake/") for host in self.state.failed_hosts}
