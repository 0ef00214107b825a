"""The driver stage in pyinfra's real prepare and execute: acts where it should, and only there."""

from __future__ import annotations

import base64
import shlex
from typing import Any

import pytest
import short
from gpu_host import (
    DRIVER_PACKAGES,
    KERNEL,
    KEYRING,
    URL,
    VERSION,
    GpuHost,
    GpuRun,
    bare_gpu_host,
)
from pyinfra.context import ctx_state

from pyinfra_gpu.engine import write
from pyinfra_gpu.engine.ask import Answer, ask
from pyinfra_gpu.engine.journal import Journal
from pyinfra_gpu.facts.parse import parse
from pyinfra_gpu.operations import driver_running
from pyinfra_gpu.packages import files
from pyinfra_gpu.report import run as report
from pyinfra_gpu.spec import system_files
from tasks.driver import driver
from tasks.environment import environment

TRUST = "Driver | Add NVIDIA's apt repository"
INSTALL, SETTLE = "Driver | Install the driver", "Driver | Build modules and update the initramfs"
LOAD, PERSIST = "Driver | Load the kernel module", "Driver | Enable nvidia-persistenced"
ALL = [TRUST, INSTALL, LOAD]
OLD = "580.82.07"


def run(*hosts: GpuHost) -> GpuRun:
    return GpuRun(*hosts, tasks=(driver,))


def spare() -> GpuHost:
    """pyinfra ends a run with an exception when its last host has failed."""
    return GpuHost(name="ws2")


class Told:
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


def executed(host: GpuHost) -> tuple[GpuRun, Told]:
    made = run(host, spare())
    told = Told(made)
    return made.prepare().execute(), told


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
    return {"nvidia.package": [*kept, *gone]}


NOT_LOADED: dict[str, str | None] = {"driver.loaded": None, "driver.version_line": None}
OTHER_LOADED = {
    "driver.loaded": OLD,
    "driver.version_line": f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {OLD}",
}
DEVIATIONS: dict[str, tuple[GpuHost, list[str]]] = {
    "the pins": (GpuHost(texts={files.PREFERENCES: b"x"}), [TRUST]),
    "unattended-upgrades": (GpuHost(texts={files.UNATTENDED: None}), [TRUST]),
    "a file": (GpuHost(lists={"nvidia.file": ["libcuda1 gone /usr/lib/libcuda.so"]}), [INSTALL]),
    "headers": (GpuHost(lists={"kernel.headers": [f"{KERNEL} 0"]}), [INSTALL]),
    "a hold": (GpuHost(lists=packages(f"libcuda1 {VERSION}-1 0 1")), [SETTLE]),
    "the blacklist": (GpuHost(texts={system_files.MODPROBE: None}), [TRUST]),
    "the initramfs": (GpuHost(plain={"kernel.initramfs": "stale"}), [SETTLE]),
    "the module": (GpuHost(plain={"driver.on_disk": None, "driver.license": None}), [SETTLE]),
    "nothing loaded": (GpuHost(plain=NOT_LOADED), [LOAD]),
    "nouveau": (GpuHost(plain={**NOT_LOADED, "driver.nouveau": "1"}), [LOAD]),
    "persistenced": (GpuHost(plain={"driver.persistenced": "inactive"}), [PERSIST]),
    "a runfile driver": (GpuHost(plain={"driver.runfile": "1"}), []),
    "a reboot that helped": (GpuHost(plain={"power.reboots": f"1 {'7' * 36} x\n"}), [LOAD]),
}


@pytest.mark.parametrize("name", DEVIATIONS)
def test_a_deviation_makes_exactly_its_own_operation_act(name: str) -> None:
    host, operations = DEVIATIONS[name]
    made = run(host).prepare()
    assert made.changing("ws1") == operations
    assert made.failed() == set()


