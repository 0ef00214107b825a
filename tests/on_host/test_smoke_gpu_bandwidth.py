"""Bandwidth, pairs and the loaded link: real ranks over gloo beside a simulated nvidia-smi."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyinfra_gpu.on_host.smoke.gpu import checks, link
from pyinfra_gpu.on_host.smoke.gpu import expected as known
from pyinfra_gpu.on_host.smoke.judge.check import Finding
from smoke_gpu_simulated import (
    KINDS,
    Simulated,
    bandwidth_facts,
    executable,
    expected,
    rtx_5090,
    sound_host,
)

from tests.on_host.preloaded import Preloaded

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

_RANK = """
import os, sys, torch, torch.distributed as dist
sys.path.insert(0, sys.argv[3])
from datetime import timedelta
from pathlib import Path
from pyinfra_gpu.on_host.smoke.gpu import bandwidth, pairs
from pyinfra_gpu.on_host.smoke.journal import Writer
from pyinfra_gpu.on_host.smoke.options import WorkerOptions
from pyinfra_gpu.on_host.smoke.ranks.rank import Rank
torch.set_num_threads(1)
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", timeout=timedelta(seconds=300))
options = WorkerOptions(Path(sys.argv[1]), os.getpid(), "gpu", 60, 1, False, ())
it = Rank(options, Writer(options.directory, rank), rank, world, torch.device("cpu"))
bandwidth._LOAD_LIMIT, bandwidth._SAMPLES = 90.0, 1  # this machine may be busy
exec(sys.argv[2])
try:
    pairs.measure(it, mib=1)
except pairs.WrongDataError:
    sys.exit(3)
if sys.argv[2]:
    sys.exit(0)
bandwidth.measure(it, mib=1)
dist.barrier()
dist.destroy_process_group()
"""


def _run(
    python: Preloaded, tmp_path: Path, world: int, breakage: str = ""
) -> dict[int, dict[str, Any]]:
    """Run real ranks over gloo; return rank -> facts."""
    port = 20000 + os.getpid() % 20000
    common = {
        **executable(tmp_path / "bin", [rtx_5090(i) for i in range(world)]),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(world),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    script, printed = tmp_path / "rank.py", tmp_path / "printed"
    script.write_text(_RANK)
    arguments = [str(script), str(tmp_path), breakage, str(Path.cwd())]
    with printed.open("wb") as file:
        ranks = [
            python.start(
                arguments, stdout=file.fileno(), env={**os.environ, **common, "RANK": str(rank)}
            )
            for rank in range(world)
        ]
    try:
        codes = [rank.wait(timeout=300) for rank in ranks]
        assert codes == ([0, 0, 3] if breakage else [0] * world), printed.read_text()
    finally:
        for rank in ranks:
            rank.kill()
    facts: dict[int, dict[str, Any]] = {}
    for rank in range(world):
        lines = map(json.loads, (tmp_path / f"rank{rank}.jsonl").read_text().splitlines())
        facts[rank] = {line["name"]: line["value"] for line in lines if line["kind"] == "fact"}
    return facts


def _decide(name: str, facts: dict[int, dict[str, Any]], host: dict[str, Any]) -> Finding:
    check = next(check for check in (*checks.PAIR_CHECKS, *checks.RANK_CHECKS) if check.id == name)
    return check.decide(facts, expected(gpus=len(facts), gpu_host=host))


def test_three_real_ranks_measure_bandwidth_pairs_and_the_link(
    preloaded_python: Preloaded, tmp_path: Path
) -> None:
    facts = _run(preloaded_python, tmp_path, 3)
    for rank in range(3):
        pairs = [tuple(result["ranks"]) for result in facts[rank]["pairs"]["results"]]
        assert sorted(pairs) == [p for p in [(0, 1), (0, 2), (1, 2)] if rank in p]
        assert all(
            r["wrong"] == 0 and r["elements"] == 2**18 for r in facts[rank]["pairs"]["results"]
        )
        measured = facts[rank]["bandwidth"]
        assert (measured["bytes"], measured["runs"], measured["world"]) == (2**20, 20, 3)
        rate = 2**20 / measured["median_s"] * 4 / 3 / 1e9
        assert measured["busbw_gb_s"] == pytest.approx(rate, rel=0.05)
    seen = facts[0]["bandwidth"]["link"]
    assert sorted(seen) == ["0", "1", "2"]
    assert seen["2"]["samples"] >= 1
    assert (seen["2"]["gen"], seen["2"]["power_w"]) == (1, 412.35)
    assert "link" not in facts[1]["bandwidth"]
    assert _decide("S4.pairs_exact", facts, sound_host(tmp_path / "host")).detail == "all 3 pairs"


_BIT = """
real = dist.all_reduce
def spoiled(tensor, *args, **given):
    real(tensor, *args, **given)
    group = given.get("group")
    if rank == 2 and group is not None and 0 in dist.get_process_group_ranks(group):
        tensor[4711] += 1
