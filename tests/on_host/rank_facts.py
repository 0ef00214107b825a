"""What ranks write down: sound facts, and for each check the wrong ones that it must notice.

Whoever adds a check on ranks adds its fact and its entries here; the tests beside this go by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pyinfra_gpu.on_host.smoke.judge.check import Expected
from pyinfra_gpu.on_host.smoke.torch_location import TorchLocation

from pyinfra_gpu.on_host.smoke import exactness

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
        "object_list": {"held": ["{'lr': 0.1}", "bytes of 9 characters"]},
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


Break = Callable[[dict[str, Any]], object]
# what is wrong on rank 1 -> the only checks that may notice, the first of them with these words
WRONGS: dict[str, tuple[Break, list[str], str]] = {
    "a stray variable": (
        lambda fact: fact["environment"].append("LD_PRELOAD"),
        ["S4.environment"],
        "rank 1 was started with LD_PRELOAD set",
    ),
    "another torch version": (
        lambda fact: fact["identity"].update(torch="2.12.0"),
        ["S4.torch"],
        "rank 1 imported torch 2.12.0",
    ),
    "a torch from elsewhere": (
        lambda fact: fact["identity"].update(torch_path="/home/me/torch/__init__.py"),
        ["S4.torch"],
        "from /home/me/torch",
    ),
    "a wrong rank": (lambda fact: fact["identity"].update(rank=0), ["S4.identity"], "rank 1"),
    "a wrong world size": (
        lambda fact: fact["identity"].update(world_size=4),
        ["S4.identity"],
        "reports rank 1, world_size 4, host box; expected rank 1, world_size 2, host box",
    ),
    "another host": (lambda fact: fact["identity"].update(host="x"), ["S4.identity"], "host x"),
    "the same process": (
        lambda fact: fact["identity"].update(pid=100),
        ["S4.identity"],
        "two ranks are the same process",
    ),
    "another store": (
        lambda fact: fact["store"].update(port=1),
        ["S4.store_address"],
        "rank 1 uses ['TCPStore', '127.0.0.1', 1]",
    ),
    "a file store": (
        lambda fact: fact["store"].update({"class": "FileStore", "host": None, "port": None}),
        ["S4.store_address"],
        "FileStore",
    ),
    "a server without libuv": (
        lambda fact: fact["store"].update(server_threads=["pt_tcpstore"]),
        ["S4.store_libuv"],
        "served by torchrun (pid 99), whose store threads are: pt_tcpstore",
    ),
    "a server with both": (
        lambda fact: fact["store"].update(server_threads=["pt_tcpstore", "pt_tcpstore_uv"]),
        ["S4.store_libuv"],
        "pt_tcpstore, pt_tcpstore_uv",
    ),
    "no server": (
        lambda fact: fact["store"].update(server_pid=None, server_threads=[]),
        ["S4.store_libuv"],
        "no process that listens on port 4711",
    ),
    "a wrong sum": (
        lambda fact: fact["allreduce_float32"]["runs"][7].update(WRONG),
        ["S4.allreduce_exact"],
        "1 MiB float32, repeat 2: rank 1 has 3 of 262144 elements wrong, "
        "the first is element 7: 1.0 in place of 2.0",
    ),
    "a wrong sum in bf16": (
        lambda fact: fact["allreduce_bfloat16"]["runs"][0].update(WRONG),
        ["S4.allreduce_exact_bf16"],
        "4 B bfloat16, repeat 1: rank 1 has 3 of 2 elements",
    ),
    "a size left out": (
        lambda fact: fact["allreduce_float32"]["runs"].pop(),
        ["S4.allreduce_exact"],
        "rank 1 did not compare every element of every size",
    ),
    "elements left out": (
        lambda fact: fact["allreduce_float32"]["runs"][-1].update(elements=1),
        ["S4.allreduce_exact"],
        "did not compare every element",
    ),
    "a wrong broadcast": (
        lambda fact: fact["broadcast"].update(WRONG),
        ["S4.broadcast"],
        "broadcast: rank 1 has 3 of 8 elements wrong",
    ),
    "a wrong all-gather": (
        lambda fact: fact["all_gather"].update(WRONG),
        ["S4.all_gather"],
        "all_gather: rank 1",
    ),
    "a wrong reduce-scatter": (
        lambda fact: fact["reduce_scatter"].update(WRONG),
        ["S4.reduce_scatter"],
        "reduce_scatter: rank 1",
    ),
    "a wrong receive": (
        lambda fact: fact["send_recv"].update(WRONG),
        ["S4.send_recv"],
        "send_recv: rank 1",
    ),
    "nothing compared": (
        lambda fact: fact["send_recv"].update(elements=0),
        ["S4.send_recv"],
        "rank 1 compared none",
    ),
    "an object that did not arrive": (
        lambda fact: fact["object_list"].update(held=["{'lr': 0.1}", "None"]),
        ["S4.object_list"],
        "rank 1 received {'lr': 0.1}, None in place of {'lr': 0.1}, bytes of 9 characters",
    ),
    "other first parameters": (
        lambda fact: fact["parameters_before"].update(sha256="zz"),
        ["S4.params_initial"],
        "the ranks' parameters before the step are not the same bytes",
    ),
    "the same data": (
        lambda fact: fact["gradients"].update(
            local_sha256="local0", gathered_sha256=["local0", "local0"]
        ),
        ["S4.grad_local_differs"],
        "",
    ),
    "an exchange that changes gradients": (
        lambda fact: fact["gradients"].update(gathered_sha256=["local0", "other"]),
        ["S4.grad_local_differs"],
        "rank 1 did not receive the other ranks' local gradients unchanged",
    ),
    "a gradient that is not the mean": (
        lambda fact: fact["gradients"].update(WRONG),
        ["S4.grad_bitwise"],
        "rank 1: 3 of 50 averaged gradient elements are not the mean",
    ),
    "a parameter without averaging": (
        lambda fact: fact["gradients"].update(averaged=40),
        ["S4.grad_bitwise"],
        "rank 1 left 10 gradient elements out",
    ),
    "other gradients": (
        lambda fact: fact["gradients"].update(sha256="zz"),
        ["S4.grad_equal"],
        "averaged gradients are not the same bytes",
    ),
    "an undefined gradient": (
        lambda fact: fact["gradients"].update(non_finite=2),
        ["S4.finite"],
        "rank 1 has infinite or undefined numbers: gradients 2",
    ),
    "an infinite parameter": (
        lambda fact: fact["step"].update(non_finite=1),
        ["S4.finite"],
        "parameters 1",
    ),
    "an undefined loss": (
        lambda fact: fact["step"].update(loss_after=math.nan),
        ["S4.finite", "S4.loss_drop"],
        "losses 1",
    ),
    "a first loss that is too good": (
        lambda fact: fact["step"].update(loss_before=8.0, loss_after=7.9801),
        ["S4.loss_initial"],
        "rank 1 starts at loss 8.0000, untrained it must be 9.0109",
    ),
    "a loss that stays": (
        lambda fact: fact["step"].update(loss_after=LN_V + 0.01),
        ["S4.loss_drop"],
        "measured/predicted = 0.4975",
    ),
    "a loss that rises": (
        lambda fact: fact["step"].update(loss_after=LN_V + 0.03),
        ["S4.loss_drop"],
        "measured/predicted = ",
    ),
    "other final parameters": (
        lambda fact: fact["parameters_after"].update(sha256="zz"),
        ["S4.params_equal"],
        "the ranks' parameters after the step are not the same bytes",
    ),
    "a compiled step with another loss": (
        lambda fact: fact["compiled_step"].update(loss=9.2),
        ["S4.compiled_step"],
        "rank 1: the compiled bfloat16 step has loss 9.2000, in eager mode 9.0000",
    ),
    "a compiled step without a loss": (
        lambda fact: fact["compiled_step"].update(loss=math.nan),
        ["S4.compiled_step"],
        "rank 1",
    ),
    "a compiled step that leaves a gradient out": (
        lambda fact: fact["compiled_step"].update(missing=2),
        ["S4.compiled_step"],
        "rank 1, compiled: without a gradient 2",
    ),
    "a compiled step with an undefined gradient": (
        lambda fact: fact["compiled_step"].update(non_finite=2),
        ["S4.compiled_step"],
        "not finite 2",
    ),
}
