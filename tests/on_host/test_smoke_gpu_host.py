"""S0 and S5 on simulated hosts: a sound one passes, and each thing that can be wrong is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyinfra_gpu.on_host.smoke.gpu import checks, host, throttle
from pyinfra_gpu.on_host.smoke.gpu.nvidia_smi import Answer
from pyinfra_gpu.on_host.smoke.judge.check import Finding
from smoke_gpu_simulated import (
    PROPRIETARY,
    Simulated,
    executable,
    expected,
    rtx_5090,
    sound_host,
    tree,
)


def decide(gpu_host: dict[str, Any], mode: str = "gpu", gpus: int = 2) -> dict[str, Finding]:
    facts = {0: {"gpu_host": gpu_host}}
    wanted = expected(mode, gpus, gpu_host)
    return {check.id: check.decide(facts, wanted) for check in checks.HOST_CHECKS}


def status(finding: Finding) -> str:
    return finding.status or ("pass" if finding.ok else "fail")


def not_passed(findings: dict[str, Finding]) -> dict[str, str]:
    return {name: status(found) for name, found in findings.items() if status(found) != "pass"}


def test_two_sound_gpus_pass_every_check(tmp_path: Path) -> None:
    findings = decide(sound_host(tmp_path))
    assert not_passed(findings) == {}
    assert findings["S0.driver"].detail == "driver 580.95.05"
    assert findings["S0.open_module"].detail == "open kernel module"


def test_a_host_is_read_through_the_program_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in executable(tmp_path / "bin", [rtx_5090(0), rtx_5090(1)]).items():
        monkeypatch.setenv(name, value)
    found = host.read(root=tree(tmp_path / "root"))
    assert [gpu["pci"] for gpu in found["gpus"]] == ["0000:01:00.0", "0000:02:00.0"]
    assert found["links"] == {"0-1": "PHB"}
    assert found["processes"] == []
    assert not_passed(decide(found)) == {}


def test_a_host_without_the_driver_says_why_and_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = host.read(root=tmp_path)
    findings = decide(found)
    assert findings["S0.gpus"].detail == (
        "nvidia-smi: nvidia-smi cannot be run: No such file or directory"
    )
    assert status(findings["S0.gpus"]) == "fail"
    assert status(findings["S0.driver"]) == "unknown"
    passed = [name for name, found in findings.items() if status(found) == "pass"]
    assert passed == [], "nothing was looked at"


Change = Callable[[dict[str, Any]], object]


def set_gpu(index: int, **values: Any) -> Change:
    return lambda facts: facts["gpus"][index].update(values)


WRONGS: dict[str, tuple[Change, dict[str, str], str]] = {
    "a GPU is missing": (
        lambda facts: facts.update(gpus=facts["gpus"][:1], seen_by_module=["0000:01:00.0"]),
        {"S0.gpus": "fail"},
        "nvidia-smi lists 1 GPUs, 2 are declared",
    ),
    "the module drives one that nvidia-smi does not list": (
        lambda facts: facts["seen_by_module"].append("0000:41:00.0"),
        {"S0.gpus": "fail"},
        "the kernel module drives 3 GPUs, nvidia-smi lists 2",
    ),
    "an error beside the rows": (
        lambda facts: facts.update(error="Unable to determine the device handle for GPU1"),
        {"S0.gpus": "fail"},
        "nvidia-smi: Unable to determine",
    ),
    "the same UUID twice": (
        lambda facts: facts["gpus"][1].update(uuid=facts["gpus"][0]["uuid"]),
        {"S0.gpu_uuids": "fail"},
        "two GPUs have the same UUID",
    ),
    "no UUID": (set_gpu(1, uuid=None), {"S0.gpu_uuids": "unknown"}, "no UUID for GPU 1"),
    "another module is loaded": (
        lambda facts: facts.update(module="580.65.06"),
        {"S0.driver": "fail"},
        "the loaded module is 580.65.06, the driver's libraries are 580.95.05: reboot",
    ),
    "another NVML": (
        lambda facts: facts["versions"].update(nvml="580.9"),
        {"S0.driver": "fail"},
        "the NVML library is 580.9",
    ),
    "two driver versions": (
        set_gpu(0, driver="575.1"),
        {"S0.driver": "unknown"},
        "does not name one driver version",
    ),
    "an unreadable module version": (
        lambda facts: facts.update(module=None),
        {"S0.driver": "warn"},
        "cannot be read",
    ),
    "the proprietary module on Blackwell": (
        lambda facts: facts.update(module_kind="proprietary"),
        {"S0.open_module": "fail"},
        "RTX 5090 needs the open one",
    ),
    "an unreadable module kind": (
        lambda facts: facts.update(module_kind=None),
        {"S0.open_module": "warn"},
        "cannot be read",
    ),
    "prohibited": (
        set_gpu(1, compute_mode="Prohibited"),
        {"S0.compute_mode": "fail"},
        "GPU 1: compute mode Prohibited forbids this test: nvidia-smi -i 1 -c DEFAULT",
    ),
    "exclusive": (
        set_gpu(0, compute_mode="Exclusive_Process"),
        {"S0.compute_mode": "warn"},
        "one program at a time",
    ),
    "divided": (set_gpu(1, mig="Enabled"), {"S0.mig": "fail"}, "nvidia-smi -i 1 -mig 0"),
    "memory errors": (set_gpu(0, ecc_uncorrected=3), {"S0.ecc": "fail"}, "3 uncorrected"),
    "rows that cannot be replaced": (
        set_gpu(0, remap_failure="Yes"),
        {"S0.ecc": "fail"},
        "exchange the GPU",
    ),
    "rows that wait": (set_gpu(0, remap_pending="Yes"), {"S0.ecc": "warn"}, "reset the GPU"),
    "a full memory": (
        set_gpu(1, memory_used_mib=30000),
        {"S0.gpu_memory": "fail"},
        "GPU 1: 2607 MiB of 32607 MiB are free, the test needs 6144",
    ),
    "memory that is not told (GB10)": (
        set_gpu(0, memory_mib=None),
        {"S0.gpu_memory": "warn"},
        "cannot be read",
    ),
    "less memory than the kind has": (
        set_gpu(0, memory_mib=24000),
        {"S0.gpu_memory": "warn"},
        "24000 MiB of memory, a NVIDIA GeForce RTX 5090 has 32607",
    ),
    "no persistence": (
        set_gpu(0, persistence="Disabled"),
        {"S0.persistence": "warn"},
        "nvidia-persistenced",
    ),
    "somebody computes": (
        lambda facts: facts.update(
            processes=[{"pid": 4711, "type": "C", "name": "python", "memory_mib": 9000}]
        ),
        {"S0.gpu_processes": "unknown"},
        "in use by python (pid 4711)",
    ),
    "somebody computes, and it is not told how": (
        lambda facts: facts.update(
            processes=[{"pid": 4711, "type": None, "name": None, "memory_mib": None}]
        ),
        {"S0.gpu_processes": "unknown"},
        "in use by a program (pid 4711)",
    ),
    "a desktop draws": (
        lambda facts: facts.update(
            processes=[{"pid": 9, "type": "C+G", "name": "gnome-shell", "memory_mib": 90}]
        ),
        {"S0.gpu_processes": "warn"},
        "also draw for gnome-shell (pid 9)",
    ),
    "who computes cannot be read": (
        lambda facts: facts.update(processes=None),
        {"S0.gpu_processes": "warn"},
        "cannot be read",
    ),
}


@pytest.mark.parametrize("name", WRONGS)
def test_each_wrong_shows_in_its_check_alone(name: str, tmp_path: Path) -> None:
    change, statuses, words = WRONGS[name]
    facts = sound_host(tmp_path)
    change(facts)
    findings = decide(facts)
    assert not_passed(findings) == statuses
    assert words in findings[next(iter(statuses))].detail


def test_a_process_is_read_with_what_it_does(tmp_path: Path) -> None:
    smi = Simulated()
    smi.processes = ["2511, /usr/bin/gnome-shell, [N/A], GPU-0", "4711, [Not Found], 500, GPU-0"]
    smi.types = "Process ID : 2511\n  Type : C+G\n"
    first, second = host.read(smi, tree(tmp_path))["processes"]
    assert (first["type"], first["memory_mib"]) == ("C+G", None)
    assert (second["type"], second["name"]) == (None, None)


def test_an_unknown_finding_stops_and_a_warning_does_not(tmp_path: Path) -> None:
    facts = sound_host(tmp_path)
    facts["gpus"][0].update(uuid=None, persistence="Disabled")
    findings = decide(facts)
    assert not findings["S0.gpu_uuids"].ok
    assert findings["S0.persistence"].ok


def test_more_gpus_than_declared_are_said_and_only_the_declared_judged(tmp_path: Path) -> None:
    facts = sound_host(tmp_path)
    facts["gpus"][1].update(compute_mode="Prohibited")
    findings = decide(facts, "rehearsal-1gpu", gpus=1)
    assert not_passed(findings) == {"S0.gpus": "warn"}
    assert findings["S0.gpus"].detail == "nvidia-smi lists 2 GPUs, only 1 declared and tested"


def test_two_processes_on_one_gpu_need_twice_the_memory_and_the_default_mode(
    tmp_path: Path,
) -> None:
    facts = sound_host(tmp_path)
    facts["gpus"][0].update(compute_mode="Exclusive_Process", memory_used_mib=24000)
    assert "S0.gpu_memory" not in not_passed(decide(facts))
    findings = decide(facts, "rehearsal-1gpu", gpus=1)
    assert status(findings["S0.compute_mode"]) == "fail"
    assert status(findings["S0.gpu_memory"]) == "fail"


def test_an_older_gpu_may_have_the_proprietary_module(tmp_path: Path) -> None:
    facts = sound_host(tmp_path)
    facts["module_kind"] = "proprietary"
    for gpu in facts["gpus"]:
        gpu.update(name="NVIDIA H100 80GB HBM3", capability=[9, 0], memory_mib=81559)
    assert not_passed(decide(facts)) == {}


def test_an_unknown_gpu_is_not_judged_by_another_ones_memory(tmp_path: Path) -> None:
    facts = sound_host(tmp_path)
    facts["gpus"][0].update(name="NVIDIA RTX 9090", memory_mib=65536)
    assert not_passed(decide(facts)) == {}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (PROPRIETARY, "proprietary"),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.142  Release Build",
            "open",
        ),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31", "proprietary"),
        ("something else", None),
        (None, None),
    ],
)
def test_the_module_names_its_own_kind(text: str | None, kind: str | None) -> None:
    assert host.module_kind(text) == kind


def test_the_modules_version_is_read_from_proc_where_sysfs_has_none(tmp_path: Path) -> None:
    assert host.read(Simulated(), tree(tmp_path, version=None))["module"] == "580.95.05"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:01:00.0", "0000:01:00.0"),
        ("0000000F:01:00.0", "000f:01:00.0"),
        ("0000:C1:00.0", "0000:c1:00.0"),
        ("41:00.0", "0000:41:00.0"),
        ("[N/A]", None),
    ],
)
def test_pci_addresses_are_the_kernels(text: str, address: str | None) -> None:
    assert host.pci_address(text) == address


def after(before: dict[str, Any], smi: Simulated, tmp_path: Path, **given: Any) -> dict[str, Any]:
    given = {"own_pids": {77}, "files_before": [], "directory": tmp_path} | given
    return host.after(before, run=smi, **given)


def decide_after(before: dict[str, Any], found: dict[str, Any]) -> dict[str, Finding]:
    facts = {0: {"gpu_after": found, "xids": []}}
    wanted = expected(gpu_host=before)
    return {check.id: check.decide(facts, wanted) for check in checks.AFTER_CHECKS}


def test_nothing_left_passes(tmp_path: Path) -> None:
    before = sound_host(tmp_path)
    (shm := tmp_path / "shm").mkdir()
    (shm / "nccl-old").touch()
    found = after(before, Simulated(), shm, files_before=["nccl-old"])
    assert not_passed(decide_after(before, found)) == {}


def test_a_segment_of_ours_that_stays_is_named(tmp_path: Path) -> None:
    before = sound_host(tmp_path)
    (shm := tmp_path / "shm").mkdir()
    (shm / "nccl-0aB1cD").touch()
    finding = decide_after(before, after(before, Simulated(), shm))["S5.gpu_leftovers"]
    assert status(finding) == "warn"
    assert "nccl-0aB1cD" in finding.detail


def test_a_process_of_ours_that_stays_fails_and_a_strangers_does_not(tmp_path: Path) -> None:
    before = sound_host(tmp_path)
    smi = Simulated()
    smi.processes = ["99, /usr/bin/other, 500, GPU-0"]
    assert not_passed(decide_after(before, after(before, smi, tmp_path))) == {}
    smi.processes.append("77, /venv/bin/python, 500, GPU-0")
    finding = decide_after(before, after(before, smi, tmp_path))["S5.gpu_leftovers"]
    assert (status(finding), "hold a GPU: 77" in finding.detail) == ("fail", True)


def test_a_gpu_that_is_gone_afterwards_fails(tmp_path: Path) -> None:
    before = sound_host(tmp_path)
    finding = decide_after(before, after(before, Simulated([rtx_5090(0)]), tmp_path))
    assert status(finding["S5.gpu_leftovers"]) == "fail"
    smi = Simulated()
    smi.extra["--query-gpu"] = Answer(15, "GPU is lost.  Reboot the system to recover this GPU\n")
    finding = decide_after(before, after(before, smi, tmp_path))
    assert "GPU is lost" in finding["S5.gpu_leftovers"].detail


def test_memory_that_is_not_given_back_is_a_warning(tmp_path: Path) -> None:
    before = sound_host(tmp_path)
    smi = Simulated([rtx_5090(0), rtx_5090(1) | {"memory.used": "9000"}])
    finding = decide_after(before, after(before, smi, tmp_path))["S5.gpu_leftovers"]
    assert (status(finding), finding.measured) == ("warn", {"1": 8998})


@pytest.mark.parametrize(
    ("mask", "outcome"),
    [
        ("0x0000000000000001", "pass"),
        ("0x0000000000000004", "pass"),
        ("0x0000000000000020", "warn"),
        ("0x0000000000000048", "warn"),
        ("0x0000000000000080", "warn"),
        ("[N/A]", "skip"),
    ],
)
def test_only_harmful_reasons_for_low_clocks_warn(mask: str, outcome: str, tmp_path: Path) -> None:
    before = sound_host(tmp_path)
    smi = Simulated([rtx_5090(i) | {"clocks_event_reasons.active": mask} for i in range(2)])
    finding = decide_after(before, after(before, smi, tmp_path))["S5.throttle"]
    assert status(finding) == outcome


def test_what_was_seen_under_load_counts_before_what_is_left_of_it(tmp_path: Path) -> None:
    before = sound_host(tmp_path)
    loaded = {"0": {"throttle": ["sw_power_cap"]}, "1": {"throttle": ["hw_thermal_slowdown"]}}
    found = after(before, Simulated(), tmp_path, loaded=loaded)
    finding = decide_after(before, found)["S5.throttle"]
    assert (status(finding), "GPU 1 is slowed down" in finding.detail) == ("warn", True)


def test_every_bit_of_a_mask_has_a_name() -> None:
    assert throttle.reasons(0) == []
    assert throttle.reasons(0x44) == ["sw_power_cap", "hw_thermal_slowdown"]
    assert throttle.reasons(1 << 20) == ["unknown reason 0x100000"]
