"""The parts of the smoke test that need no run: what is read, how an end is explained."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyinfra_gpu.on_host.smoke import (
    collectives,
    device,
    environment,
    gpus,
    hang,
    host,
    libraries,
    links,
    options,
    precision,
)
from pyinfra_gpu.on_host.smoke.journal import HOST, Journal, Writer
from pyinfra_gpu.on_host.smoke.nvidia_smi import Answer
from pyinfra_gpu.on_host.smoke.ranks import Ranks
from tests.on_host.smoke_gpu_simulated import Simulated, rtx_5090

# -- the environment


def test_what_makes_another_run_of_it_is_removed_and_told() -> None:
    names = ["NCCL_P2P_DISABLE", "TORCH_FR_BUFFER_SIZE", "PYTHONPATH", "HOME"]
    names += ["CUDA_VISIBLE_DEVICES", "TRITON_CACHE_DIR", "TORCHINDUCTOR_FORCE_DISABLE_CACHES"]
    mine = dict.fromkeys(names, "x")
    reported = environment.stray(mine, "gpu")
    assert set(reported) == {*names[:3], "CUDA_VISIBLE_DEVICES"}
    assert "CUDA_VISIBLE_DEVICES" not in environment.stray(mine)
    clean = environment.clean(mine, "gpu")
    assert {name: clean.get(name) for name in names if clean.get(name)} == {
        "HOME": "x",
        "TORCH_FR_BUFFER_SIZE": "2000",
    }
    assert clean["NCCL_SOCKET_IFNAME"] == "lo"


def test_torch_compile_is_off_by_data_alone() -> None:
    mine = {"TORCHDYNAMO_DISABLE": "true"}  # which torch takes for nothing
    assert environment.clean(mine, "gpu") == {**environment.clean({}, "gpu"), **mine}
    off = environment.clean({}, "rehearsal-cpu", compiling=False)
    assert off["TORCHDYNAMO_DISABLE"] == off["TORCH_COMPILE_DISABLE"] == "1"


# -- journals, and how a run that did not finish is explained


def test_a_journal_is_read_as_it_grows_and_never_half_a_line(tmp_path: Path) -> None:
    writer, journal = Writer(tmp_path, 1), Journal(1)
    path = tmp_path / "rank1.jsonl"
    with writer.measuring("store") as value:
        value["port"] = 7
    assert journal.follow(path)
    assert (journal.facts, journal.step) == ({"store": {"port": 7}}, "store")
    assert not journal.follow(path)
    with path.open("a") as file:
        file.write('{"kind": "fini')
    assert not journal.follow(path)
    assert not journal.finished


STATES: Mapping[str, Any] = {
    "at work": {},
    "early": {"steps": ["import"]},
    "done": {"finished": True},
    "lost a peer": {"error": "RuntimeError: Connection closed by peer", "error_time": 0.5},
    "raised first": {"error": "E: first\nmore", "error_time": 1.0},
    "raised second": {"error": "E: second\nmore", "error_time": 2.0},
}
ASKED = options.Options("rehearsal-cpu", "/x/verdict.json", "a")
ENDS = (
    """\
