"""Sound facts, and for each check the wrong ones that it must notice, as rows.

Whoever adds a check adds its facts and its rows here; `test_smoke_judge` goes by them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from pyinfra_gpu.on_host.smoke import collectives
from pyinfra_gpu.on_host.smoke.check import Want
from pyinfra_gpu.on_host.smoke.collectives import name_of
from pyinfra_gpu.on_host.smoke.nvidia_smi import known
from tests.on_host.smoke_gpu_simulated import rtx_5090

RANK = """\
identity = {"rank": %R, "pid": 10%R, "host": "box", "boot_id": "b",\
 "torch": "2.13.0+cpu", "torch_path": "/venv/lib/torch"}
store = {"threads": ["pt_tcpstore_uv"]}
collectives = {"broadcast": %F, "all_gather": %F, "send_recv": %F,\
 "reduce_scatter": {"elements": 262144, "wrong": null}}
step = {"before": "aa", "wrong": null, "local": "local%R", "gradient": "bb", "norm_squared": 0.25,\
 "lr": 0.08, "loss_before": 9.0209133, "loss_after": 9.0010133, "after": "cc"}
libraries = {"prefix": "/venv", "mapped": {"libcuda": ["/usr/lib/libcuda.so.1"]},\
 "own": {"libnccl": ["/venv/lib/libnccl.so"], "libc10": []}}
compile = {"wrong": null, "kernels": 1, "eager": ["aten::mul"], "compiled": []}
cuda = {"built_for": "13.0", "archs": ["sm_120"], "devices": 2}
device = {"uuid": "GPU-%R", "name": "NVIDIA GeForce RTX 5090", "capability": [12, 0]}
matmul = {"fp32": {"non_finite": 0, "ratio": 1e-7}, "bf16": {"non_finite": 0, "ratio": 1e-3}}
memory = {"words": 134217728, "wrong": 0}
speed = {"bf16_tflops": 200.0, "memory_gb_s": 1500.0}
bandwidth = {"busbw_gb_s": 26.0, "link": {"0": %L, "1": %L}, "link_error": null}
"""
LAUNCHER = """\
variables = []
shm = {"mib": 256, "free_mib": 8000, "error": null}
gpu_host = {"error": null, "processes": []}
ended = 0
transport = {"ways": ["SHM/direct/direct"]}
own_choice = {"result": "passed", "interfaces": ["eth0"], "why": ""}
precision = {"formats": [%N, %N], "why": ""}
kernel = {"lines": ["", "", ""], "own": [], "serious": [], "harmless": []}
processes = []
"""
_LIBRARIES = ("torch_cpu", "torch_python", "c10", "torch_cuda", "c10_cuda", "nccl", "cudart")
_SHORT = {
    "%F": '{"elements": 524288, "wrong": null}',
    "%L": '{"gen": 5, "width": 16, "throttle": ["sw_power_cap"]}',
    "%N": '{"precision": [12, 0], "fp8": %P, "mxfp8": %P, "nvfp4": %P}',
    "%P": '{"non_finite": 0, "ratio": 1e-3}',
}


def _read(text: str, rank: int = 0) -> dict[str, Any]:
    for short, whole in {**_SHORT, "%R": str(rank)}.items():
        text = text.replace(short, whole)
    rows = (line.partition(" = ") for line in text.splitlines())
    return {name: json.loads(value) for name, _, value in rows}


def card(index: int) -> dict[str, Any]:
    """Return what nvidia-smi tells of one sound RTX 5090."""
    return {name: known(text) for name, text in rtx_5090(index).items()} | {"uuid": f"GPU-{index}"}


def sound(rank: int) -> dict[str, Any]:
    """Return what a sound rank writes down."""
    facts = _read(RANK, rank)
    own = {f"lib{name}": [f"/venv/lib/lib{name}.so"] for name in _LIBRARIES}
    facts["libraries"]["mapped"] |= own
    tries = itertools.product(collectives.KINDS, collectives.sizes(4), range(collectives.REPEATS))
    facts["collectives"] |= {
        name_of(kind, size, n): {"elements": size // collectives.KINDS[kind][0], "wrong": None}
        for kind, size, n in tries
    }
    return facts


def launchers() -> dict[str, Any]:
    """Return what the launcher of a sound host finds: the facts of S0 and S5, and after S4."""
    facts = _read(LAUNCHER)
    facts["gpu_host"]["gpus"] = [card(0), card(1)]
    return facts


HOST = launchers()["gpu_host"]
WANT = Want(
    output="",
    ranks=2,
    allreduce_mib=4,
    mode="gpu",
    torch_path="/venv/lib/torch",
    gpus=2,
    gpu_host=HOST,
    kinds=[
        {"pattern": "RTX 5090", "bf16_tflops": 210.0, "memory_gb_s": 1790.0}
        | {"warn": 0.6, "fail": 0.3, "source": "NVIDIA"}
    ],
)
BREAKAGES = """\
S0.environment | warn | host.variables = ["PYTHONPATH"] | only: PYTHONPATH; unset
S0.shm | fail | host.shm.error = "full" | in /dev/shm (8000 MiB free): full
S0.gpus | fail | host.gpu_host.error = "No devices" | nvidia-smi: No devices
S0.gpus | fail | host.gpu_host.gpus.1 - | lists 1 GPUs, 2 are declared
S0.gpus | warn | host.gpu_host.gpus.2 = {"name": "x"} | only 2 declared
S0.gpus | fail | card.mig.mode.current = "Enabled" | GPU 1 is divided (MIG)
S0.gpus | fail | card.remapped_rows.failure = "Yes" | cannot be replaced: exchange it
S0.gpus | fail | card.ecc.errors.uncorrected.volatile.total = "3" | 3 uncorrected memory errors
S0.gpus | fail | card.memory.used = "30000" | GPU 1 has 2607 MiB of 32607 MiB free
S0.gpu_processes | unknown | host.gpu_host.processes = [["7", "C", "python"]]\
 | in use by python (pid 7)
