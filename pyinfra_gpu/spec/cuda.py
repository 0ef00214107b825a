"""The CUDA toolkit, and the driver's library as programs find it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyinfra_gpu.spec import nvidia_values as nv
from pyinfra_gpu.spec import values as v
from pyinfra_gpu.spec.driver import may_install
from pyinfra_gpu.spec.key import Given, from_stack, key
from pyinfra_gpu.stacks import catalogue


def _archs(given: Given, capabilities: Sequence[str] | None) -> tuple[int, ...]:
    """Return those that data names; else the GPU model's, else those of torch's wheel."""
    release = given["cuda_release"]
    if capabilities or release is None:
        return tuple(nv.arch_number(capability) for capability in capabilities or ())
    model = given["gpu_model"]
    capability = None if model is None else given.known.gpus[model].compute_capability
    return given.known.default_archs(release, capability, given.stack, given["pytorch_build"])


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaSpec:
    """The CUDA toolkit; `release` is None on cpu stacks.

    + toolkit: whether it is installed at all; never on cpu stacks and without root
    + version: the exact release of its package, e.g. "13.0.3"; None = any of `release`
    + archs: compute capabilities times ten nvcc must make code for, sorted; () on cpu stacks
    + host_compiler: None = the host's own gcc
    """

    toolkit: bool = key(
        v.boolean,
        default=True,
        example=False,
        help="install the CUDA toolkit, which torch itself does not need; never with "
        "privilege = 'none'",
        settle=lambda given, asked: asked and may_install(given),
        synonyms=("toolkit",),
    )
    release: str | None = key(
        v.one_of(lambda: catalogue().cuda, "a CUDA release this project knows"),
        default=from_stack(lambda given: given.stack.cuda),
        allowed="a CUDA release in stacks.yaml, e.g. '13.0'",
        example="13.2",
        help="the CUDA toolkit",
        synonyms=("cuda",),
    )
    version: str | None = key(
        nv.cuda_version,
        default=None,
        allowed="a version of the toolkit package of that release, e.g. '13.0.3', or None",
        example="13.0.3",
        help="exactly this toolkit; None = any of the release",
    )
    archs: tuple[int, ...] = key(
        nv.archs,
        default=None,
        allowed="a list of compute capabilities as text, or None",
        example=["12.0"],
        help="what nvcc is proven to make code for; None = the gpu_model's, without a model those "
        "of torch's wheel",
        settle=_archs,
        synonyms=("arch_list", "torch_cuda_arch_list"),
    )
    host_compiler: str | None = key(
        v.matching(r"(gcc|clang)-[1-9]\d?", "is not a compiler with its major number"),
        default=None,
        allowed="'gcc-N', 'clang-N' with its major number, or None for the host's gcc",
        example="gcc-13",
        help="the C++ compiler nvcc uses",
        name="host_compiler",
        synonyms=("compiler",),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class LibcudaSpec:
    """The driver's library, as programs find it.

    + toolkit_link: whether `libcuda.so` is also linked into the toolkit's lib64 (Triton up to 2.x
      and builds with `-L$CUDA_HOME/lib64 -lcuda` need it)
    """

    toolkit_link: bool = key(
        v.boolean,
        default=False,
        example=True,
        help="link libcuda.so into the toolkit's lib64 too, for Triton 2 and programs linked with "
        "-L$CUDA_HOME/lib64 -lcuda",
    )
