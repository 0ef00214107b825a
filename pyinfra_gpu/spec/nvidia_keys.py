"""The data keys of NVIDIA's side: driver, CUDA toolkit and libcuda."""

from __future__ import annotations

from pyinfra_gpu.spec import nvidia_values as nv
from pyinfra_gpu.spec import values as v
from pyinfra_gpu.spec.key import FROM_STACK, make_key
from pyinfra_gpu.stacks import catalogue

_COMPILER = r"(gcc|clang)-[1-9]\d?"


def _cuda_releases() -> list[str]:
    return list(catalogue().cuda)


def _branches() -> list[int]:
    return list(catalogue().driver_branches)


NVIDIA_KEYS = (
    make_key(
        "driver_source",
        "driver",
        "'nvidia' or 'present'",
        "nvidia",
        v.choice("nvidia", "present"),
        example="present",
        description="'nvidia' installs the driver from NVIDIA's repository, 'present' only judges "
        "the one that is there; always 'present' with privilege = 'none'",
    ),
    make_key(
        "driver_branch",
        "driver",
        "a driver branch in stacks.yaml, e.g. 580",
        FROM_STACK,
        v.number_of(_branches, "a driver branch this project knows"),
        example=595,
        description="the NVIDIA driver branch",
    ),
    make_key(
        "driver_version",
        "driver",
        "a whole version of the branch, e.g. '580.95.05', or None",
        None,
        nv.driver_version,
        example="580.95.05",
        description="exactly this driver; None = the newest of the branch on offer when it is "
        "installed; one of the branch that is there stays",
    ),
    make_key(
        "driver_modules",
        "driver",
        "'open' or 'proprietary'",
        "open",
        v.choice("open", "proprietary"),
        example="proprietary",
        description="the flavour of the NVIDIA kernel modules",
    ),
    make_key(
        "driver_packages",
        "driver",
        "'compute' or 'full'",
        "compute",
        v.choice("compute", "full"),
        example="full",
        description="'full' adds what a display server needs",
    ),
    make_key(
        "driver_repository_url",
        "driver",
        "an http, https or file URL, in which {distro} and {arch} become the host's",
        FROM_STACK,
        nv.repository_url,
        example="https://mirror.example.org/cuda/repos/{distro}/{arch}",
        description="NVIDIA's package repository or a mirror of it, for driver and CUDA toolkit",
    ),
    make_key(
        "driver_key_fingerprint",
        "driver",
        "40 hexadecimal digits, or None",
        None,
        nv.fingerprint,
        example="0123456789ABCDEF0123456789ABCDEF01234567",
        description="the key that signs the repository; None = NVIDIA's, which a mirror keeps",
    ),
    make_key(
        "driver_keyring_sha256",
        "driver",
        "64 hexadecimal digits, or None",
        None,
        nv.sha256,
        example="0123456789abcdef" * 4,
        description="digest of the repository's cuda-keyring package; None = NVIDIA's",
    ),
    make_key(
        "driver_hold",
        "driver",
        "True or False",
        True,
        v.boolean,
        example=False,
        description="keep apt upgrade from moving the driver's packages",
    ),
    make_key(
        "driver_persistence",
        "driver",
        "True or False",
        True,
        v.boolean,
        example=False,
        description="keep the GPUs initialised by nvidia-persistenced",
    ),
    make_key(
        "driver_reboot",
        "driver",
        "'never', 'if-idle' or 'always'",
        "if-idle",
        v.choice("never", "if-idle", "always"),
        example="never",
        description="what to do when only a reboot helps; 'if-idle' waits for a host without GPU "
        "work and without people",
    ),
    make_key(
        "driver_reboot_wait_s",
        "driver",
        "a whole number from 30 to 7200",
        900,
        v.integer(30, 7200),
        example=1800,
        description="seconds a host may take to come back from a reboot",
    ),
    make_key(
        "cuda_toolkit",
        "cuda",
        "True or False",
        True,
        v.boolean,
        example=False,
        description="install the CUDA toolkit, which torch itself does not need; never with "
        "privilege = 'none'",
    ),
    make_key(
        "cuda_release",
        "cuda",
        "a CUDA release in stacks.yaml, e.g. '13.0'",
        FROM_STACK,
        v.one_of(_cuda_releases, "a CUDA release this project knows"),
        example="13.2",
        description="the CUDA toolkit",
    ),
    make_key(
        "cuda_version",
        "cuda",
        "a version of the toolkit package of that release, e.g. '13.0.3', or None",
        None,
        nv.cuda_version,
        example="13.0.3",
        description="exactly this toolkit; None = any of the release",
    ),
    make_key(
        "cuda_archs",
        "cuda",
        "a list of compute capabilities as text, or None",
        None,
        nv.archs,
        example=["12.0"],
        description="what nvcc is proven to make code for; None = the gpu_model's, without a model "
        "those of torch's wheel",
    ),
    make_key(
        "host_compiler",
        "cuda",
        "'gcc-N', 'clang-N' with its major number, or None for the host's gcc",
        None,
        v.matching(_COMPILER, "is not a compiler with its major number"),
        example="gcc-13",
        description="the C++ compiler nvcc uses",
    ),
    make_key(
        "libcuda_toolkit_link",
        "libcuda",
        "True or False",
        False,
        v.boolean,
        example=True,
        description="link libcuda.so into the toolkit's lib64 too, for Triton 2 and programs "
        "linked with -L$CUDA_HOME/lib64 -lcuda",
    ),
)
