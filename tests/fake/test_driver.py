"""The driver stage in pyinfra's real prepare and execute: acts where it should, and only there."""

from __future__ import annotations

import base64
import shlex
from typing import Any

import pytest
from gpu_host import (
    DRIVER_PACKAGES,
    KERNEL,
    KEYRING,
    URL,
    VERSION,
    GpuHost,
    GpuRun,
    bare_gpu_host,
    sources,
)

from pyinfra_gpu.engine import write
from pyinfra_gpu.engine.ask import Answer, ask
from pyinfra_gpu.engine.journal import Journal
from pyinfra_gpu.packages import files
from pyinfra_gpu.spec import system_files
from tasks.stages import driver

TRUST = "Driver | Add NVIDIA's apt repository"
INSTALL = "Driver | Install the driver"
LOAD, PERSIST = "Driver | Load the kernel module", "Driver | Enable nvidia-persistenced"
ALL = [TRUST, INSTALL, LOAD]
OLD = "580.82.07"


def run(*hosts: GpuHost) -> GpuRun:
    return GpuRun(*hosts, tasks=(driver,))


def spare() -> GpuHost:
    """pyinfra ends a run with an exception when its last host has failed."""
    return GpuHost(name="ws2")


class Reported:
    """Problems of one run, by way of the journal that the report uses."""

    def __init__(self, made: GpuRun) -> None:
        self.journal = Journal(lambda state, journal: None)
        made.state.add_callback_handler(self.journal)  # type: ignore[no-untyped-call]

    @property
    def problem(self) -> str:
        return "".join(each.problem or "" for each in self.journal.of("@fake/ws1"))

    @property
    def warnings(self) -> list[str]:
        entries = [each for host in self.journal.entries for each in self.journal.of(host)]
        return [text for entry in entries for text in entry.warnings]


def executed(host: GpuHost) -> tuple[GpuRun, Reported]:
    made = run(host, spare())
    reported = Reported(made)
    return made.prepare().execute(), reported


def test_a_healthy_host_is_looked_at_once_and_left_alone() -> None:
    made = run(GpuHost()).prepare()
    assert made.changing("ws1") == []
    assert made.looks("ws1") == 1
    assert made.execute().commands("ws1") == []


def test_a_fresh_host_gets_everything_and_a_plan_does_nothing() -> None:
    made = run(bare_gpu_host()).prepare()
    assert made.changing("ws1") == ALL
    touching = ("install", "apt-get", "apt-mark", "reboot", "modprobe -r", "rm ")
    assert not [c for c in made.commands("ws1") if any(word in c for word in touching)]
    assert made.failed() == set()


def packages(*changed: str) -> dict[str, list[str]]:
    """The driver's packages, but for rows that are given as "NAME VERSION HELD COMPLETE"."""
    names = {row.split()[0] for row in changed}
    kept = [f"{name} {VERSION}-1 1 1" for name in DRIVER_PACKAGES if name not in names]
    gone = [row for row in changed if len(row.split()) == 4]
    return {"nvidia.packages": [*kept, *gone]}


NOT_LOADED: dict[str, str | None] = {"driver.loaded": None, "driver.open_modules": None}
OTHER_LOADED = {
    "driver.loaded": OLD,
    "driver.open_modules": True,
}
DEVIATIONS: dict[str, tuple[GpuHost, list[str]]] = {
    "the pins": (GpuHost(texts={files.PREFERENCES: b"x"}), [TRUST]),
    "a file": (GpuHost(reported={"nvidia.lost": ["libcuda1 gone /usr/lib/libcuda.so"]}), [INSTALL]),
    "headers": (GpuHost(reported={"kernel.headers": {KERNEL: False}}), [INSTALL]),
    "a hold": (GpuHost(reported=packages(f"libcuda1 {VERSION}-1 0 1")), [INSTALL]),
    "the blacklist": (GpuHost(texts={system_files.MODPROBE: None}), [TRUST]),
    "nothing loaded": (GpuHost(reported=NOT_LOADED), [LOAD]),
    "nouveau": (GpuHost(reported={**NOT_LOADED, "driver.nouveau": True}), [LOAD]),
    "persistenced": (GpuHost(reported={"driver.persistenced": "inactive"}), [PERSIST]),
    "a runfile driver": (GpuHost(reported={"driver.runfile": True}), []),
}


@pytest.mark.parametrize("name", DEVIATIONS)
def test_a_deviation_makes_exactly_its_own_operation_act(name: str) -> None:
    host, operations = DEVIATIONS[name]
    made = run(host).prepare()
    assert made.changing("ws1") == operations
    assert made.failed() == set()


def test_a_second_list_of_the_repository_is_renamed() -> None:
    second = "/etc/apt/sources.list.d/cuda.list"
    rows = (f"{files.SOURCES}:deb {URL}/ /", f"{second}:deb {URL} /")
    made, _ = executed(GpuHost(reported=sources(*rows)))
    assert any(f"mv -f {second} {second}.disabled" in each for each in made.executed("ws1"))


