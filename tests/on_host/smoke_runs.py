"""Real runs of the smoke test, whole or broken, for the tests beside this file.

The product has no hooks for this. A broken bundle is the real one with one line of its source
replaced, so it is the shipped launcher and judge that must notice.
"""

from __future__ import annotations

import functools
import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyinfra_gpu import on_host
from pyinfra_gpu.facts.verdict import Verdict
from pyinfra_gpu.stacks.bundle import smoke_bundle

UNCOMPILED = {"TORCHDYNAMO_DISABLE": "1"}
"""What compiling takes is time; the runs that are about it do without this."""
PASSED_BUT_NOT_PROOF, FAILED = 3, 2
NO_TORCH = "no torch here; set PYINFRA_GPU_TORCH_PYTHON to a Python that has it"
Replacement = tuple[str, str, str]
"""A module, and text of it that is replaced by another."""


@functools.cache
def torch_python(*beside: str) -> str | None:
    """Return a Python that has torch, and what it must have beside it, None if there is none.

    It is looked for and not imported, which takes three seconds: one that cannot be imported is a
    test that fails.
    """
    looks = (
        "import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, {})))"
    )
    command = looks.format(["torch", *beside])
    for python in (os.environ.get("PYINFRA_GPU_TORCH_PYTHON"), sys.executable):
        if python and subprocess.run([python, "-c", command], capture_output=True).returncode == 0:
            return python
    return None


@dataclass(frozen=True)
class Run:
    """What one smoke test left behind."""

    code: int
    output: str
    directory: Path

    @property
    def verdict(self) -> dict[str, Any]:
        place = self.directory / "verdict.json"
        assert place.exists(), f"no verdict, exit code {self.code}:\n{self.output}"
        found = Verdict.read(place.read_text())
        assert isinstance(found, Verdict), found
        return found.as_json()

    def check(self, check_id: str) -> dict[str, Any]:
        return next(each for each in self.verdict["checks"] if each["id"] == check_id)

    def evidence(self) -> list[dict[str, Any]]:
        path = self.directory / "verdict.json.logs/evidence.json"
        return list(json.loads(path.read_text()))


@dataclass(frozen=True)
class Plan:
    """A smoke test to run: what is replaced in the bundle, and how it is called.

    + deadline: what does not hang never waits for it, and a machine that does something else
      takes long
    + mounts: shell commands in a mount namespace of its own, before the test
    + check: that must fail; words: what its sentence must say
    """

    replacements: tuple[Replacement, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    deadline: int = 600
    allreduce_mib: int = 1
    ranks: int = 2
    mounts: str = ""
    check: str = ""
    words: tuple[str, ...] = ()


def broken(check: str, words: str | tuple[str, ...], *parts: str, **how: Any) -> Plan:
    """Return a plan with the bundle changed by `parts`: module, old text, new text, module ..."""
    soon = ("launcher.py", "_AFTER_FAILURE_S = 5.0", "_AFTER_FAILURE_S = 0.1")
    replacements = (soon, *zip(parts[::3], parts[1::3], parts[2::3], strict=True))
    words = (words,) if isinstance(words, str) else words
    how["environment"] = {**UNCOMPILED, **how.get("environment", {})}
    return Plan(replacements, check=check, words=words, **how)


def bundle(*replacements: Replacement) -> bytes:
    """Return the shipped bundle with text of its source replaced."""
    with zipfile.ZipFile(io.BytesIO(smoke_bundle())) as shipped:
        sources = {name: shipped.read(name).decode() for name in shipped.namelist()}
    for module, old, new in replacements:
        assert sources[f"smoke/{module}"].count(old) == 1, f"{old!r} is not once in {module}"
        sources[f"smoke/{module}"] = sources[f"smoke/{module}"].replace(old, new)
    return on_host._zipapp("", {name: text.encode() for name, text in sources.items()})


def start(python: str, directory: Path, plan: Plan, **more: Any) -> subprocess.Popen[str]:
    """Start a smoke test that writes below `directory`; `more` is what else it is asked for."""
    file = directory / "smoke_test.pyz"
    file.write_bytes(bundle(*plan.replacements))
    asked = {
        "mode": "rehearsal-cpu",
        "fingerprint": "c0ffee",
        "ranks": plan.ranks,
        "deadline_s": plan.deadline,
        "allreduce_mib": plan.allreduce_mib,
        "output": str(directory / "verdict.json"),
        **more,
    }
    command = [python, str(file), json.dumps(asked)]
    if plan.mounts:
        root = [] if os.geteuid() == 0 else ["--map-root-user"]
        script = f'set -e; {plan.mounts}; exec "$@"'
        command = ["unshare", "--mount", *root, "sh", "-c", script, "sh", *command]
    return subprocess.Popen(
        command,
        env={**os.environ, **plan.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(python: str, directory: Path, plan: Plan, **more: Any) -> Run:
    """Run `plan` to its end, and see that no process of it is left."""
    process = start(python, directory, plan, **more)
    output, _ = process.communicate(timeout=2 * plan.deadline + 120)
    assert processes_of(directory) == []
    return Run(process.returncode, output, directory)


def processes_of(directory: Path) -> list[int]:
    """Return the live processes with this run's bundle on their command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if str(directory / "smoke_test.pyz").encode() in command:
            found.append(int(process.name))
    return found
