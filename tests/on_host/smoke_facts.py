"""Sound facts, and for each check the wrong ones that it must notice, as rows.

Whoever adds a check adds its facts and its rows here; `test_smoke_judge` goes by them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pyinfra_gpu.on_host.smoke import exactness
from pyinfra_gpu.on_host.smoke.check import Want
from pyinfra_gpu.on_host.smoke.collectives import name_of

LN_V = math.log(8192)
GIB = 1024
TORCH, TORCH_PATH = "2.13.0+cpu", "/venv/lib/torch"


def card(index: int) -> dict[str, Any]:
    """Return what nvidia-smi tells of one sound RTX 5090, as `gpus` reads it."""
    return {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "NVIDIA GeForce RTX 5090",
        "pci": f"0000:0{index + 1}:00.0",
        "driver": "580.95.05",
        "cc": [12, 0],
        "memory_mib": 32607,
        "memory_used_mib": 2,
        "compute_mode": "Default",
        "persistence": "Enabled",
        "mig": None,
        "ecc_uncorrected": None,
        "remap_pending": None,
        "remap_failure": None,
        "gen_max": 5,
        "width_max": 16,
        "power_limit_w": 575.0,
        "throttle_mask": 1,
    }


HOST = {
    "gpus": [card(0), card(1)],
    "error": None,
    "driven": 2,
    "module": "580.95.05",
    "open": True,
    "nvml": "580.95",
    "processes": [],
    "links": {"0-1": "PHB"},
}
KIND = {
    "pattern": "RTX 5090",
    "capability": [12, 0],
    "memory_mib": 32607,
    "bf16_tflops": 210.0,
    "memory_gb_s": 1790.0,
    "warn": 0.6,
    "fail": 0.3,
    "source": "NVIDIA",
}
WANT = Want(
    ranks=2,
    allreduce_mib=4,
    mode="gpu",
    torch_path=TORCH_PATH,
    gpus=2,
    gpu_host=HOST,
    kinds=[KIND],
)


def _reduced() -> dict[str, dict[str, Any]]:
    return {
        name_of(kind, size, repeat): {
            "elements": size // exactness.item_size(kind),
            "seconds": 0.1,
            "wrong": None,
        }
        for kind in exactness.KINDS
        for size in exactness.sizes(4)
        for repeat in range(exactness.REPEATS)
    }


LAST = name_of("float32", 4 * 2**20, 2)


def sound(rank: int) -> dict[str, Any]:
    """Return what a sound rank, or the process of a sound device, writes down."""
    link = {"samples": 9, "gen": 5, "width": 16, "throttle": ["sw_power_cap"]}
    fine = {"elements": 2**19, "wrong": None}
    return {
        "identity": {
            "rank": rank,
            "world_size": 2,
            "strays": [],
            "pid": 100 + rank,
            "host": "box",
            "boot_id": "b",
            "torch": TORCH,
            "torch_path": TORCH_PATH,
        },
        "init": {},
        "store": {
            "used": ["TCPStore", "127.0.0.1", 4711],
            "told": ["TCPStore", "127.0.0.1", 4711],
            "threads": ["pt_tcpstore_uv"],
        },
        "all_reduce": _reduced(),
        "collectives": {
            "broadcast": dict(fine),
            "all_gather": dict(fine),
            "reduce_scatter": {**fine, "elements": 2**18},
            "send_recv": dict(fine),
        },
        "parameters_before": {"sha256": "aa"},
        "gradients": {
            "elements": 50,
            "averaged": 50,
            "norm_squared": 0.25,
            "non_finite": 0,
            "wrong": None,
            "local_sha256": f"local{rank}",
            "gathered_sha256": ["local0", "local1"],
            "sha256": "bb",
        },
        "step": {
            "lr": 0.08,
            "loss_before": LN_V + 0.01,
            "loss_after": LN_V - 0.0099,
            "non_finite": 0,
            "sha256": "cc",
        },
        "libraries": {
            "prefix": "/venv",
            "mapped": {
                name: [f"/venv/lib/{name}.so"]
                for name in (
                    *("libtorch_cpu", "libtorch_python", "libc10", "libtorch_cuda", "libc10_cuda"),
                    *("libnccl", "libcudart"),
                )
            }
            | {"libcuda": ["/usr/lib/libcuda.so.1"]},
            "own": {"libnccl": ["/venv/lib/libnccl.so"], "libc10": []},
        },
        "compile": {
            "disabled": [],
            "lacking": "",
            "error": None,
            "wrong": None,
            "graphs": 1,
            "kernels": 1,
            "eager": ["aten::mul"],
            "compiled": [],
            "binaries": 1,
        },
        "cuda": {
            "torch_cuda": "13.0",
            "arch_list": ["sm_120"],
            "nccl": "2.28.3",
            "available": True,
            "devices": 2,
        },
        "device": {
            "uuid": f"GPU-{rank}",
            "name": "NVIDIA GeForce RTX 5090",
            "capability": [12, 0],
        },
        "matmul": {
            "float32": {"non_finite": 0, "ratio": 1e-7},
            "bfloat16": {"non_finite": 0, "ratio": 1e-3},
        },
        "memory": {"bytes": 2**30, "words": 2**27, "passes": 2, "wrong": 0, "first": None},
        "speed": {"bf16_tflops": 200.0, "memory_gb_s": 1500.0},
        "bandwidth": {
            "bytes": 2**28,
            "busbw_gb_s": 26.0,
            "link": {"0": dict(link), "1": dict(link)},
            "link_error": None,
        },
    }


def launchers() -> dict[str, Any]:
    """Return what the launcher of a sound host finds: the facts of S0 and S5, and after S4."""
    after = {"gpus": [card(0), card(1)], "error": None, "loaded": None, "own": []}
    return {
        "variables": [],
        "shm": {"path": "/dev/shm", "trial_mib": 256, "error": None, "free_mib": 8000},
        "disk": {"path": "/opt", "free_mib": 90000, "free_inodes": 10**6},
        "gpu_host": {**HOST, "gpus": [card(0), card(1)]},
        "ended": 0,
        "libuv": {"error": None, "threads": ["pt_tcpstore_uv"], "returned": "test"},
        "transport": {"logs": 2, "ways": {"SHM/direct/direct": 4}, "versions": ["2.28.3"]},
        "own_choice": {"result": "passed", "interfaces": ["eth0"], "why": ""},
        "precision": {
            "formats": {
                name: {"status": "native", "reason": ""}
                for name in ("bf16", "fp8", "mxfp8", "nvfp4")
            }
            | {"mxfp4": {"status": "unsupported (expected)", "reason": "not on this GPU"}},
            "best": "nvfp4",
        },
        "kernel": {"lines": [""] * 3, "reason": "", "own": [], "hardware": []},
        "processes": [],
        "xids": [],
        "gpu_after": after,
    }


Break = Callable[[dict[str, Any]], object]


def put(*path: Any) -> Break:
    """Return what sets a value deep in facts: keys, then the value."""
    *keys, last, value = path

    def change(facts: Any) -> None:
        for key in keys:
            facts = facts[key]
        facts[last] = value

    return change


XID = "Xid 79 on 0000:01:00.0: GPU has fallen off the bus"
OFF = ["TORCH_COMPILE_DISABLE"]
APP = {"pid": 7, "type": "C", "name": "python"}
LIBRARY = ("libraries", "mapped")

# what is wrong with rank or device 1 -> (its check, status, words of the sentence)
ON_RANKS: list[tuple[Break, str, str, str]] = [
    (put("identity", "strays", ["LD_PRELOAD"]), "S4.ranks", "fail", "with LD_PRELOAD set"),
    (put("identity", "torch", "2.12.0"), "S4.ranks", "fail", "rank 1 imported torch 2.12.0"),
    (put("identity", "torch_path", "/home/me"), "S4.ranks", "fail", "from /home/me"),
    (put("identity", "rank", 0), "S4.ranks", "fail", "rank 1 reports rank 0"),
    (put("identity", "world_size", 3), "S4.ranks", "fail", "world_size 3"),
    (put("identity", "host", "x"), "S4.ranks", "fail", "host x"),
    (put("identity", "pid", 100), "S4.ranks", "fail", "the same process"),
    (put("store", "used", 2, 1), "S4.store", "fail", "uses ['TCPStore', '127.0.0.1', 1]"),
    (put("store", "used", 0, "FileStore"), "S4.store", "fail", "FileStore"),
    (put("store", "threads", ["pt_tcpstore"]), "S4.store", "fail", "rank 1 are: pt_tcpstore"),
    (
        put("store", "threads", ["pt_tcpstore", "pt_tcpstore_uv"]),
        *("S4.store", "fail", "pt_tcpstore, pt_tcpstore_uv"),
    ),
    (put("store", "threads", []), "S4.store", "fail", "rank 1 are: none"),
    (
        put("all_reduce", LAST, "wrong", "Mismatched"),
        *("S4.allreduce_exact", "fail", "all-reduce of 4 MiB float32, repeat 3: Mismatched"),
    ),
    (lambda f: f["all_reduce"].pop(LAST), "S4.allreduce_exact", "fail", "did not compare"),
    (
        put("all_reduce", name_of("bfloat16", 4096, 0), "elements", 1),
        *("S4.allreduce_exact", "fail", "every element of all-reduce of 4 KiB bfloat16, repeat 1"),
    ),
    *(
        (
            put("collectives", name, "wrong", "Mismatched elements"),
            *("S4.collectives", "fail", f"rank 1, {name}: Mismatched elements"),
        )
        for name in ("broadcast", "all_gather", "reduce_scatter", "send_recv")
    ),
    (put("collectives", "send_recv", "elements", 0), "S4.collectives", "fail", "not compare"),
    (lambda f: f["collectives"].pop("all_gather"), "S4.collectives", "fail", "of all_gather"),
    (put("gradients", "wrong", "3 of 50"), "S4.grad_bitwise", "fail", "not the mean: 3 of 50"),
    (put("gradients", "averaged", 40), "S4.grad_bitwise", "fail", "left 10 gradient elements"),
    (put("gradients", "averaged", 0), "S4.grad_bitwise", "fail", "exchanged no gradient at all"),
    (put("parameters_before", "sha256", "z"), "S4.training_step", "fail", "before the step are"),
    (
        lambda f: f["gradients"].update(local_sha256="local0", gathered_sha256=["local0"] * 2),
        *("S4.training_step", "fail", "gradients unchanged"),
    ),
    (put("gradients", "gathered_sha256", ["local0", "x"]), "S4.training_step", "fail", "unchanged"),
    (put("gradients", "sha256", "z"), "S4.training_step", "fail", "averaged gradients are not"),
    (put("gradients", "non_finite", 2), "S4.training_step", "fail", "gradients 2"),
    (put("step", "non_finite", 1), "S4.training_step", "fail", "parameters 1"),
    (put("step", "loss_after", math.nan), "S4.training_step", "fail", "losses 1"),
    (put("step", "loss_before", 8.0), "S4.training_step", "fail", "untrained it must be 9.0109"),
    (put("step", "sha256", "z"), "S4.training_step", "fail", "after the step are not the same"),
    (put("step", "loss_after", LN_V + 0.01), "S4.loss_drop", "fail", "predicted = 0.4975"),
    (put("step", "loss_after", LN_V - 0.05), "S4.loss_drop", "fail", "predicted = 1.9975"),
    (put(*LIBRARY, "libc10", ["/a", "/b"]), "S1.libraries", "fail", "mapped 2 times: /a, /b"),
    (put(*LIBRARY, "libnccl", ["/usr/libnccl"]), "S1.libraries", "fail", "outside of /venv"),
    (put(*LIBRARY, "libcuda", ["/x/compat/l.so"]), "S1.libraries", "fail", "'compat' directory"),
    (put(*LIBRARY, "libcuda", ["/x/stubs/l.so"]), "S1.libraries", "fail", "'stubs' directory"),
    (
        lambda f: f["libraries"]["mapped"].pop("libnccl"),
        *("S1.libraries", "fail", "libnccl not mapped"),
    ),
    (put("compile", "disabled", OFF), "S3.compile", "warn", "TORCH_COMPILE_DISABLE=1 is set here"),
    (put("compile", "error", "Boom"), "S3.compile", "fail", "does not work: Boom"),
    (
        lambda f: f["compile"].update(error="Boom", lacking="no C++ compiler; "),
        *("S3.compile", "fail", "does not work: no C++ compiler; Boom"),
    ),
    (put("compile", "wrong", "1 of 64"), "S3.compile", "fail", "something else: 1 of 64"),
    (put("compile", "compiled", ["aten::mul"]), "S3.compile", "fail", "it ran aten::mul"),
    (put("compile", "kernels", 0), "S3.compile", "fail", "0 kernels"),
    (put("compile", "binaries", 0), "S3.compile", "fail", "0 binaries"),
    (put("compile", "eager", []), "S3.compile", "fail", "in eager mode either"),
    (put("cuda", "nccl", "2.27"), "S1.cuda", "fail", "different versions of NCCL"),
    (put("cuda", "torch_cuda", None), "S1.cuda", "fail", "built for the CPU"),
    (put("cuda", "devices", 1), "S1.cuda", "fail", "sees 1 GPUs, 2 are declared"),
    (put("cuda", "available", False), "S1.cuda", "fail", "torch sees"),
    (put("cuda", "nccl", None), "S1.cuda", "fail", "no NCCL"),
    (put("device", "uuid", "GPU-0"), "S1.cuda", "fail", "torch's GPU 1 is GPU-0"),
    (put("device", "capability", [9, 0]), "S1.cuda", "fail", "reports capability [9, 0]"),
    (put("cuda", "arch_list", ["sm_90"]), "S1.arch", "fail", "no kernels for GPU 1 (sm_120"),
    (put("cuda", "arch_list", ["compute_90"]), "S1.arch", "warn", "only PTX"),
    (put("matmul", "float32", "ratio", 1e-4), "S1.matmul", "fail", "wrongly in float32"),
    (put("matmul", "bfloat16", "ratio", math.nan), "S1.matmul", "fail", "wrongly in bfloat16"),
    (put("matmul", "float32", "non_finite", 2), "S1.matmul", "fail", "2 elements infinite"),
    (
        lambda f: f["memory"].update(wrong=1, first=[5, 3, 2]),
        *("S1.memory", "fail", "1 of 134217728 words read back wrong, the first is 5: 0x3"),
    ),
    (put("memory", "words", 0), "S1.memory", "fail", "0 of 0 words"),
    (put("speed", "bf16_tflops", 60.0), "S1.speed", "fail", "60 bf16 TFLOP/s, 29% of 210"),
    (put("speed", "memory_gb_s", 1000.0), "S1.speed", "warn", "1000 GB/s of memory, 56%"),
    (put("speed", "bf16_tflops", 150.0), "S1.speed", "warn", "another 200"),
    (put("bandwidth", "busbw_gb_s", 3.0), "S4.bandwidth", "fail", "5% of the loaded link's 63"),
    (put("bandwidth", "busbw_gb_s", 10.0), "S4.bandwidth", "warn", "16% of"),
]

# the same of what the launcher itself finds
ON_THE_HOST: list[tuple[Break, str, str, str]] = [
    (put("libuv", "error", "built without"), "S2.libuv", "fail", "served: built without"),
    (put("libuv", "threads", ["pt_tcpstore"]), "S2.libuv", "fail", "threads: pt_tcpstore"),
    (put("libuv", "returned", "tset"), "S2.libuv", "fail", "'tset' for 'test'"),
    (
        put("variables", ["MASTER_PORT"]),
        "S0.environment",
        "warn",
        "only: MASTER_PORT; unset",
    ),
    (
        lambda f: f["shm"].update(error="No space left", size_mib=20, largest=[["x", 18]]),
        *("S0.shm", "fail", "256 MiB cannot be allocated in /dev/shm (20 MiB, 8000 free)"),
    ),
    (put("shm", "free_mib", 512), "S0.shm", "warn", "512 MiB free, less than 1024"),
    (put("disk", "free_mib", 8), "S0.disk", "fail", "has 8 MiB free, the test needs 64"),
    (put("disk", "free_inodes", 0), "S0.disk", "fail", "no inodes"),
    (put("disk", "free_mib", 900), "S0.disk", "warn", "less than 1024"),
    (put("gpu_host", "error", "No devices"), "S0.gpus", "fail", "nvidia-smi: No devices"),
    (put("gpu_host", "driven", 3), "S0.gpus", "fail", "drives 3 GPUs, nvidia-smi lists 2"),
    (
        lambda f: f["gpu_host"].update(gpus=[card(0)], driven=None),
        *("S0.gpus", "fail", "lists 1 GPUs, 2 are declared"),
    ),
    (put("gpu_host", "gpus", [*map(card, range(3))]), "S0.gpus", "warn", "only 2 declared"),
    (put("gpu_host", "gpus", 1, "uuid", "GPU-0"), "S0.gpus", "fail", "the same UUID"),
    (put("gpu_host", "gpus", 1, "uuid", None), "S0.gpus", "unknown", "no UUID for GPU 1"),
    (put("gpu_host", "module", "570.1"), "S0.driver", "fail", "module is 570.1"),
    (put("gpu_host", "nvml", "570.1"), "S0.driver", "fail", "NVML library is 570.1"),
    (put("gpu_host", "open", False), "S0.driver", "fail", "needs the open one"),
    (put("gpu_host", "open", None), "S0.driver", "warn", "cannot be read"),
    (put("gpu_host", "gpus", 1, "driver", "570"), "S0.driver", "unknown", "one driver version"),
    (put("gpu_host", "processes", [APP]), "S0.gpu_processes", "unknown", "python (pid 7)"),
    (
        put("gpu_host", "processes", [{**APP, "type": "C+G"}]),
        *("S0.gpu_processes", "warn", "also draw for"),
    ),
    (put("gpu_host", "processes", None), "S0.gpu_processes", "warn", "cannot be read"),
    (put("ended", 1), "S4.finished", "fail", "exit code 1"),
    (put("transport", "ways", {"NET/Socket": 2}), "S4.transport", "fail", "over the network"),
    (put("transport", "ways", {"P2P/CUMEM": 2}), "S4.transport", "warn", "a patched driver"),
    (put("transport", "ways", {}), "S4.transport", "warn", "2 logs name no channel"),
    (
        put("own_choice", {"result": "hung", "interfaces": ["docker0"], "why": "rank 0 waits"}),
        *("S4.own_choice", "warn", "NCCL chose docker0, and an all-reduce hung"),
    ),
    (
        put("precision", "formats", "bf16", "status", "failed"),
        *("S4.precision", "fail", "bf16 failed"),
    ),
    (put("precision", "formats", "fp8", "status", "wrong"), "S4.precision", "fail", "fp8 wrong"),
    (
        put("precision", "formats", "fp8", {"status": "failed", "reason": "crash"}),
        *("S4.precision", "warn", "fp8 failed: crash; use nvfp4"),
    ),
    (put("kernel", "own", ["oom"]), "S5.kernel_log", "fail", "was killed: oom"),
    (put("kernel", "hardware", ["mce"]), "S5.kernel_log", "warn", "hardware error meanwhile: mce"),
    (put("kernel", "lines", None), "S5.kernel_log", "skip", "cannot be read"),
    (put("processes", [9]), "S5.leftovers", "fail", "left processes 9"),
    (put("xids", [(False, "Xid 63"), (True, XID)]), "S5.xids", "fail", XID),
    (put("xids", [(False, "Xid 63")]), "S5.xids", "warn", "Xid 63"),
    (put("xids", None), "S5.xids", "skip", "cannot be read"),
    (put("gpu_after", "gpus", 1, "throttle_mask", 0x40), "S5.throttle", "warn", "far too hot"),
    (
        put("gpu_after", "loaded", {"0": {"throttle": ["hw_power_brake_slowdown"]}}),
        *("S5.throttle", "warn", "GPU 0 is slowed down"),
    ),
    (put("gpu_after", "error", "lost"), "S5.gpu_leftovers", "fail", "after the test: lost"),
    (put("gpu_after", "gpus", [card(0)]), "S5.gpu_leftovers", "fail", "1 GPUs are lost"),
    (put("gpu_after", "own", [7]), "S5.gpu_leftovers", "fail", "still hold a GPU: 7"),
    (
        put("gpu_after", "gpus", 1, "memory_used_mib", 9000),
        *("S5.gpu_leftovers", "warn", "memory in use has grown on GPU 1"),
    ),
]

# what is wrong with GPU 1 as nvidia-smi lists it
ON_CARDS: list[tuple[dict[str, Any], str, str, str]] = [
    ({"compute_mode": "Prohibited"}, "S0.gpu_state", "fail", "GPU 1: compute mode Prohibited"),
    ({"compute_mode": "Exclusive_Process"}, "S0.gpu_state", "warn", "-i 1 -c DEFAULT"),
    ({"mig": "Enabled"}, "S0.gpu_state", "fail", "it is divided (MIG)"),
    ({"remap_failure": "Yes"}, "S0.gpu_state", "fail", "exchange the GPU"),
    ({"ecc_uncorrected": 3}, "S0.gpu_state", "fail", "3 uncorrected memory errors"),
    ({"remap_pending": "Yes"}, "S0.gpu_state", "warn", "wait to be replaced"),
    ({"persistence": "Disabled"}, "S0.gpu_state", "warn", "persistence is off"),
    ({"memory_used_mib": 30000}, "S0.gpu_state", "fail", "2607 MiB of 32607 MiB are free"),
    ({"memory_mib": None}, "S0.gpu_state", "warn", "its free memory cannot be read"),
    ({"memory_mib": 24000}, "S0.gpu_state", "warn", "has 32607"),
]
