"""The NVIDIA driver: which, from where, and who may move it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyinfra_gpu.spec import nvidia_values as nv
from pyinfra_gpu.spec import values as v
from pyinfra_gpu.spec.key import Given, computed, from_stack, key, part
from pyinfra_gpu.stacks import catalogue

Modules = Literal["open", "proprietary"]
Reboot = Literal["never", "if-idle", "always"]


def may_install(given: Given) -> bool:
    """Return whether packages of NVIDIA's may come onto the host at all."""
    return given.stack.accelerator == "nvidia" and given["privilege"] == "sudo"


def _source(given: Given, asked: str) -> str:
    return asked if may_install(given) else "present"


def _branch(given: Given) -> int | None:
    return None if given.stack.driver is None else given.stack.driver.branch


def _minimum(given: Given) -> str | None:
    branch, cuda = given["driver_branch"], given["cuda_release"]
    if branch is None or cuda is None:
        return None
    return given.known.minimum_driver(given.stack, branch, cuda)


@dataclass(frozen=True, kw_only=True, slots=True)
class RepositorySpec:
    """NVIDIA's package repository, or a mirror of it.

    + url: with the placeholders `{distro}` ("debian12") and `{arch}` ("x86_64"), which are the
      host's own; see `url_for`
    + key_fingerprint: 40 hexadecimal digits of the one key that may sign it; None = the one
      `stacks.yaml` knows for the host's release
    + keyring_sha256: digest of its `cuda-keyring` package; None = the one `stacks.yaml` knows
    """

    url: str = key(
        nv.repository_url,
        default=from_stack(lambda given: given.known.default_repository_url),
        allowed="an http, https or file URL, in which {distro} and {arch} become the host's",
        example="https://mirror.example.org/cuda/repos/{distro}/{arch}",
        help="NVIDIA's package repository or a mirror of it, for driver and CUDA toolkit",
        name="driver_repository_url",
        synonyms=("mirror",),
    )
    key_fingerprint: str | None = key(
        nv.fingerprint,
        default=None,
        allowed="40 hexadecimal digits, or None",
        example="0123456789ABCDEF0123456789ABCDEF01234567",
        help="the key that signs the repository; None = NVIDIA's, which a mirror keeps",
    )
    keyring_sha256: str | None = key(
        nv.sha256,
        default=None,
        allowed="64 hexadecimal digits, or None",
        example="0123456789abcdef" * 4,
        help="digest of the repository's cuda-keyring package; None = NVIDIA's",
    )

    def url_for(self, distro: str, arch: str) -> str:
        """Return the URL for one distribution and machine, without a slash at its end."""
        return self.url.replace("{distro}", distro).replace("{arch}", arch).rstrip("/")


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverSpec:
    """The NVIDIA driver; `branch`, `minimum` and `repository` are None on cpu stacks.

    + source: "nvidia" installs it from NVIDIA's repository, "distribution" from the distribution's
      own archive; "present" takes the one that is there and only judges it, which is also so on
      cpu stacks and without root
    + version: exactly this one, e.g. "580.95.05"; None = any of the branch from `minimum` on
    + packages: "compute" (no display server parts) or "full"
    + minimum: the oldest version that will do
    + hold: whether it moves only on our word
    + persistence: whether nvidia-persistenced keeps the GPUs initialised
    + reboot: what to do when only a reboot helps
    + reboot_wait_s: how long a host may take to come back
    """

    source: Literal["nvidia", "distribution", "present"] = key(
        v.choice("nvidia", "distribution", "present"),
        default="nvidia",
        example="present",
        help="'nvidia' installs the driver from NVIDIA's repository, 'distribution' from Debian's "
        "or Ubuntu's own archive, 'present' only judges the one that is there; always 'present' "
        "with privilege = 'none'",
        settle=_source,
    )
    branch: int | None = key(
        v.number_of(
            lambda: list(catalogue().driver_branches), "a driver branch this project knows"
        ),
        default=from_stack(_branch),
        allowed="a driver branch in stacks.yaml, e.g. 580",
        example=595,
        help="the NVIDIA driver branch",
        synonyms=("driver", "nvidia_driver"),
    )
    version: str | None = key(
        nv.driver_version,
        default=None,
        allowed="a whole version of the branch, e.g. '580.95.05', or None",
        example="580.95.05",
        help="exactly this driver; None = the newest of the branch on offer when it is installed; "
        "one of the branch that is there stays",
    )
    minimum: str | None = computed(_minimum)
    modules: Modules = key(
        v.choice("open", "proprietary"),
        default="open",
        example="proprietary",
        help="the flavour of the NVIDIA kernel modules; Blackwell works with 'open' only",
        synonyms=("driver_flavour",),
    )
    packages: Literal["compute", "full"] = key(
        v.choice("compute", "full"),
        default="compute",
        example="full",
        help="'full' adds what a display server needs",
    )
    repository: RepositorySpec | None = part(
        RepositorySpec, stage="driver", when=lambda given: given.stack.driver is not None
    )
    hold: bool = key(
        v.boolean,
        default=True,
        example=False,
        help="keep apt upgrade from moving the driver's packages",
    )
    persistence: bool = key(
        v.boolean,
        default=True,
        example=False,
        help="keep the GPUs initialised by nvidia-persistenced",
        synonyms=("persistence_mode",),
    )
    reboot: Reboot = key(
        v.choice("never", "if-idle", "always"),
        default="if-idle",
        example="never",
        help="what to do when only a reboot helps; 'if-idle' waits for a host without GPU work and "
        "without people, 'never' only reports it, 'always' does not look who is there",
        synonyms=("reboot",),
    )
    reboot_wait_s: int = key(
        v.integer(30, 7200),
        default=900,
        example=1800,
        help="seconds a host may take to come back from a reboot",
    )
