"""What drivers from 525 to 610 print, read field by field; what is not told is not a value."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyinfra_gpu.on_host.smoke.gpu import nvidia_smi
from pyinfra_gpu.on_host.smoke.gpu.nvidia_smi import Answer
from smoke_gpu_simulated import Simulated, executable, rtx_5090


def test_all_fields_of_a_new_driver_cost_one_call() -> None:
    smi = Simulated()
    table = nvidia_smi.query(smi, "gpu", ["index", "name", "clocks_event_reasons.active"])
    assert len(smi.calls) == 1
    assert table.rows[1] == {
        "index": "1",
        "name": "NVIDIA GeForce RTX 5090",
        "clocks_event_reasons.active": "0x0000000000000001",
    }
    assert table.error is None


def test_a_renamed_field_is_asked_by_its_older_name_and_keeps_the_new_one() -> None:
    smi = Simulated(unknown=["clocks_event_reasons.active"])
    table = nvidia_smi.query(smi, "gpu", ["index", "clocks_event_reasons.active"])
    assert "clocks_throttle_reasons.active" in smi.calls[1][1]
    assert table.rows[0]["clocks_event_reasons.active"] == "0x0000000000000001"


def test_fields_an_old_driver_does_not_know_are_left_out_one_by_one() -> None:
    smi = Simulated(unknown=["compute_cap", "pcie.link.gen.gpumax"])
    table = nvidia_smi.query(smi, "gpu", ["index", "compute_cap", "pcie.link.gen.gpumax", "uuid"])
    assert sorted(table.rows[0]) == ["index", "uuid"]
    assert len(smi.calls) == 3


def test_no_field_known_is_an_error_not_an_empty_host() -> None:
    smi = Simulated(unknown=["index", "uuid"])
    assert nvidia_smi.query(smi, "gpu", ["index", "uuid"]).error is not None


MISMATCH = (
    "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95"
)


@pytest.mark.parametrize(
    "text",
    [
        MISMATCH,
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "Unable to determine the device handle for GPU0: 0000:01:00.0: GPU is lost.",
        "No devices were found",
    ],
)
def test_an_error_is_kept_as_the_driver_worded_it(text: str) -> None:
    table = nvidia_smi.query(lambda _: Answer(18, text), "gpu", ["index"])
    assert table.rows == []
    assert table.error == text.splitlines()[0]


def test_a_message_between_rows_is_an_error_beside_the_rows() -> None:
    text = "0, GPU-a\nUnable to determine the device handle for GPU1: Unknown Error\n"
    table = nvidia_smi.parse(text, ["index", "uuid"], ["index", "uuid"])
    assert [row["index"] for row in table.rows] == ["0"]
    assert table.error is not None
    assert "GPU1" in table.error


@pytest.mark.parametrize("text", ["", "\n", "No running processes found\n"])
def test_nobody_computing_is_no_error(text: str) -> None:
    table = nvidia_smi.parse(text, ["pid", "name"], ["pid", "name"])
    assert (table.rows, table.error) == ([], None)


@pytest.mark.parametrize(
    "value",
    [
        "[N/A]",
        "N/A",
        "[Not Supported]",
        "[Unknown Error]",
        "[Insufficient Permissions]",
        "[GPU requires reset]",
        "[GPU is lost]",
        "[Reset Required]",
        "",
        "ERR!",
    ],
)
def test_what_the_driver_does_not_tell_has_no_value(value: str) -> None:
    assert nvidia_smi.known(value) is None
    assert nvidia_smi.number(value) is None
    assert nvidia_smi.bitmask(value) is None


def test_a_gpu_that_is_lost_or_waits_for_a_reset_is_an_error_beside_its_row() -> None:
    text = "0, NVIDIA A, 40\n1, [GPU requires reset], [GPU requires reset]\n"
    fields = ["index", "name", "temperature.gpu"]
    table = nvidia_smi.parse(text, fields, fields)
    assert [row["index"] for row in table.rows] == ["0", "1"]
    assert table.error == "GPU 1: GPU requires reset"
    assert nvidia_smi.parse("0, a, [N/A]\n", fields, fields).error is None


def test_numbers_come_with_or_without_units_and_fractions() -> None:
    assert nvidia_smi.integer("32607") == 32607
    assert nvidia_smi.integer("32607 MiB") == 32607
    assert nvidia_smi.number("412.35 W") == 412.35
    assert nvidia_smi.bitmask("0x0000000000000044") == 0x44
    assert nvidia_smi.integer(None) is None
    assert nvidia_smi.bitmask("Active") is None


@pytest.mark.parametrize(
    ("text", "nvml"),
    [
        ("NVIDIA-SMI version  : 580.95.05\nNVML version        : 580.95\n", "580.95"),
        ("NVML version        : 610.43.03\nGSP Firmware Version: 610.43.03\n", "610.43.03"),
        ("NVML version        : 580.142\nDRIVER version      : 580.142\n", "580.142"),
        ('Invalid combination of input arguments. Please run "nvidia-smi -h" for help.\n', None),
    ],
)
def test_the_versions_of_each_driver_generation(text: str, nvml: str | None) -> None:
    assert nvidia_smi.versions(text).get("nvml") == nvml


NEW = (
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\tSYS\tPIX\t0-55\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tNODE\tSYS\t0-55\t0\t\tN/A\n"
    "GPU2\tSYS\tNODE\t X \tSYS\t56-111\t1\t\tN/A\n"
    "NIC0\tPIX\tSYS\tSYS\t X \t\t\t\t\n\nLegend:\n\n  X    = Self\n"
)
PADDED = (
    "        GPU0    GPU1    CPU Affinity    NUMA Affinity\n"
    "GPU0     X      PHB     0-31            N/A\nGPU1    PHB      X      0-31            N/A\n"
)
PEER = " \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n\nLegend:\n  OK   = Status Ok\n"
ALONE = (
    "        GPU0    NIC0    CPU Affinity\nGPU0     X      PHB     0-251   0\nNIC0    PHB      X \n"
)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        (NEW, {"0-1": "NV18", "0-2": "SYS", "1-2": "NODE"}),
        (PADDED, {"0-1": "PHB"}),
        (PEER, {"0-1": "OK"}),
        (ALONE, {}),
        ("Failed to initialize NVML: Unknown Error", {}),
    ],
)
def test_topology_in_all_its_layouts(text: str, pairs: dict[str, str]) -> None:
    assert nvidia_smi.matrix(text) == pairs


PIDS = """\
==============NVSMI LOG==============