PINS = {files.PREFERENCES: b"x"}
PINS = {files.PREFERENCES: b"x"}
ON_OFFER = [
    f"{name} | {each}-1 | http://x Packages"
    for name in ("nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-persistenced")
    for each in (OLD, VERSION, "590.48.01")
]


def test_a_version_that_nobody_offers_is_refused_before_the_pins_name_it() -> None:
    offer = {"apt-cache madison": {"stdout": ON_OFFER}}
    for version, pins in ((VERSION, {}), ("580.999.01", {}), ("580.999.01", {"texts": PINS})):
        data = {**GpuHost().data, "driver_version": version}
        made, reported = executed(GpuHost(data=data, responses=offer, **pins))
        assert (made.failed() == set()) is (version == VERSION)
        assert not any(files.PREFERENCES in each for each in made.commands("ws1"))
        if version != VERSION:
            said = f"is not on offer; of branch 580 there is {VERSION}, {OLD}; the driver"
            assert said in reported.problem


def test_a_toolkit_that_nobody_offers_is_refused_before_the_driver_is_replaced() -> None:
    nothing = {"apt-cache madison cuda-toolkit": {"stdout": []}}
    made, reported = executed(GpuHost(texts=PINS, reported=packages(), responses=nothing))
    assert "no package source has cuda-toolkit-13-0" in reported.problem
    assert not any(files.PREFERENCES in each for each in made.commands("ws1"))


NVIDIA = "NVIDIA CUDA:mirror.example [amd64]"


def answer(*lines: str, holds: tuple[str, ...] = (), uris: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"stdout": [*lines, *(f"Hold {name}" for name in holds), *uris, "Done"]}


def deploy(
    simulated: dict[str, Any], companion: str = OLD, **responses: Any
) -> tuple[GpuRun, Reported, str]:
    """A host with one companion of another version, apt answering as told; what was run."""
    host = GpuHost(
        reported=packages(f"nvidia-modprobe {companion}-1 1 1"),
        responses={**responses, "--simulate": simulated},
    )
    made, reported = executed(host)
    return made, reported, "\n".join(made.executed("ws1"))


GOOD = f"Inst nvidia-modprobe [{OLD}-1] ({VERSION}-1 {NVIDIA})"


@pytest.mark.parametrize("ends", ["well", "badly"])
def test_what_a_transaction_takes_off_hold_the_same_command_puts_back(ends: str) -> None:
    """However it ends, and whatever the run fails at after it: this host is never as declared."""
    failing = {"success": False, "stderr": ["dpkg: error processing package nvidia-modprobe"]}
    simulated = answer(GOOD, holds=("nvidia-modprobe", "dkms"))
    made, reported, commands = deploy(
        simulated, **({"Pre-Install-Pkgs": failing} if ends == "badly" else {})
    )
    assert made.failed() == {"ws1"}
    assert ("still not as declared" in reported.problem) == (ends == "well")
    (transaction,) = [each for each in made.executed("ws1") if "Pre-Install-Pkgs" in each]
    assert "apt-mark hold" in transaction
    assert held_in(transaction) == "nvidia-modprobe"
    assert "apt-mark hold" not in commands.replace(transaction, "")


def held_in(transaction: str) -> str:
    """What a transaction is told to put back on hold, from its command line."""
    inner = [transaction]
    while "transaction.sh" not in inner:
        inner = shlex.split(next(each for each in inner if "transaction.sh" in each))
    return inner[inner.index("transaction.sh") + 3]


def test_the_pinned_key_is_put_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []

    def asked(*arguments: Any, **more: Any) -> Answer:
        sent.append(more["_stdin"])
        return ask(*arguments, **more)

    monkeypatch.setattr(write, "ask", asked)
    made, _ = executed(GpuHost(keyring=None, responses=keyring_answer(KEYRING)))
    commands = made.executed("ws1")
    assert [c for c in commands if "SHA256:" + "ab" * 32 in c and f"{URL}/cuda-keyring_1.1-1" in c]
    written = f"write.sh {system_files.KEYRING} {len(KEYRING)} 0644 '' 1"
    assert [c for c in commands if written in c]
    assert base64.b64decode(sent[0]) == KEYRING


BUSY = {"driver.users": ["pid 812 (python3)"]}
NOUVEAU = {**NOT_LOADED, "driver.nouveau": True}
OTHER_BOOT = "77777777-1d37-47dd-ab61-25ad81ad7603"
NEVER = {**GpuHost().data, "driver_reboot": "never"}
HALF = {"packages.half_configured": ["libc-bin"]}
NOTED = f"1763777520 {OTHER_BOOT} nouveau is bound to the GPUs\n"
FOLLOWING = "6.1.0-31-amd64"
SIMULATED, RESTART = "--simulate", "reboot.sh"
PRESENT: dict[str, object] = {
    **{k: v for k, v in GpuHost().data.items() if not k.startswith("driver_")},
    "driver_source": "present",
}


def kernels(module: str | None, *, running: bool = True) -> dict[str, Any]:
    """A newer kernel beside the running one, with this module; whether that has its headers."""
    both = {"kernel.installed": [KERNEL, FOLLOWING], "kernel.modules": {FOLLOWING: module}}
    return {**both, "kernel.headers": {KERNEL: running, FOLLOWING: True}}


