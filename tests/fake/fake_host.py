"""Hosts for pyinfra's @fake connector: the probe's answer of a host in a chosen state."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pyinfra.api import Config, Inventory, State
from pyinfra.api.connect import connect_all
from pyinfra.api.deploy import add_deploy
from pyinfra.api.operations import run_ops
from pyinfra.api.state import StateStage
from pyinfra.context import ctx_config, ctx_host, ctx_state

from pyinfra_gpu import spec
from pyinfra_gpu.engine import converge as stage
from pyinfra_gpu.engine.declared import declared
from pyinfra_gpu.facts.parse import parse
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host.probe import look
from pyinfra_gpu.stacks.bundle import smoke_digest
from pyinfra_gpu.stages.environment import findings as environment
from pyinfra_gpu.stages.fingerprint import fingerprint
from pyinfra_gpu.stages.launcher import findings as launcher
from pyinfra_gpu.stages.layout import findings as layout
from pyinfra_gpu.stages.training.findings import stamp
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

FACTS: dict[str, Any] = {
    "nvidia": False,
    "system.kernel": "6.1.0-30-amd64",
    "system.architecture": "x86_64",
    "system.boot_id": "3d235e2e-1d37-47dd-ab61-25ad81ad7603",
    "system.cpu_count": 16,
    "system.ram_mib": 64298,
    "system.init": "systemd",
    "system.user": "ubuntu",
    "system.python3": "3.11.2",
    "system.os_id": "debian",
    "system.os_version": "12",
    "system.os_name": "Debian GNU/Linux 12 (bookworm)",
    "driver.nouveau": False,
    "driver.nova": False,
    "storage.free_mib": 225235,
    "storage.shm_mib": 31584,
    "packages.installed": {
        "g++": "4:12.2.0-3",
        "ccache": "4.7.5-1",
        "git": "1:2.39.5",
        "python3-dev": "3.11.2-1",
        "python3-venv": "3.11.2-1",
    },
    "torch.python": "3.11.2",
    "torch.base": "/usr/bin/python3.11",
    "torch.installing": False,
    "torch.uv": "0.13.8",
    "torch.version": "2.13.0+cpu",
    "torch.git_version": "cf30",
    "torch.distributions": {"torch": "2.13.0+cpu", "numpy": "2.4.6"},
    "torch.damaged_others": {},
    "training.requirements_sha256": "e0" * 32,
    "training.commit": COMMIT,
    "training.dirty_count": 0,
    "launcher.linger": True,
    "launcher.manager": True,
    **dict.fromkeys(("torch.python_problem", "torch.declared", "torch.elsewhere")),
    **dict.fromkeys(("driver.loaded", "driver.open_modules", "driver.on_disk")),
    **dict.fromkeys(("driver.libcuda", "driver.libml")),
    **dict.fromkeys(("storage.noexec", "layout.open", "layout.owner_problem")),
    **dict.fromkeys(("packages.lock_holder", "system.secure_boot")),
    **dict.fromkeys(("training.lfs", "training.damaged")),
    **dict.fromkeys(
        (
            *("gpus.devices", "packages.half_configured", "torch.damaged", "torch.foreign"),
            *("torch.needs", "training.dirty", "training.submodules"),
            "launcher.runs",
            *("driver.closed", "environment.for_all"),
        ),
        (),
    ),
}
"""What the probe answers of a host without a GPU on which all is as declared."""
BARE: dict[str, Any] = {
    **{key: None for key in FACTS if key.startswith(("torch.", "training."))},
    **dict.fromkeys(("torch.damaged", "torch.foreign", "torch.needs", "training.dirty"), ()),
    **dict.fromkeys(("training.submodules"), ()),
    **{key: {} for key in ("torch.damaged_others", "torch.distributions", "packages.installed")},
    **dict.fromkeys(("training.stamp_text", "smoke.stamp")),
    "torch.installing": False,
    "training.dirty_count": 0,
}
"""The same of a host on which nothing was done yet."""
_ROWS = {
    "nvidia.packages": ("name", "version", "held", "complete"),
    "nvidia.lost": ("package", "state", "path"),
    "libcuda.cache": ("name", "path", "real"),
    "libcuda.links": ("kind", "path", "target", "real"),
}
"""What tests write as rows of words: "libcuda1 580.95.05-1 1 1"; "-" is None, " => " a blank."""


def reported_value(key: str, value: Any) -> Any:
    """A fact as the probe answers it; "?why" is one that the host would not tell."""
    if key == "power.reboots" and not str(value).startswith("?"):
        found = re.findall(r"(?m)^(\d{1,12}) (\S{1,64}) (.+)$", value or "")
        return [{"at": int(at), "boot_id": boot, "reason": reason} for at, boot, reason in found]
    if isinstance(value, str) and value.startswith("?"):
        return {"?": value[1:]}
    if key not in _ROWS or isinstance(value, dict):
        return value
    spelt = [row.replace(" => ", " ").split(" ", len(_ROWS[key]) - 1) for row in value]
    rows: list[dict[str, Any]] = [
        {name: _word(name, word) for name, word in zip(_ROWS[key], row, strict=True)}
        for row in sorted(spelt, key=lambda row: row[0] if key.startswith("nvidia") else "")
    ]
    return {row.pop("path"): row for row in rows} if key == "libcuda.links" else rows


def _word(name: str, word: str) -> str | bool | None:
    return word == "1" if name in ("held", "complete") else None if word == "-" else word


def entry(kind: str, mode: str, owner: str = "root", **more: Any) -> dict[str, Any]:
    """What the probe tells of a file ("file") or a folder ("dir"); of ours, its content stays."""
    return {"kind": kind, "mode": mode, "owner": owner, **more}


def lines(answer: Mapping[str, Any]) -> list[str]:
    """An answer as a host prints it."""
    return [look.FIRST_LINE, json.dumps(answer), look.LAST_LINE]


@dataclass
class FakeHost:
    """What a host looks like: completely deployed, except for what a test changes.

    + told: "PART.FIELD" -> what the probe answers otherwise; see `told_value`
    + entries: path -> what stands there, as `entry` returns it; None: nothing
    """

    name: str = "ws1"
    data: dict[str, object] = field(default_factory=lambda: dict(DATA))
    reported: dict[str, Any] = field(default_factory=dict)
    entries: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    bare: bool = False
    answers: bool = True

    def spec(self) -> spec.HostSpec:
        return spec.resolve(self.data, self.name)

    def record(self) -> Record:
        """What a look at the host brings."""
        return parse(self.probe_lines())

    def probe_lines(self) -> list[str]:
        return lines(self.answer())

    def answer(self) -> dict[str, Any]:
        """What the probe tells of this host, with the notes of a deploy that looked before it."""
        wanted = self.spec()
        record = parse(lines(self._answer(wanted, {} if self.bare else self.reported)))
        passed = {
            "fingerprint": fingerprint(wanted, record, smoke_digest()),
            "mode": wanted.smoke.mode,
            "verdict": None,
        }
        noted = {
            "training.stamp_text": stamp(record).model_dump_json(),
            "smoke.stamp": json.dumps(passed),
        }
        return self._answer(wanted, {**({} if self.bare else noted), **self.reported})

    def _facts(self, wanted: spec.HostSpec) -> dict[str, Any]:
        """What a host answers on which all is as declared."""
        own = {"smoke.verdict": None}
        return {**FACTS, **own, **(BARE if self.bare else {})}

    def _answer(self, wanted: spec.HostSpec, reported: Mapping[str, Any]) -> dict[str, Any]:
        facts = {**self._facts(wanted), **reported}
        verdict = facts["smoke.verdict"]
        known = verdict and not verdict.startswith("?")
        facts["smoke.verdict_sha256"] = digest(verdict.encode()) if known else verdict
        there: dict[str, dict[str, Any] | None] = self._layout(wanted)
        for path, other in self.entries.items():
            usual = there.get(path) or {}
            same = other is not None and other["kind"] == usual.get("kind")
            there[path] = {**usual, **(other or {})} if same else other
        facts["layout.entries"] = {k: v or {"kind": "absent"} for k, v in there.items()}
        facts["layout.left"] = []
        if isinstance(modules := facts.get("kernel.modules"), dict):
            facts["kernel.modules"] = {facts["system.kernel"]: facts["driver.on_disk"], **modules}
        hidden = () if facts["nvidia"] else look.NVIDIA_KEYS
        answer = {key: reported_value(key, v) for key, v in facts.items() if key not in hidden}
        owners = {key: answer.pop(key) for key in [*answer] if key in look.OWNERS_KEYS}
        return {**answer, "owner": json.dumps(owners)}

    def _layout(self, wanted: spec.HostSpec) -> dict[str, dict[str, Any] | None]:
        """What stands at the paths of ours."""
        files = [*environment.declared(wanted, "ubuntu")]
        if wanted.training is not None:
            files += launcher.declared(wanted, wanted.training)
        theirs = (*layout.owners(wanted), wanted.paths.venv)
        found = {
            **{path: entry("dir", "0755") for path in layout.roots(wanted)},
            **{path: entry("dir", "0755", "ubuntu") for path in theirs},
            wanted.paths.lock: entry("file", "0640", size=0, sha256=digest(b"")),
        }
        for each in files:
            owner = "ubuntu" if each.mode == "0600" else "root"
            size, sha256 = len(each.content), digest(each.content)
            found[each.path] = entry("file", each.mode, owner, size=size, sha256=sha256)
        return {**dict.fromkeys(found)} if self.bare else {**found}


@cache
def digest(content: bytes) -> str:
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
        # Whatever ran before in this process left its own there, and with it at how many hosts an
        # operation works at once.
        ctx_config.set(self.state.config)  # type: ignore[no-untyped-call]
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