Attached GPUs                             : 1
GPU 00000000:01:00.0
    Processes
        GPU instance ID                   : N/A
        Compute instance ID               : N/A
        Process ID                        : 2303
            Type                          : G
            Name                          : /usr/lib/xorg/Xorg
            Used GPU Memory               : 200 MiB
        Process ID                        : 2511
            Type                          : C+G
            Name                          : /usr/bin/gnome-shell
            Used GPU Memory               : Not available in WDDM driver model
        Process ID                        : 4711
            Type                          : M+C
            Name                          : python
"""


def test_what_each_process_does_on_a_gpu() -> None:
    assert nvidia_smi.process_types(PIDS) == {2303: "G", 2511: "C+G", 4711: "M+C"}
    assert nvidia_smi.process_types("    Processes      : None\n") == {}


def test_a_real_program_on_the_path_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in executable(tmp_path / "bin", [rtx_5090(0)]).items():
        monkeypatch.setenv(name, value)
    table = nvidia_smi.query(nvidia_smi.run, "gpu", ["index", "no.such.field", "name"])
    assert table.rows == [{"index": "0", "name": "NVIDIA GeForce RTX 5090"}]


def test_a_missing_program_is_said_not_raised(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    table = nvidia_smi.query(nvidia_smi.run, "gpu", ["index"])
    assert table.error == "nvidia-smi cannot be run: No such file or directory"


def test_a_program_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia_smi, "_LIMIT", 0.2)
    answer = nvidia_smi.run(["sleep", "60"])
    assert (answer.code, answer.ok) == (None, False)
    assert "did not answer" in answer.text
