"""Compile a kernel by torch's Triton for GPUs that are not there, and say what ptxas made of it."""

import re

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def scaled(source, target, count, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(source + at, mask=at < count, other=0.0)
    tl.store(target + at, value * 2.0, mask=at < count)


print(f"torch {torch.__version__}, triton {triton.__version__}")
for capability in (90, 120):
    source = ASTSource(
        scaled,
        signature={"source": "*fp32", "target": "*fp32", "count": "i32", "block": "constexpr"},
        constexprs={"block": 1024},
    )
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32))
    ptx, cubin = made.asm["ptx"], made.asm["cubin"]
    version = re.search(r"^\.version (\S+)", ptx, re.M)[1]
    target = re.search(r"^\.target (\S+?),?$", ptx, re.M)[1]
    # ELF of CUDA: the architecture is in the flags, at byte 48.
    flags = int.from_bytes(cubin[48:52], "little")
    made_of = f"PTX {version} for {target}, {len(cubin)} bytes of cubin"
    print(f"sm_{capability}: {made_of}, flags {flags:#x}")