UNKNOWN: dict[str, GpuHost] = {
    "the sources": GpuHost(
        plain={"nvidia.source_line": "?no permission"}, lists={"nvidia.source_line": []}
    ),
    "the packages": GpuHost(plain={"nvidia.package": "?no dpkg"}, lists={"nvidia.package": []}),
    "persistenced": GpuHost(plain={"driver.persistenced": "?systemctl is not there"}),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_what_cannot_be_read_is_refused_and_never_acted_upon(what: str) -> None:
    made, told = executed(UNKNOWN[what])
    assert made.failed() == {"ws1"}
    assert made.commands("ws1") == []
    assert "cannot tell what is there" in told.problem


PINS = {files.PREFERENCES: b"x"}
ON_OFFER = [f"libcuda1 | {each}-1 | http://x Packages" for each in (OLD, VERSION, "590.48.01")]


def test_a_version_that_nobody_offers_is_refused_before_the_pins_name_it() -> None:
    offer = {"apt-cache madison": {"stdout": ON_OFFER}}
    for version, pins in ((VERSION, {}), ("580.999.01", {}), ("580.999.01", {"texts": PINS})):
        data = {**GpuHost().data, "driver_version": version}
        made, told = executed(GpuHost(data=data, responses=offer, **pins))
        assert (made.failed() == set()) is (version == VERSION)
        assert not any(files.PREFERENCES in each for each in made.commands("ws1"))
        if version != VERSION:
            said = f"is not on offer; of branch 580 there is {OLD}, {VERSION}; the pins and the"
            assert said in told.problem


PRESENT: dict[str, object] = {
    "stack": "r580-cu130",
    "gpu_model": "RTX 5090",
    "gpu_count": 2,
    "smoke": "skip",
    "driver_source": "present",
}


def test_somebody_elses_driver_is_never_touched() -> None:
    drifted = GpuHost(
        data=PRESENT,
        keyring=None,
        texts=dict.fromkeys((*system_files.ALL, *files.ALL)),
        lists=packages(f"nvidia-modprobe {OLD}-1 0 1"),
    )
    made = run(drifted).prepare().execute()
    assert made.commands("ws1") == []
    assert made.failed() == set()


MARK = "== pyinfra-gpu =="
NVIDIA = "NVIDIA CUDA:mirror.example [amd64]"


def answer(*lines: str, holds: tuple[str, ...] = (), uris: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"stdout": [*lines, MARK, *holds, MARK, *uris, MARK]}


def deploy(
    simulated: dict[str, Any], companion: str = OLD, **responses: Any
) -> tuple[GpuRun, Told, str]:
    """A host with one companion of another version, apt answering as told; what was run."""
    host = GpuHost(
        lists=packages(f"nvidia-modprobe {companion}-1 1 1"),
        responses={**responses, "--simulate": simulated},
    )
    made, told = executed(host)
    return made, told, "\n".join(made.executed("ws1"))


GOOD = f"Inst nvidia-modprobe [{OLD}-1] ({VERSION}-1 {NVIDIA})"


def test_what_would_go_ahead_of_the_rest_is_refused() -> None:
    made, told, commands = deploy(answer(f"Inst libcuda1 [{VERSION}-1] (580.105.08-1 {NVIDIA})"))
    assert made.failed() == {"ws1"}
    assert "as the rest" in told.problem
    assert "Pre-Install-Pkgs" not in commands


@pytest.mark.parametrize("ends", ["well", "badly"])
def test_what_a_transaction_takes_off_hold_the_same_command_puts_back(ends: str) -> None:
    """However it ends, and whatever the run fails at after it: this host is never as declared."""
    failing = {"success": False, "stderr": ["dpkg: error processing package nvidia-modprobe"]}
    simulated = answer(GOOD, holds=("nvidia-modprobe", "dkms"))
    made, told, commands = deploy(
        simulated, **({"Pre-Install-Pkgs": failing} if ends == "badly" else {})
    )
    assert made.failed() == {"ws1"}
    assert ("still not as declared" in told.problem) == (ends == "well")
    (transaction,) = [each for each in made.executed("ws1") if "Pre-Install-Pkgs" in each]
    assert "apt-mark hold" in transaction
    assert held_in(transaction) == "nvidia-modprobe"
    assert "apt-mark hold" not in commands.replace(transaction, "")


def held_in(transaction: str) -> str:
    """What a transaction is told to put back on hold, from its command line."""
    inner = [transaction]
    while "transaction.sh" not in inner:
        inner = shlex.split(next(each for each in inner if "transaction.sh" in each))
    return inner[inner.index("transaction.sh") + 4]


def keyring_answer(keyring: bytes) -> dict[str, Any]:
    return {"apt-helper": [base64.b64encode(keyring).decode()]}


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


@pytest.mark.parametrize("keyring", [KEYRING[:-1] + b"x", KEYRING * 2, b"", b"<html>"])
def test_another_key_is_never_put_in_place(keyring: bytes) -> None:
    made, told = executed(GpuHost(keyring=None, responses=keyring_answer(keyring)))
    assert made.failed() == {"ws1"}
    assert "before you trust it" in told.problem
    assert not [c for c in made.executed("ws1") if system_files.KEYRING in c]


BUSY = {"driver.user": ["pid 812 (python3)"]}
SOMEBODY = {"power.session": ["alice on pts/0"]}
NOUVEAU = {**NOT_LOADED, "driver.nouveau": "1"}
REBOOTS: dict[str, tuple[GpuHost, str]] = {
    "never": (GpuHost(plain=NOUVEAU, data={**GpuHost().data, "driver_reboot": "never"}), "reboot`"),
    "a job": (GpuHost(plain=OTHER_LOADED, lists=BUSY), "pid 812 (python3)"),
    "a person": (GpuHost(plain=NOUVEAU, lists=SOMEBODY), "alice on pts/0"),
    "who knows": (
        GpuHost(plain={**OTHER_LOADED, "driver.user": "?no permission"}, lists={"driver.user": []}),
        "no permission",
    ),
    "an unfinished dpkg": (
        GpuHost(plain=NOUVEAU, lists={"packages.half_configured": ["python3"]}),
        "dpkg --configure -a",
    ),
}


@pytest.mark.parametrize("why", REBOOTS)
def test_a_host_that_may_not_reboot_now_is_stopped_with_the_reason(why: str) -> None:
    host, words = REBOOTS[why]
    made, told = executed(host)
    assert made.failed() == {"ws1"}
    assert words in told.problem
    assert "a reboot is owed" in told.problem or "run again when they are idle" in told.problem
    commands = "\n".join(made.executed("ws1"))
    assert "reboot" not in commands
    assert "modprobe" not in commands


def test_an_installation_that_was_cut_off_is_finished_before_a_reboot() -> None:
    """A power cut behind the driver's packages left a trigger of libc-bin's to be run."""
    half = {"packages.half_configured": ["libc-bin"]}
    made, told = executed(GpuHost(plain=NOUVEAU, lists=half))
    assert [c for c in made.executed("ws1") if "--configure -a" in c]
    assert "an installation is not done (libc-bin)" in told.problem  # that did not help
    never = {**GpuHost().data, "driver_reboot": "never"}
    made, told = executed(GpuHost(plain=NOUVEAU, lists=half, data=never))
    assert not [c for c in made.executed("ws1") if "--configure -a" in c]
    made, _ = executed(GpuHost(lists=half))
    assert made.executed("ws1") == []  # no reboot is owed, and the package is somebody's


def test_a_host_reboots_once_its_installation_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    half, done = (
        parse(GpuHost(plain=NOUVEAU, lists=lists).probe_lines())
        for lists in ({"packages.half_configured": ["libc-bin"]}, {})
    )
    seen, asked = [half], []

    def finish(*words: Any, **_: Any) -> None:
        asked.append(words[2])
        seen[0] = done

    def reboot(*words: Any) -> bool:
        asked.append("reboot")
        return False

    monkeypatch.setattr(driver_running, "look", lambda spec: seen[0])
    monkeypatch.setattr(driver_running, "forget", lambda: None)
    monkeypatch.setattr(driver_running, "ask", finish)
    monkeypatch.setattr(driver_running, "restart", reboot)
    monkeypatch.setattr(driver_running, "wait_for_lock", lambda *_: True)
    driver_running._load(None, None, GpuHost().spec())  # type: ignore[arg-type]
    assert [("--configure -a" in each, each == "reboot") for each in asked] == [
        (True, False),
        (False, True),
    ]


def told_by_the_host(**told: object) -> dict[str, Any]:
    return {"pyinfra-gpu-restart": {"stdout": short.answered(told)}}


def test_an_idle_host_is_asked_once_and_has_the_last_word() -> None:
    """Between our look and the reboot somebody began to install packages."""
    busy = told_by_the_host(done="busy", against=["pid 7 (dpkg)"])
    made, told = executed(GpuHost(plain=NOUVEAU, responses=busy))
    assert made.failed() == {"ws1"}
    assert len([c for c in made.executed("ws1") if "pyinfra-gpu-restart" in c]) == 1
    assert "pid 7 (dpkg)" in told.problem


def test_what_one_reboot_did_not_cure_fails_the_host_and_nothing_is_tried_again() -> None:
    noted = "1763777520 77777777-1d37-47dd-ab61-25ad81ad7603 nouveau is bound to the GPUs\n"
    made, told = executed(GpuHost(plain={**NOUVEAU, "power.reboots": noted}))
    assert made.failed() == {"ws1"}
    assert "the reboot of 2025-11-22 02:12 UTC did not help, so none follows" in told.problem
    commands = "\n".join(made.executed("ws1"))
    assert "restart" not in commands
    assert "modprobe" not in commands


def test_a_run_that_was_cut_off_behind_its_reboot_has_the_next_one_forget_it() -> None:
    host = GpuHost(plain={"power.reboots": f"1 {'7' * 36} nouveau is bound to the GPUs\n"})
    made, _ = executed(host)
    commands = [each for each in made.executed("ws1") if "reboots" in each]
    assert [each for each in commands if f"rm -f {system_files.REBOOTS}" in each]
    assert not [each for each in made.executed("ws1") if "pyinfra-gpu-restart" in each]


def test_no_reboot_into_a_kernel_without_a_module() -> None:
    following = "6.1.0-31-amd64"
    host = GpuHost(
        plain=NOUVEAU,
        lists={
            "kernel.installed": [KERNEL, following],
            "kernel.module": [f"{following} -"],
            "kernel.headers": [f"{KERNEL} 1", f"{following} 1"],
        },
    )
    made, _told = executed(host)
    assert made.failed() == {"ws1"}
    assert not [command for command in made.executed("ws1") if "reboot" in command]


def test_an_idle_host_is_reloaded_and_nobodys_process_is_ended() -> None:
    made, _ = executed(GpuHost(plain=OTHER_LOADED))
    commands = "\n".join(made.executed("ws1"))
    assert "modprobe -r" in commands
    assert "kill" not in commands


UPDATED = [
    f"2026-11-21  06:12:03|Upgrade|libcuda1|{OLD}-1, {VERSION}-1||/usr/bin/unattended-upgrade",
]


def test_what_happened_is_told_by_apts_own_log() -> None:
    _, told = executed(GpuHost(plain=OTHER_LOADED, lists={"nvidia.change": UPDATED}))
    (since,) = {each.since for entry in told.journal.of("@fake/ws1") for each in entry.findings}
    assert since is not None
    assert (since.name, since.old, since.new) == ("libcuda1", f"{OLD}-1", f"{VERSION}-1")
    assert "unattended-upgrade" in str(since.command)


def test_headers_that_do_not_exist_are_told_with_the_way_out() -> None:
    following = "6.1.0-31-amd64"
    host = GpuHost(
        lists={
            "kernel.installed": [KERNEL, following],
            "kernel.module": [f"{following} {VERSION}"],
            "kernel.headers": [f"{KERNEL} 0", f"{following} 1"],
        },
        responses={"--simulate": answer("E: Unable to locate package linux-headers")},
    )
    made, told = executed(host)
    assert made.failed() == {"ws1"}
    assert f"no headers for the running kernel {KERNEL}; reboot into {following}" in told.problem


def test_persistenced_that_cannot_start_is_said_and_the_other_stages_go_on() -> None:
    """GPUs work without it; that it does not run still fails the host, at its end."""
    host = GpuHost(plain={"driver.persistenced": "failed"})
    made = GpuRun(host, spare(), tasks=(driver, environment))
    told = Told(made)
    made.prepare()
    assert made.changing("ws1") == [PERSIST]
    made.execute()
    (last, *_) = made.state.inventory.get_host("@fake/ws1").op_hash_order[::-1]
    results = made.state.results[made.state.inventory.get_host("@fake/ws1")]
    assert (results.error_ops, results.success_ops) == (0, 6)
    assert made.state.op_meta[last].names == {"Environment | Write the environment files"}
    assert "still not as declared: nvidia-persistenced is failed" in told.problem
    assert "journalctl -u nvidia-persistenced" in told.problem
    assert made.failed() == {"ws1"}  # so pyinfra's exit code is 1
    with ctx_state.use(made.state):
        stages = report.as_json(made.state, told.journal)["hosts"]["@fake/ws1"]["stages"]
    (failed,) = [each for each in stages if each["problem"]]
    assert (failed["changed"], failed["unfinished"]) == ([], ["enable and start it"])
    assert [each["unfinished"] for each in stages if each is not failed] == [[]] * (len(stages) - 1)
