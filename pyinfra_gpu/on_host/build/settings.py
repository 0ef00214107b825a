"""The environment of everything that a build runs, and how much it may do at a time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from .place import Place
from .plan import Plan, truth
from .tree import reads

_CCACHE_SIZE = "30G"
_MIB_PER_JOB = 2048
_MIB_PER_CUDA_JOB = 4096
_MIB_PER_FLASH_JOB = 6144
"""flash-attention's files take up to 5.3 GiB each (pytorch#130443)."""
FLASH_JOBS = "FLASH_ATTENTION_MAX_JOBS"


def jobs(plan: Plan, tree: Path, cores: int | None = None) -> int:
    """Return how many compilers may work side by side, by memory and cores; 1 at least.

    Where the tree cannot count flash-attention's files apart, every job may be one of them.
    """
    each = _MIB_PER_JOB
    if plan.cuda is not None:
        each = _MIB_PER_CUDA_JOB if reads(tree, FLASH_JOBS) else _MIB_PER_FLASH_JOB
    usable = cores or len(os.sched_getaffinity(0))
    return max(1, min(usable, plan.memory_mib // each))


def least_mib(options: Mapping[str, str]) -> int:
    """Return how much memory one compiler alone may take, by CMake's options."""
    if not truth(options.get("USE_CUDA", "")):
        return _MIB_PER_JOB
    flash = truth(options.get("USE_FLASH_ATTENTION", "1"))
    return _MIB_PER_FLASH_JOB if flash else _MIB_PER_CUDA_JOB


def environment(
    plan: Plan, place: Place, base: Mapping[str, str], ccache: str | None
) -> dict[str, str]:
    """Return the variables of the build: ours, and of the owner's only what programs need.

    + base: the variables that this program was started with
    + ccache: its path, where it is installed
    """
    path = [str(place.environment / "bin")]
    path += [f"{plan.cuda}/bin"] if plan.cuda else []
    made = {
        "PATH": ":".join([*path, "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]),
        "HOME": base.get("HOME", "/"),
        "LC_ALL": "C.UTF-8",
        "GIT_TERMINAL_PROMPT": "0",
        "CMAKE_GENERATOR": "Ninja",
        "CMAKE_PREFIX_PATH": str(place.environment),
        "PYTHONNOUSERSITE": "1",
        # Both, or the version gets the commit's digits behind it.
        "PYTORCH_BUILD_VERSION": plan.version,
        "PYTORCH_BUILD_NUMBER": "1",
        **plan.settings,
    }
    if plan.cuda is not None:
        made |= {"CUDA_HOME": plan.cuda, "CUDACXX": f"{plan.cuda}/bin/nvcc"}
        made["TORCH_CUDA_ARCH_LIST"] = ";".join(plan.archs)
        made[FLASH_JOBS] = str(max(1, plan.memory_mib // _MIB_PER_FLASH_JOB))
    if plan.compiler is not None:
        made |= {"CC": plan.compiler[0], "CXX": plan.compiler[1]}
        made |= {"CUDAHOSTCXX": plan.compiler[1]} if plan.cuda else {}
    return made | _ccache(plan, place, ccache)


def _ccache(plan: Plan, place: Place, ccache: str | None) -> dict[str, str]:
    if ccache is None:
        return {}
    languages = ("C", "CXX", *(("CUDA",) if plan.cuda else ()))
    launchers = {f"CMAKE_{language}_COMPILER_LAUNCHER": ccache for language in languages}
    return {
        **launchers,
        "CCACHE_DIR": str(place.ccache),
        "CCACHE_MAXSIZE": _CCACHE_SIZE,
        # Most files are not in it yet, and each would be preprocessed once more than without it:
        # 5 to 20 % of a build by ccache.dev/performance.html, 1 to 3 % by the compiler's own list
        # of headers, which Ninja has it write.
        "CCACHE_DEPEND": "1",
    }
