"""The step across hosts, on this one machine: two launchers that meet at 127.0.0.1.

Two names for one machine are what the step itself finds out; where a test needs two machines, the
bundle's line that reads the boot id is replaced, as every other breakage here.
"""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pyinfra_gpu import on_host

pytestmark = pytest.mark.torch

SCHEMA = json.loads((Path(on_host.__file__).parent / "across.schema.json").read_text())
Replacement = tuple[str, str, str]
TWO_MACHINES: Replacement = (
    "ranks/across_rank.py",
    'Path("/proc/sys/kernel/random/boot_id").read_text().strip()',
    "options.host",
)
PATIENT: Replacement = ("launcher/across_assembly.py", "SILENCE_S = 15.0", "SILENCE_S = 4.0")


def bundle(*replacements: Replacement) -> bytes:
    """The shipped bundle with lines of its source replaced."""
    with zipfile.ZipFile(io.BytesIO(on_host.smoke_bundle())) as archive:
        sources = {name: archive.read(name) for name in archive.namelist()}
    for module, old, new in replacements:
        text = sources[f"smoke/{module}"].decode()
        assert text.count(old) == 1, f"{old!r} is not once in {module}"
        sources[f"smoke/{module}"] = text.replace(old, new).encode()
    return on_host.pack(sources)


def free_port() -> int:
    while True:
        with socket.socket() as one, socket.socket() as next_one:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            try:
                next_one.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


@dataclass
class Launcher:
    """One host's part, running below a folder of its own."""

    name: str
    folder: Path
    process: subprocess.Popen[str]

    def end(self, seconds: float = 120) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=seconds)
        return self.process.returncode, output

    @property
    def verdict(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.folder / "across.json").read_text())
        jsonschema.Draft202012Validator(SCHEMA).validate(document)
        return document

    @property
    def stamp(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "stamp.json").read_text()))

    def ranks_at(self, words: str) -> bool:
        """Whether one of its ranks has written these words into its journal."""
        return any(
            words in path.read_text() for path in self.folder.glob("across.json.logs/*.jsonl")
        )


def start(
    python: str,
    folder: Path,
    *bundles: tuple[Replacement, ...],
    names: tuple[str, ...] = ("one", "two"),
    here: tuple[str, ...] | None = None,
    deadline: int = 90,
) -> list[Launcher]:
    """Start a launcher for each of `here` (default: all `names`), each with its own bundle."""
    port = free_port()
    plan = {
        name: {"ranks": 2, "addresses": ["127.0.0.1"], "fingerprint": f"{name}-is"}
        for name in names
    }
    launchers = []
    for name, replacements in zip(here or names, bundles, strict=True):
        home = folder / name
        home.mkdir()
        (home / "smoke_test.pyz").write_bytes(bundle(*replacements))
        (home / "stamp.json").write_text(
            json.dumps({"fingerprint": f"{name}-is", "status": "pass", "across": {"hosts": {}}})
        )
        command = [
            *(python, str(home / "smoke_test.pyz"), "--across", name, "--mode", "rehearsal-cpu"),
            *("--hosts", json.dumps(plan), "--run-id", "run-1", "--port", str(port)),
            *("--deadline", str(deadline), "--allreduce-mib", "1"),
            *("--output", str(home / "across.json"), "--stamp", str(home / "stamp.json")),
        ]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=home
        )
        launchers.append(Launcher(name, home, process))
    return launchers


def failed(launchers: list[Launcher]) -> list[tuple[str, str]]:
    """Wait for all; return what each says has failed, and that none is stamped or proven."""
    found = []
    for launcher in launchers:
        code, output = launcher.end()
        assert code == 2, output
        assert "across" not in launcher.stamp
        told = launcher.verdict["failed"]
        found.append((told["id"], told["sentence"]))
    return found


def test_two_launchers_train_one_step_and_note_both_fingerprints(
    python: str, tmp_path: Path
) -> None:
    launchers = start(python, tmp_path, (TWO_MACHINES,), (TWO_MACHINES,))
    for launcher in launchers:
        code, output = launcher.end()
        assert code == 3, output  # passed, and is not proof of GPU hosts
        verdict = launcher.verdict
        assert verdict["status"] == "pass"
        assert sorted(each["host"] for each in verdict["ranks"]) == ["one", "one", "two", "two"]
        assert launcher.stamp["across"]["hosts"] == {"one": "one-is", "two": "two-is"}
        assert launcher.stamp["fingerprint"] == f"{launcher.name}-is"
        assert 0.9 < launcher.stamp["across"]["taylor_ratio"] < 1.1