S0.gpu_processes | warn | host.gpu_host.processes = [["7", "C+G", "x"]] | also draw for x (pid 7)
S0.gpu_processes | warn | host.gpu_host.processes = null | cannot be read
S1.import | fail | rank.identity.torch_path = "/home" | rank 1: imported torch 2.13.0+cpu from /home
S1.import | fail | rank.identity.torch = "2.12.0" | box has torch 2.12.0
S1.import | fail | rank.identity.host = "x" | are the same machine
S1.cuda | fail | rank.cuda.devices = 1 | GPU 1: torch, built for CUDA 13.0, sees 1 GPUs, 2 are
S1.cuda | fail | rank.device.uuid = "GPU-0" | torch sees GPU-0 there, nvidia-smi GPU-1
S1.cuda | fail | rank.cuda.archs = ["sm_90"] | no kernels for it (sm_120
S1.cuda | warn | rank.cuda.archs = ["compute_90"] | only PTX for it
S1.matmul | fail | rank.matmul.fp32.ratio = 1e-4 | wrongly in fp32
S1.matmul | fail | rank.matmul.bf16.ratio = NaN | wrongly in bf16
S1.matmul | fail | rank.matmul.fp32.non_finite = 2 | 2 elements infinite
S1.memory | fail | rank.memory.wrong = 1 | 1 of 134217728 words
S1.memory | fail | rank.memory.words = 0 | 0 of 0 words
S1.speed | fail | rank.speed.bf16_tflops = 60 | 60 bf16 TFLOP/s, 29% of 210
S1.speed | warn | rank.speed.memory_gb_s = 1000 | 1000 GB/s of memory, 56%
S1.speed | warn | rank.speed.bf16_tflops = 150 | another 200
S1.libraries | fail | rank.libraries.mapped.libc10 = ["/a", "/b"] | mapped 2 times: /a, /b
S1.libraries | fail | rank.libraries.mapped.libnccl = ["/usr/libnccl"] | outside of /venv
S1.libraries | fail | rank.libraries.mapped.libcuda = ["/x/compat/l.so"] | 'compat' directory
S1.libraries | fail | rank.libraries.mapped.libcuda = ["/x/stubs/l.so"] | 'stubs' directory
S1.libraries | fail | rank.libraries.mapped.libnccl - | libnccl not mapped
S3.compile | warn | rank.compile.disabled = ["TORCH_COMPILE_DISABLE"] | COMPILE_DISABLE=1 is set
S3.compile | fail | rank.compile.error = "Boom" | does not work: Boom
S3.compile | fail | rank.compile.wrong = "1 of 64" | something else: 1 of 64
S3.compile | fail | rank.compile.compiled = ["aten::mul"] | it ran aten::mul
S3.compile | fail | rank.compile.kernels = 0 | nothing that can be seen
S3.compile | fail | rank.compile.eager = [] | in eager mode either
S4.store | fail | rank.store.threads = ["pt_tcpstore", "pt_tcpstore_uv"] | pt_tcpstore, pt_tcp
S4.store | fail | rank.store.threads = [] | in torchrun, are: none
S4.collectives | fail | rank.collectives.{last}.wrong = "Mism" | rank 1: {last}: Mism
S4.collectives | fail | rank.collectives.{last} - | did not compare every element of {last}
S4.collectives | fail | rank.collectives.broadcast.wrong = "Mism" | rank 1: broadcast: Mism
S4.collectives | fail | rank.collectives.reduce_scatter.elements = 8 | of reduce_scatter
S4.training_step | fail | rank.step.wrong = "3 of 50" | rank 1: the averaged gradients are not the\
 mean: 3 of 50
S4.training_step | fail | rank.step.before = "z" | before the step are not the same
S4.training_step | fail | rank.step.gradient = "z" | averaged gradients are not the same
S4.training_step | fail | rank.step.after = "z" | after the step are not the same
S4.training_step | fail | rank.step.local = "local0" | the same data
S4.training_step | fail | rank.step.loss_after = NaN | fell by nan
S4.training_step | fail | rank.step.loss_after = 9.0209 | 0.497
S4.training_step | fail | rank.step.loss_after = 8.9609 | 1.99
S4.bandwidth | fail | rank0.bandwidth.busbw_gb_s = 3.0 | 5% of the loaded link's 63
S4.bandwidth | warn | rank0.bandwidth.busbw_gb_s = 10.0 | 16% of
S4.link | warn | rank0.bandwidth.link.1.gen = 4; rank0.bandwidth.link.1.width = 8\
 | GPU 1 runs at Gen4 x8 under load, it could at Gen5 x16: slot
S4.link | warn | rank0.bandwidth.link = {}; rank0.bandwidth.link_error = "no" | was not seen (no)
S4.link | warn | rank0.bandwidth.link.1.throttle = ["hw_power_brake_slowdown"] | GPU 1 is slowed
S4.transport | fail | host.transport.ways = ["NET/Socket"] | over the network
S4.transport | warn | host.transport.ways = [] | logs name no channel
S4.own_choice | warn | host.own_choice = {"result": "hung", "interfaces": ["docker0"], "why": "x"}\
 | NCCL chose docker0, and an all-reduce hung
S4.precision | fail | host.precision.formats.1.fp8.ratio = 0.5 | fp8 computes wrong numbers
S4.precision | fail | host.precision.formats.0.nvfp4.non_finite = 1 | nvfp4 computes wrong
S4.precision | warn | host.precision.formats.1.nvfp4 = %E | nvfp4 failed: no; use mxfp8
S4.precision | warn | host.precision.formats.1 = {}; host.precision.why = "late" | fp8 failed: late
S4.precision | pass | host.precision.formats = [{"precision": [9, 0], "fp8": %P, "mxfp8": %E,\
 "nvfp4": %E}] | fp8 native, mxfp8 unsupported, nvfp4 unsupported; best fp8
S5.kernel_log | fail | host.kernel.own = ["oom"] | a process of this test: oom
S5.kernel_log | fail | host.kernel.serious = ["NVRM: Xid 79"] | during the test: NVRM: Xid 79
S5.kernel_log | warn | host.kernel.harmless = ["NVRM: Xid 63"] | during the test: NVRM: Xid 63
S5.kernel_log | skip | host.kernel.lines = null | may not read
S5.leftovers | fail | host.processes = [9] | left processes 9
""".replace("{last}", name_of("bfloat16", 4 * 2**20, 2))
BREAKAGES = BREAKAGES.replace("%P", _SHORT["%P"]).replace("%E", '{"error": "no"}')
"""The check, how it must end, what is wrong (`-`: is not there), and words of the sentence. `rank`
is rank 1, `card` GPU 1 as nvidia-smi lists it, `host` what the launcher finds."""


def breakages() -> Iterator[tuple[str, str, str, str]]:
    """Yield the rows of the table."""
    for line in BREAKAGES.splitlines():
        check, status, changes, words = (cell.strip() for cell in line.split(" | "))
        yield check, status, changes, words


def broken(facts: dict[str, Any], changes: str) -> None:
    """Make these changes to facts."""
    for change in changes.split("; "):
        path, equals, value = change.partition(" = ")
        *keys, last = path.removesuffix(" -").split(".", 1 if path.startswith("card.") else -1)
        place: Any = facts
        for key in keys:
            place = place[int(key) if isinstance(place, list) else key]
        if not equals:
            del place[int(last) if isinstance(place, list) else last]
        elif isinstance(place, list):
            place[int(last) :] = [json.loads(value), *place[int(last) + 1 :]]
        else:
            place[last] = json.loads(value)
