"""NCCL's log and the kernel's, in the words of many versions, and how they are judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyinfra_gpu.on_host.smoke.gpu import checks, transport, xid
from pyinfra_gpu.on_host.smoke.judge.check import Finding
from smoke_gpu_simulated import expected, sound_host

CHANNELS = [
    ("h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", "P2P/CUMEM/read"),
    ("h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "P2P/CUMEM"),
    ("h:1:2 [1] NCCL INFO Channel 19/0 : 1[1] -> 0[0] via P2P/IPC", "P2P/IPC"),
    ("h:1:2 [0] NCCL INFO Channel 00 : 0[1000] -> 1[2000] via P2P/IPC/read", "P2P/IPC/read"),
    ("h:1:2 [0] NCCL INFO Channel 03 : 1[c3000] -> 0[3000] via P2P/direct pointer", "P2P/direct"),
    ("h:1:2 [3] NCCL INFO Channel 02 : 3[3] -> 0[0] via SHM/direct/direct", "SHM/direct/direct"),
    (
        "h:1:2 [1] NCCL INFO Channel 32 : 1[c3000] -> 0[3000] via SHM/direct/direct comm 0x55",
        "SHM/direct/direct",
    ),
    ("h:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via direct shared memory", None),
    ("h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0", "NET/Socket"),
    (
        "h:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/3/GDRDMA",
        "NET/IB/GDRDMA",
    ),
    ("h:1:2 [0] NCCL INFO Ring 00 : 0[0] -> 1[1] via P2P/CUMEM", "P2P/CUMEM"),
    ("h:1:2 [0] NCCL INFO Channel 00/08 : 0 1 2 3 4 5 6 7", None),
    ("h:1:2 [0] NCCL INFO Using network Socket", None),
]


@pytest.mark.parametrize(("line", "way"), CHANNELS)
def test_channels_as_ncclversions_write_them(line: str, way: str | None) -> None:
    assert list(transport.parse([line])["ways"]) == ([way] if way else [])


INFO = """\
box:10:10 [0] NCCL INFO Bootstrap: Using lo:127.0.0.1<0>
box:10:10 [0] NCCL INFO NCCL version 2.30.7+cuda13.0
box:10:33 [0] NCCL INFO Using network Socket
box:10:33 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct
box:10:33 [0] NCCL INFO Channel 01 : 0[0] -> 1[1] via SHM/direct/direct
box:10:33 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 1
"""


def test_the_logs_of_all_ranks_are_read_together(tmp_path: Path) -> None:
    (tmp_path / "nccl.box.10.log").write_text(INFO)
    (tmp_path / "nccl.box.11.log").write_text(INFO.replace("0[0] -> 1[1]", "1[1] -> 0[0]"))
    (tmp_path / "torchrun.log").write_text("Channel 00 : 0[0] -> 1[1] via NET/Socket/0")
    assert transport.read(tmp_path) == {
        "logs": 2,
        "kinds": ["SHM"],
        "ways": {"SHM/direct/direct": 4},
        "versions": ["2.30.7"],
        "networks": ["Socket"],
        "nvls": False,
    }


def test_no_log_names_no_way(tmp_path: Path) -> None:
    assert transport.read(tmp_path)["kinds"] == []
    assert transport.read(tmp_path / "missing")["logs"] == 0


def test_the_log_is_asked_for_where_it_is_looked_for(tmp_path: Path) -> None:
    file = Path(transport.environment(tmp_path)["NCCL_DEBUG_FILE"])
    written = file.parent / file.name.replace("%h", "box").replace("%p", "4711")
    written.write_text(INFO)
    assert transport.read(tmp_path)["logs"] == 1


def _judge(
    tmp_path: Path, ways: dict[str, int], mode: str = "gpu", links: str = "PHB", **gpu: Any
) -> Finding:
    host = sound_host(tmp_path)
    host["links"] = {"0-1": links}
    for each in host["gpus"]:
        each.update(gpu)
    lines = [f"Channel 00 : 0[0] -> 1[1] via {way}" for way in ways]
    version = ["NCCL version 2.29.7+cuda13.0"] if mode == "rehearsal-1gpu" else []
    facts = {0: {"transport": transport.parse(["\n".join(lines + version)])}}
    check = next(check for check in checks.RUN_CHECKS if check.id == "S4.transport")
    return check.decide(facts, expected(mode, gpu_host=host))


H100 = {"name": "NVIDIA H100 80GB HBM3"}
JUDGED = [
    ({"SHM/direct/direct": 2}, "gpu", "PHB", {}, "pass", "SHM/direct/direct"),
    ({"P2P/CUMEM": 2}, "gpu", "PHB", {}, "warn", "on GeForce: a patched driver"),
    ({"NET/Socket/0": 2}, "gpu", "PHB", {}, "fail", "over the network (NET/Socket)"),
    ({"SHM/direct/direct": 1, "NET/Socket/0": 1}, "gpu", "PHB", {}, "fail", "network"),
    ({}, "gpu", "PHB", {}, "warn", "name no channel"),
    ({"P2P/CUMEM": 2}, "gpu", "NV18", H100, "pass", "P2P/CUMEM"),
    ({"SHM/direct/direct": 2}, "gpu", "NV18", H100, "warn", "have NVLink, but NCCL uses SHM"),
    ({"SHM/direct/direct": 2}, "gpu", "SYS", H100, "pass", "SHM"),
    ({"P2P/IPC": 2}, "gpu", "NV4", {"name": "NVIDIA GeForce RTX 3090"}, "pass", "P2P"),
    ({"NET/Socket/0": 2}, "rehearsal-1gpu", "PHB", {}, "pass", "a rehearsal's"),
]


@pytest.mark.parametrize(("ways", "mode", "links", "gpu", "status", "words"), JUDGED)
def test_the_right_way_depends_on_the_host(
    ways: dict[str, int],
    mode: str,
    links: str,
    gpu: dict[str, Any],
    status: str,
    words: str,
    tmp_path: Path,
) -> None:
    finding = _judge(tmp_path, ways, mode, links, **gpu)
    assert (finding.status or ("pass" if finding.ok else "fail")) == status
    assert words in finding.detail


XIDS = [
    (
        "[171657.328] NVRM: Xid (PCI:0000:01:00): 79, pid=1122, GPU has fallen off the bus.",
        ("xid", 79, "bus", "0000:01:00.0", 1122, True),
    ),
    (
        "Nov 21 10:00:00 box kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', "
        "name=<unknown>, GPU has fallen off the bus.",
        ("xid", 79, "bus", "0000:3b:00.0", None, True),
    ),
    (
        "NVRM: Xid (PCI:0000:b3:00.0): 79, pid=12345, GPU has fallen off the bus.",
        ("xid", 79, "bus", "0000:b3:00.0", 12345, True),
    ),
    (
        "NVRM: Xid (PCI:0000:00:06): 31, pid=79749, name=exe, Ch 0000000a, intr 00000000. MMU "
        "Fault: ENGINE GRAPHICS GPC2 GPCCLIENT_T1_7 faulted @ 0x2b57_b3000000.",
        ("xid", 31, "application", "0000:00:06.0", 79749, True),
    ),
    ("NVRM: Xid (PCI:0000:83:00): 48", ("xid", 48, "memory", "0000:83:00.0", None, True)),
    (
        "NVRM: Xid (PCI:0000:01:00): 63, pid='<unknown>', Row Remapper: New row marked for "
        "remapping, reset gpu to activate.",
        ("xid", 63, "memory", "0000:01:00.0", None, False),
    ),
    (
        "NVRM: Xid (PCI:0000:01:00): 119, pid=1, name=python, Timeout after 6s of waiting for RPC "
        "response from GPU0 GSP! Expected function 76",
        ("xid", 119, "firmware", "0000:01:00.0", 1, True),
    ),
    (
        "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 "
        "(GPU Reset Required)",
        ("xid", 154, "recovery", "0000:01:00.0", None, True),
    ),
    (
        "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset "
        "Required) to 0x0 (None)",
        ("xid", 154, "recovery", "0000:01:00.0", None, False),
    ),
    ("NVRM: Xid (PCI:0000:01:00): 999", ("xid", 999, "unknown", "0000:01:00.0", None, True)),
    (
        "nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        ("sxid", 20034, "nvlink", "0000:86:00.0", None, True),
    ),
    (
        "pcieport 0000:00:1c.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, "
        "(Receiver ID)",
        ("aer", None, "bus", "0000:00:1c.0", None, False),
    ),
    (
        "nvidia 0000:01:00.0: AER: PCIe Bus Error: severity=Correctable, type=Data Link Layer, "
        "(Transmitter ID)",
        ("aer", None, "bus", "0000:01:00.0", None, False),
    ),
    (
        "pcieport 0000:c0:01.1: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction "
        "Layer, (Requester ID)",
        ("aer", None, "bus", "0000:c0:01.1", None, True),
    ),
    (
        "NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.",
        ("fallen", None, "bus", "0000:01:00.0", None, True),
    ),
    (  # of a divided GPU: kern_gpu_error_cont_ga100.c and kernel_rc.c of the open kernel modules
        "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). "
        "RST: No, D-RST: No",
        ("xid", 94, "memory", "0000:01:00.0", 7194, True),
    ),
    (
        "NVRM: Xid (PCI:0000:3b:00 GPU-I:01 GPU-CI:02): 13, pid=9, name=a, Graphics Exception",
        ("xid", 13, "application", "0000:3b:00.0", 9, True),
    ),
    (  # drivers before 340
        "NVRM: Xid (0000:03:00): 14, Channel 00000001",
        ("xid", 14, "unknown", "0000:03:00.0", None, True),
    ),
]


@pytest.mark.parametrize(("line", "event"), XIDS)
def test_gpu_errors_as_kernels_and_drivers_word_them(line: str, event: tuple[Any, ...]) -> None:
    found = xid.parse([line])
    assert len(found) == 1
    keys = ("kind", "number", "class", "pci", "pid", "serious")
    assert tuple(found[0][key] for key in keys) == event
    assert found[0]["advice"]


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05",
        "NVRM: GPU at PCI:0000:01:00: GPU-00000000-1111-2222-3333-444444444444",
        "nvidia-uvm: Loaded the UVM driver, major device number 234.",
        "pcieport 0000:00:1c.0:   device [8086:9d13] error status/mask=00000001/00002000",
        "usb 1-1: new high-speed USB device",
        "",
    ],
)
def test_what_is_no_error_is_none(line: str) -> None:
    assert xid.parse([line]) == []


def test_which_part_of_a_divided_gpu_it_was_stands_in_the_text() -> None:
    line = "NVRM: Xid (PCI:0000:3b:00 GPU-I:01 GPU-CI:02): 13, pid=9, name=a, Graphics Exception"
    assert xid.parse([line])[0]["text"].startswith("GPU-I:01 GPU-CI:02 pid=9")


def _xids(lines: list[str] | None) -> Finding:
    facts = {0: {"xids": None if lines is None else xid.parse(lines)}}
    return next(c for c in checks.AFTER_CHECKS if c.id == "S5.xids").decide(facts, expected())


def test_new_errors_are_judged_by_the_worst() -> None:
    corrected, fallen, unknown = XIDS[5][0], XIDS[0][0], XIDS[9][0]
    assert _xids([]).ok
    assert _xids([corrected]).status == "warn"
    finding = _xids([corrected, fallen])
    assert not finding.ok
    assert finding.detail.startswith("Xid 79 on 0000:01:00.0: pid=1122, GPU has fallen off")
    assert "unknown Xid 999" in _xids([unknown]).detail
    assert not _xids([unknown]).ok


def test_a_log_that_cannot_be_read_is_no_clean_log() -> None:
    assert _xids(None).status == "skip"