dist.all_reduce = spoiled
"""


def test_a_pair_that_gets_one_element_wrong_is_named(
    preloaded_python: Preloaded, tmp_path: Path
) -> None:
    facts = _run(preloaded_python, tmp_path, 3, _BIT)
    ready = {rank: fact for rank, fact in facts.items() if "pairs" in fact}
    finding = _decide("S4.pairs_exact", ready, sound_host(tmp_path / "host"))
    assert not finding.ok
    assert finding.rank == 2
    assert "between GPUs 0 and 2: rank 2 has 1 of 262144 elements wrong" in finding.detail
    assert "the first is element 4711" in finding.detail


def test_two_ranks_are_their_only_pair(tmp_path: Path) -> None:
    facts = {rank: {"pairs": {"world": 2, "results": []}} for rank in range(2)}
    assert _decide("S4.pairs_exact", facts, sound_host(tmp_path)).ok


def test_a_pair_that_nobody_compared_fails(tmp_path: Path) -> None:
    def result(*pair: int) -> dict[str, Any]:
        return {"ranks": list(pair), "elements": 9, "wrong": 0}

    facts = {
        0: {"pairs": {"world": 3, "results": [result(0, 1), result(0, 2)]}},
        1: {"pairs": {"world": 3, "results": [result(0, 1)]}},
        2: {"pairs": {"world": 3, "results": [result(0, 2)]}},
    }
    finding = _decide("S4.pairs_exact", facts, sound_host(tmp_path))
    assert (finding.ok, finding.detail) == (False, "the pair of GPUs 1 and 2 was not compared")


@pytest.mark.parametrize("ranks", range(2, 17))
def test_every_pair_plays_once_and_nobody_twice_in_a_round(ranks: int) -> None:
    from pyinfra_gpu.on_host.smoke.gpu import pairs

    rounds = pairs.rounds(ranks)
    for pairs_now in rounds:
        players = list(itertools.chain(*pairs_now))
        assert len(players) == len(set(players))
    assert sorted(itertools.chain(*rounds)) == list(itertools.combinations(range(ranks), 2))
    assert len(rounds) == ranks - 1 + ranks % 2


def test_a_sampler_sees_only_the_time_under_load() -> None:
    smi = Simulated([rtx_5090(0) | {"pcie.link.gen.current": "1"}])
    with link.Sampler(smi) as sampler:
        time.sleep(0.15)
        began = time.monotonic()
        smi.gpus = [
            rtx_5090(0) | {"pcie.link.gen.current": "5", "clocks_event_reasons.active": "0x4"}
        ]
        time.sleep(0.2)
        ended = time.monotonic()
        smi.gpus = [rtx_5090(0) | {"pcie.link.width.current": "32"}]
        time.sleep(0.15)
    seen = link.summary(sampler.samples, began, ended)["0"]
    assert (seen["gen"], seen["width"]) == (5, 16)
    assert "sw_power_cap" in seen["throttle"]
    assert link.summary(sampler.samples, ended + 60, ended + 61) == {}


def test_every_reason_seen_under_load_is_kept_though_it_passes() -> None:
    def sample(when: float, mask: int | None) -> dict[str, Any]:
        figures = dict.fromkeys(("gen", "width", "sm_mhz", "power_w", "temperature_c"))
        return {"time": when, "gpus": [{"index": 0, **figures, "throttle_mask": mask}]}

    samples = [sample(1.0, 0x40), sample(2.0, None), sample(3.0, 0x4)]
    seen = link.summary(samples, 0.5, 3.5)["0"]
    assert seen["throttle"] == ["sw_power_cap", "hw_thermal_slowdown"]
    assert (seen["samples"], seen["gen"]) == (3, None)
    assert link.summary(samples, 1.5, 2.5)["0"]["throttle"] is None


def test_a_sampler_without_nvidia_smi_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with link.Sampler() as sampler:
        time.sleep(0.1)
    assert sampler.samples == []
    assert sampler.error is not None


def _status(finding: Finding) -> str:
    return finding.status or ("pass" if finding.ok else "fail")


@pytest.mark.parametrize(
    ("gb_s", "gen", "width", "status", "words"),
    [
        (26.0, 5, 16, "pass", "26.0 GB/s, 41% of the loaded link's 63 GB/s"),
        (12.0, 5, 8, "pass", "38% of the loaded link's 32 GB/s"),
        (15.8, 5, 16, "pass", "25%"),
        (15.6, 5, 16, "warn", "25%"),
        (6.4, 5, 16, "warn", "10%"),
        (6.2, 5, 16, "fail", "10%"),
        (1.0, 4, 16, "fail", "3% of the loaded link's 32 GB/s"),
        (0.1, 9, 16, "fail", "63 GB/s"),
    ],
)
def test_bandwidth_is_judged_by_the_slowest_loaded_link(
    gb_s: float, gen: int, width: int, status: str, words: str, tmp_path: Path
) -> None:
    finding = _decide("S4.bandwidth", bandwidth_facts(gb_s, gen, width), sound_host(tmp_path))
    assert _status(finding) == status
    assert words in finding.detail


def test_bandwidth_over_nvlink_is_not_judged_by_pcie(tmp_path: Path) -> None:
    host = sound_host(tmp_path)
    host["links"] = {"0-1": "NV18"}
    finding = _decide("S4.bandwidth", bandwidth_facts(5.0), host)
    assert (_status(finding), finding.detail) == ("pass", "5.0 GB/s over NV18")


def test_without_a_loaded_link_bandwidth_is_shown_and_not_judged(tmp_path: Path) -> None:
    facts = bandwidth_facts(0.5)
    facts[0]["bandwidth"]["link"] = {}
    finding = _decide("S4.bandwidth", facts, sound_host(tmp_path))
    assert _status(finding) == "pass"
    assert "not judged" in finding.detail
    assert _decide("S4.link", facts, sound_host(tmp_path / "2")).status == "warn"


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("gen", "width", "status", "words"),
    [
        (5, 16, "pass", "Gen5 x16"),
        (5, 8, "warn", "GPU 1 runs at Gen5 x8 under load, it could at Gen5 x16 (32 of 63 GB/s)"),
        (1, 16, "warn", "Gen1 x16 under load"),
        (None, 16, "warn", "its loaded link was not seen"),
    ],
)
def test_a_narrow_or_slow_link_is_a_warning_with_figures(
    gen: int | None, width: int, status: str, words: str, tmp_path: Path
) -> None:
    finding = _decide("S4.link", bandwidth_facts(26.0, gen, width), sound_host(tmp_path))
    assert _status(finding) == status
    assert words in finding.detail


def test_link_rates_are_those_of_the_standard() -> None:
    assert known.link_rate(5, 16) == pytest.approx(63, abs=0.1)
    assert known.link_rate(3, 4) == pytest.approx(3.94, abs=0.01)
    assert known.link_rate(9, 16) is None
    assert known.link_rate(5, 0) is None


@pytest.mark.parametrize(
    ("name", "bf16"),
    [
        ("NVIDIA GeForce RTX 5090", 209.5),
        ("NVIDIA GeForce RTX 5090 D", 209.5),
        ("NVIDIA H200", 989),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA L4", 121),
        ("NVIDIA B200", 2250),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", None),
        ("NVIDIA GB200", None),
        ("NVIDIA GH200 480GB", None),
        ("NVIDIA L40", None),
        ("NVIDIA RTX 9090", None),
    ],
)
def test_gpus_are_recognised_by_their_whole_name(name: str, bf16: float | None) -> None:
    kind = known.kind_of(name, KINDS)
    assert (kind.bf16_tflops if kind else None) == bf16


@pytest.mark.parametrize(
    ("name", "memory_gb_s", "memory_mib"),
    [
        ("NVIDIA GeForce RTX 5090", 1792, 32607),
        ("NVIDIA GeForce RTX 5090 D", 1792, 32607),
        ("NVIDIA GeForce RTX 5090 D v2", 1344, None),
        ("NVIDIA GeForce RTX 4090", 1008, 24564),
        ("NVIDIA H200 NVL", 4800, None),
        ("NVIDIA A100-SXM4-40GB", 1555, None),
        ("NVIDIA L4", 300, None),
    ],
)
def test_a_kinds_variants_are_told_apart(
    name: str, memory_gb_s: float, memory_mib: int | None
) -> None:
    kind = known.kind_of(name, KINDS)
    assert kind is not None
    assert (kind.memory_gb_s, kind.memory_mib) == (memory_gb_s, memory_mib)
    assert 0 < kind.fail < kind.warn < 1
    assert kind.source