raised first | at work | {"1": -9} | 1 | rank 1 (pid 11) was ended by signal 9 (SIGKILL) {at}
at work | at work | {"1": -9} | 1 | rank 1 (pid 11) was ended by signal 9 (SIGKILL) {at}
at work | at work | {"0": -15} | 1 | rank 1 (pid 11) ended without an error {at}
raised second | raised first | {"0": -6, "1": 1} | 1 | rank 1 (pid 11) raised at 'step': E: first
done | absent | {"1": 1} | 1 | 1 of 2 ranks started, torchrun ended with exit code 1
lost a peer | raised second | {} | 1 | rank 1 (pid 11) raised at 'step': E: second
done | done | {"1": -6} | 1 | rank 1 (pid 11) was ended by signal 6 (SIGABRT) {after}
done | done | {} | null | torchrun ended with exit code 1
done | at work | {"1": -15} | 1 | rank 1 (pid 11) was ended by signal 15 (SIGTERM) {at}
absent | absent | {} | null | torchrun (pid 9) ended with exit code 1 {import}
at work | early | late | 1 | rank 1 was still at 'import' after 5 s
at work | at work | late | null | all ranks were still at 'step' after 5 s
absent | at work | late | null | 1 of 2 ranks had started after 5 s
absent | absent | late | null | torchrun was still at 'import' after 5 s
""".replace("{at}", "at 'step', before its work was done")
    .replace("{import}", "at 'import', before its work was done")
    .replace("{after}", "after its work was done")
)
"""How rank 0 and rank 1 stood, the exit codes of ranks as torchrun tells them (or that the deadline
came), the rank that is named, and the sentence."""


@pytest.mark.parametrize("row", ENDS.splitlines())
def test_the_first_cause_of_an_end_is_named(row: str) -> None:
    *states, codes, named, sentence = row.split(" | ")
    journals = {
        rank: Journal(rank, **{"pid": 10 + rank, "steps": ["import", "step"], **STATES[state]})
        for rank, state in enumerate(states)
        if state in STATES
    }
    facts = {} if codes == "late" else {"codes": json.loads(codes)}
    own = Journal(HOST, pid=9, steps=["import"], facts=facts)
    run = Ranks(ASKED, Path("/x"), own=own, journals=journals, code=1)
    found = run.late("5 s") if codes == "late" else run.ending()
    assert (found.detail, found.rank) == (sentence, json.loads(named))


def test_what_only_lost_ranks_of_another_host_does_not_know_why() -> None:
    """A rank that was killed here does."""
    asked = replace(ASKED, hosts={"a": 1, "b": 1}, address="10.0.0.1", port=29400)
    own = Journal(HOST, pid=9, facts={"codes": {"0": 1}})
    here = Journal(0, pid=10, steps=["step"], **STATES["lost a peer"])
    run = Ranks(asked, Path("/x"), own=own, journals={0: here}, code=1)
    assert run.ending().status == "unknown"
    run.options = replace(ASKED, ranks=1)
    assert run.ending().status == "fail"
    run.options, here.error, own.facts["codes"] = asked, None, {"0": -9}
    assert run.ending().detail.startswith("rank 0 (pid 10) was ended by signal 9")
    assert run.ending().status == "fail"
    run.journals.clear()
    own.error = "RendezvousTimeoutError: x"
    met = "a did not meet b at 10.0.0.1 port 29400 of a (RendezvousTimeoutError: x): let TCP"
    assert run.ending().detail.startswith(met)


# -- collectives


@pytest.mark.torch
@pytest.mark.parametrize("kind", collectives.KINDS)
@pytest.mark.parametrize("count", range(2, options.MAX_RANKS + 1))
def test_adding_in_any_order_gives_the_closed_form_without_rounding(kind: str, count: int) -> None:
    torch = pytest.importorskip("torch")
    period = collectives.period(kind, count)
    assert collectives.SHIFT % period, "a repeat would show the values of the one before"
    values = torch.arange(period).double()
    right = values * count + collectives.offset_of_sum(period, count)
    ranks = [(values + rank * period).to(getattr(torch, kind)) for rank in range(count)]
    for order in (ranks, ranks[::-1], [*ranks[1::2], *ranks[::2]]):
        assert torch.equal(functools.reduce(torch.add, order).double(), right)
    assert torch.equal(ranks[-1].double(), values + (count - 1) * period)


def test_more_ranks_than_can_be_exact_are_refused_with_the_bound() -> None:
    with pytest.raises(ValueError, match="bfloat16 sums over 17 ranks exceed 256"):
        collectives.period("bfloat16", options.MAX_RANKS + 1)


def test_sizes_run_from_one_float_to_what_was_asked_for() -> None:
    mib = 2**20
    assert collectives.sizes(1) == [4, 4096, mib, mib + 4]
    assert collectives.sizes(256) == [4, 4096, mib, mib + 4, 8 * mib, 64 * mib, 256 * mib]


# -- hangs


def _tried(*results: Any) -> str:
    answers = iter(results)
    return hang.locate(hang.LAYERS, lambda *_: next(answers), 1e18)


def test_what_passes_with_one_thing_changed_names_the_layer() -> None:
    assert "so the hang is not in its layers" in _tried("passed")
    assert "look at IOMMU and ACS" in _tried("hung", "passed")
    assert "look at /dev/shm" in _tried("hung", "hung", "passed")
    assert _tried(*["hung"] * 3) == "none of 3 tries with other settings passes"
    assert "where it hangs is not known" in _tried("not reached")
    assert "no time" in hang.locate(hang.LAYERS, lambda *_: "hung", 0.0)


# -- nvidia-smi, /proc and logs


def test_two_gpus_are_read_whole() -> None:
    read = gpus.read(Simulated())
    assert [gpu["index"] for gpu in read["gpus"]] == ["0", "1"]
    first = read["gpus"][0]
    assert (first["memory.total"], first["mig.mode.current"]) == ("32607", None)
    assert read["processes"] == []


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer(9, "NVIDIA-SMI has failed because it couldn't\nmore\n"), "NVIDIA-SMI has failed"),
        (Answer(0, "Unable to determine the device handle for GPU0000\n"), "Unable to determine"),
        (Answer(5, ""), "nvidia-smi ended with 5"),
    ],
)
def test_what_nvidia_smi_says_in_place_of_gpus_is_the_error(answer: Answer, error: str) -> None:
    read = gpus.read(lambda _: answer)
    assert (read["gpus"], read["error"].startswith(error)) == ([], True)


def test_what_nvidia_smi_says_of_lost_gpus_and_of_a_desktops_programs() -> None:
    host = Simulated([rtx_5090(0), {**rtx_5090(1), "memory.used": "[GPU is lost]"}])
    process = "  Process ID           : {}\n      Type       : {}\n      Name       : {}\n".format
    host.processes = process(40, "G", "X") + process(41, "C+G", "/bin/x y") + process(42, "C", "p")
    read = gpus.read(host)
    assert (read["error"], read["gpus"][1]["memory.used"]) == ("GPU 1: GPU is lost", None)
    assert read["processes"] == [("41", "C+G", "/bin/x y"), ("42", "C", "p")]


def test_the_best_of_a_link_that_was_seen_counts() -> None:
    fields = ("index", "pcie.link.gen.current", "pcie.link.width.current")
    seen = dict(zip(fields, ("0", "1", None), strict=True)) | {"clocks_event_reasons.active": "0x4"}
    busy = {"pcie.link.gen.current": "5", "clocks_event_reasons.active": "0x40"}
    found = links.summary([seen, seen | busy])["0"]
    assert found == {"gen": 5, "width": None, "throttle": ["hw_thermal_slowdown", "sw_power_cap"]}


LINES = """\
serious | NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', GPU has fallen
harmless | NVRM: Xid (PCI:0000:41:00): 63, Row remapping
serious | NVRM: Xid (PCI:0000:41:00 GPU-I:05): 43, pid=7
serious | NVRM: Xid (PCI:0000:41:00): 999
serious | NVRM: Xid (PCI:0000:41:00): 632
harmless | NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed from 0x1 (x) to 0x0 (None)
serious | NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (x)
harmless | x 0000:00:01.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal)
serious | NVRM: GPU at PCI:0000:01:00: it has fallen off the bus
own | Out of memory: Killed process 41 (python)
none | Out of memory: Killed process 42 (python)
none | usb 1-1: new device
"""


@pytest.mark.parametrize("row", LINES.splitlines())
def test_what_the_kernel_logs_of_gpus_and_of_this_tests_processes_is_read(row: str) -> None:
    what, line = row.split(" | ")
    found = host.after([f"[  12.3] {line}"], {41}, [])["kernel"]
    assert {name for name in ("own", "serious", "harmless") if found[name]} == {what} - {"none"}
    assert found.get(what, [line]) == [line]


def test_a_kernels_log_that_cannot_be_read_is_not_taken_for_an_empty_one() -> None:
    def log(*texts: str, code: int = 0) -> list[str] | None:
        reported = iter(Answer(code, text) for text in texts)
        return host.kernel_log_since(0, lambda _: next(reported))

    assert log("old", "a\nb") == ["a", "b"]
    assert log("old", "") == []
    assert log("", "") is None  # nobody lets this user read
    assert log("x", "x", code=1) is None


def test_nccls_log_tells_ways_and_the_interface_it_took(tmp_path: Path) -> None:
    (tmp_path / "nccl.box.1.log").write_text(
        "box:1:1 [0] NCCL INFO Bootstrap: Using docker0:172.17.0.1<0>\n"
        "box:1:1 [0] NCCL INFO NET/Socket : Using [0]docker0:172.17.0.1<0>\n"
        "box:1:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n"
        "box:1:9 [0] NCCL INFO Channel 01 : 1[c3000] -> 0[3000] via SHM/direct/direct comm 0x5\n"
        "box:1:9 [0] NCCL INFO Channel 02/0 : 0[0] -> 8[0] [send] via NET/Socket/0\n"
    )
    found = links.read_logs(tmp_path)
    assert found["ways"] == ["NET/Socket", "P2P/CUMEM/read", "SHM/direct/direct"]
    assert found["interfaces"] == ["docker0"]


def test_mapped_libraries_are_told_by_name_with_and_without_a_hash() -> None:
    row = "7f00-7f01 r-xp 00000000 00:00 1                  "
    lines = [f"{row}/a/libnccl.so.2", f"{row}/b/libcudart-1234abcd.so.13", f"{row}/c/libm.so.6"]
    assert libraries.parse([*lines, "7f00-7f01 rw-p 0 00:00 0"]) == {
        "libcudart": ["/b/libcudart-1234abcd.so.13"],
        "libnccl": ["/a/libnccl.so.2"],
    }


# -- one GPU


@pytest.mark.parametrize(
    ("archs", "capability", "way"),
    [
        (["sm_80", "sm_90"], (8, 6), "binary"),
        (["sm_90"], (8, 9), None),
        (["sm_90a"], (9, 0), "binary"),
        (["sm_90a"], (9, 1), None),
        (["sm_120f"], (12, 1), "binary"),
        (["compute_80"], (12, 0), "ptx"),
        (["compute_90a"], (10, 0), None),
        (["compute_100f"], (12, 0), None),
        (["gfx90a", "sm_"], (9, 0), None),
    ],
)
def test_what_torch_has_code_for(
    archs: list[str], capability: tuple[int, int], way: str | None
) -> None:
    assert device.covers(archs, capability) == way


@pytest.mark.torch
def test_the_cpu_stands_in_for_a_gpu(python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    cpu = torch.device("cpu")
    for wanted in (*precision.PLAIN.values(), precision.LADDER["fp8"]):
        found = precision.product(cpu, wanted)
        assert precision.right(found, wanted), found
        assert found["ratio"] > wanted.bound / 100, "the bound is no bound"
    assert device.memory(cpu, 2**16)["wrong"] == 0
    assert device.speed(cpu, 64, 2**10)["bf16_tflops"] >= 0
    scale = torch.arange(128 * 4).view(128, 4).to(torch.uint8)
    assert precision.swizzled(scale)[16:20].tolist() == scale[1].tolist()
    whole: Callable[..., Any] = torch.arange

    def broken(*words: Any, **how: Any) -> Any:
        made = whole(*words, **how)
        if broken.calls % 2:  # type: ignore[attr-defined]
            made[3] += 1
        broken.calls += 1  # type: ignore[attr-defined]
        return made

    broken.calls = 0  # type: ignore[attr-defined]
    monkeypatch.setattr(torch, "arange", broken)
    assert device.memory(cpu, 2**10)["wrong"] == 2