BROKEN: dict[str, tuple[tuple[Replacement, ...], tuple[Replacement, ...], str, str]] = {
    "one machine under two names": ((), (), "S6.hosts", "the same machine"),
    "another torch on one host": (
        (TWO_MACHINES,),
        (TWO_MACHINES, ("ranks/across_rank.py", '"torch": torch_version', '"torch": "2.0.0"')),
        "S6.software",
        "two has torch 2.0.0",
    ),
    "a rank of one host that raises": (
        (TWO_MACHINES,),
        (
            TWO_MACHINES,
            (
                "ranks/across_rank.py",
                "    training_step.measure(",
                '    raise ValueError("broken") if rank % 2 else None\n    training_step.measure(',
            ),
        ),
        "S6.finished",
        "on two, rank",
    ),
    "gradients of one host that are not the mean": (
        (TWO_MACHINES,),
        (
            TWO_MACHINES,
            (
                "ranks/training_step.py",
                "return default_hooks.allreduce_hook(group, bucket)",
                "return default_hooks.allreduce_hook(group, bucket).then("
                "lambda done: done.value() * 1.5)",
            ),
        ),
        "S6.grad_bitwise",
        "are not the mean",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_wrong_on_one_host_fails_both_with_one_sentence(
    what: str, python: str, tmp_path: Path
) -> None:
    first, second, check, words = BROKEN[what]
    found = failed(start(python, tmp_path, first, second))
    assert {each for each, _ in found} == {check}
    assert all(words in sentence for _, sentence in found), found


def test_a_host_that_never_comes_is_named_at_the_meeting(python: str, tmp_path: Path) -> None:
    launchers = start(python, tmp_path, (), here=("one",), deadline=12)
    assert failed(launchers) == [("S6.met", "two did not come to the meeting within 4 s")]


def test_a_first_host_that_never_comes_is_named_with_what_was_tried(
    python: str, tmp_path: Path
) -> None:
    launchers = start(python, tmp_path, (), here=("two",), deadline=12)
    ((check, sentence),) = failed(launchers)
    assert check == "S6.met"
    assert "two could not reach one at port" in sentence
    assert "127.0.0.1: Connection refused" in sentence


def test_a_port_in_use_is_one_sentence(python: str, tmp_path: Path) -> None:
    (launcher,) = start(python, tmp_path, (), here=("one",), deadline=60)
    command = launcher.process.args
    time.sleep(2)  # it listens by now
    second = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)  # type: ignore[call-overload]
    launcher.process.send_signal(signal.SIGTERM)
    launcher.end()
    assert second.returncode == 2
    assert "Address already in use" in " ".join(second.stdout.split())


@pytest.mark.parametrize(
    ("number", "words"),
    [(signal.SIGKILL, "ended without a word"), (signal.SIGSTOP, "did not answer one for 4 s")],
    ids=["killed", "silent"],
)
def test_a_launcher_that_is_gone_ends_the_other_and_leaves_no_process(
    number: signal.Signals, words: str, python: str, tmp_path: Path
) -> None:
    changes = (TWO_MACHINES, PATIENT)
    one, two = start(python, tmp_path, changes, changes)
    limit = time.monotonic() + 60
    while not two.ranks_at('"import"') and time.monotonic() < limit:
        time.sleep(0.05)
    two.process.send_signal(number)
    try:
        ((check, sentence),) = failed([one])
    finally:
        two.process.send_signal(signal.SIGCONT)
        two.process.kill()
        two.end()
    assert check == "S6.finished"
    assert words in sentence
    limit = time.monotonic() + 10
    while _running(tmp_path) and time.monotonic() < limit:
        time.sleep(0.1)
    assert _running(tmp_path) == []


def _running(folder: Path) -> list[str]:
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if str(folder) in command and "pytest" not in command:
                found.append(command)
    return found