def keyring_answer(keyring: bytes) -> dict[str, Any]:
    return {"apt-helper": [base64.b64encode(keyring).decode()]}


def apt(*lines: str, **reported: Any) -> dict[str, Any]:
    return {SIMULATED: answer(*lines), **reported}


Shown = tuple[GpuHost, list[str], list[str], str]
"""A host; what is run there; what is not; what is said of it, where it fails."""

RUNS: dict[str, Shown] = {
    "sources that cannot be read": (
        GpuHost(reported={"nvidia.sources": "?no"}),
        [], ["apt"], "cannot tell what is there",
    ),
    "somebody else's driver": (
        GpuHost(
            data=PRESENT, keyring=None, texts=dict.fromkeys((*system_files.ALL, *files.ALL)),
            reported=packages(f"nvidia-modprobe {OLD}-1 0 1"),
        ),
        [], ["apt", "write.sh"], "",
    ),
    "what would go ahead of the rest": (
        GpuHost(
            reported=packages(f"nvidia-modprobe {OLD}-1 1 1"),
            responses=apt(f"Inst libcuda1 [{VERSION}-1] (580.105.08-1 {NVIDIA})"),
        ),
        [], ["Pre-Install-Pkgs"], "as the rest",
    ),
    **{
        f"another key {keyring[:9]!r}": (
            GpuHost(keyring=None, responses=keyring_answer(keyring)),
            [], [system_files.KEYRING], "before you trust it",
        )
        for keyring in (KEYRING * 2, b"<html>")
    },
    "a module that is not loaded and cannot be": (
        GpuHost(
            reported=NOT_LOADED,
            responses={"reload_module": {"success": False, "stderr": ["modprobe: key rejected"]}},
        ),
        ["modprobe"], [RESTART], "loading it failed (modprobe: key rejected)",
    ),
    "under a training run holds are set, and nothing else is": (
        GpuHost(
            reported={**packages(f"libcuda1 {OLD}-1 0 1"), "launcher.runs": ["tick-1"]},
        ),
        ["apt-mark hold libcuda1"], ["Pre-Install-Pkgs", "--reinstall", "modprobe"], "",
    ),
    "headers that do not exist": (
        GpuHost(
            reported=kernels(VERSION, running=False),
            responses=apt("E: Unable to locate package linux-headers"),
        ),
        [], ["Pre-Install-Pkgs"],
        f"no headers for kernel {KERNEL}; boot a kernel whose headers are on offer (the newest",
    ),
    "an idle host with another module": (
        GpuHost(reported=OTHER_LOADED), ["modprobe -r"], ["kill"], "a reboot is required",
    ),
    "a job": (
        GpuHost(reported={**OTHER_LOADED, **BUSY}), [], ["reboot", "modprobe"],
        "the GPUs are in use by pid 812 (python3): run again when they are idle",
    ),
    "nobody knows who is at work": (
        GpuHost(reported={**OTHER_LOADED, "driver.users": "?no right"}),
        [], [RESTART, "modprobe"], "who uses the GPUs is not known (no right)",
    ),
    # A power cut behind the driver's packages left a trigger of libc-bin's to be run.
    "an installation is finished before": (
        GpuHost(
            reported={**NOUVEAU, **HALF},
        ),
        ["--configure -a"], [RESTART], "in use by libc-bin, which is not fully installed",
    ),
    "no reboot is allowed, so nothing is finished for it": (
        GpuHost(reported={**NOUVEAU, **HALF}, data=NEVER), [], ["--configure -a", "modprobe"],
        "driver_reboot = 'never' is declared: run `sudo systemctl reboot` there",
    ),
    "no reboot is owed, and the package is somebody's": (GpuHost(reported=HALF), [], ["apt"], ""),
    "somebody is at work, or installs packages": (
        GpuHost(
            reported={**NOUVEAU, "power.sessions": ["alice on pts/0"]},
        ),
        [], [RESTART], "it is in use by alice on pts/0",
    ),
    "what one reboot did not cure": (
        GpuHost(reported={**NOUVEAU, "power.reboots": NOTED}),
        [], [RESTART, "modprobe"],
        "one reboot for that did not help, so none follows",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_what_is_run_and_what_is_said(name: str) -> None:
    shown(*RUNS[name])


def shown(host: GpuHost, parts: list[str], never: list[str], said: str) -> None:
    made, reported = executed(host)
    text = "\n".join(made.executed("ws1"))
    assert [part for part in parts if part not in text] == []
    assert [part for part in never if part in text] == []
    assert said in reported.problem
    assert not said or made.failed() == {"ws1"}


def test_persistenced_that_cannot_start_stops_the_run_there_and_says_what_to_declare() -> None:
    made, reported = executed(GpuHost(reported={"driver.persistenced": "failed"}))
    assert "still not as declared: nvidia-persistenced is failed" in reported.problem
    assert "journalctl -u nvidia-persistenced" in reported.problem
    assert "declare driver_persistence = False" in reported.problem
    assert made.failed() == {"ws1"}
