"""What sound ranks write down, for the tests that judge it and for those that break it."""

from __future__ import annotations

import math
from typing import Any

from pyinfra_gpu.on_host.smoke import exactness
from pyinfra_gpu.on_host.smoke.judge.check import Expected
from pyinfra_gpu.on_host.smoke.torch_location import TorchLocation

TORCH = TorchLocation("/venv/lib/torch", "2.13.0+cpu", "/venv/lib")
EXPECTED = Expected(ranks=2, allreduce_mib=4, torch=TORCH, removed=["NCCL_DEBUG"])
LN_V = math.log(8192)


def _fine(elements: int = 8) -> dict[str, Any]:
    return {"elements": elements, "wrong": 0}


def _runs(item: int) -> dict[str, Any]:
    sizes = [size for size in exactness.sizes(4) for _ in range(exactness.REPEATS)]
    return {"runs": [{"size": size, "seconds": 0.1, **_fine(size // item)} for size in sizes]}


def sound(rank: int) -> dict[str, Any]:
    return {
        "identity": {
            "rank": rank,
            "local_rank": rank,
            "world_size": 2,
            "pid": 100 + rank,
            "host": "box",
            "python": "/venv/bin/python",
            "torch": "2.13.0+cpu",
            "device": "cpu",
            "torch_path": "/venv/lib/torch/__init__.py",
        },
        "environment": [],
        "store": {
            "class": "TCPStore",
            "host": "127.0.0.1",
            "port": 4711,
            "agent_pid": 99,
            "master_addr": "127.0.0.1",
            "master_port": 4711,
            "server_pid": 99,
            "server_threads": ["pt_tcpstore_uv", "pt_tcpstore_uv"],
        },
        "allreduce_float32": _runs(4),
        "allreduce_bfloat16": _runs(2),
        "broadcast": _fine(),
        "all_gather": _fine(),
        "reduce_scatter": _fine(),
        "send_recv": _fine(),
        "parameters_before": {"sha256": "aa"},
        "gradients": {
            "elements": 50,
            "averaged": 50,
            "norm_squared": 0.25,
            "non_finite": 0,
            "wrong": 0,
            "local_sha256": f"local{rank}",
            "gathered_sha256": ["local0", "local1"],
            "sha256": "bb",
        },
        "step": {
            "lr": 0.08,
            "loss_before": LN_V + 0.01,
            "loss_after": LN_V - 0.0099,
            "non_finite": 0,
        },
        "parameters_after": {"sha256": "cc"},
        "compiled_step": {
            "compiled": True,
            "eager_loss": 9.0,
            "loss": 9.01,
            "missing": 0,
            "non_finite": 0,
        },
    }


WRONG = {"wrong": 3, "first": [7, 1.0, 2.0]}
