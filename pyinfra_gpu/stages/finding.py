"""One way in which a host is not as declared, in words a person can act on.

Findings are made in `stages/` alone. Operations repair those whose ids they claim; the plan,
`check` and the page print the same values.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Literal

from pyinfra_gpu.packages.model import PackageChange
from pyinfra_gpu.spec import HostSpec

Effect = Literal["repair", "restart", "report", "note"]


class Stage(StrEnum):
    """The stages, in the order of the deploy."""

    PREFLIGHT = "preflight"
    DRIVER = "driver"
    PACKAGES = "packages"
    LAYOUT = "layout"
    CUDA = "cuda"
    LIBCUDA = "libcuda"
    PYTORCH = "pytorch"
    ENVIRONMENT = "environment"
    TRAINING = "training"
    SMOKE = "smoke"


class Id(StrEnum):
    """Every finding there is, as stage and name: stable, so that programs can go by it."""

    PREFLIGHT_OS_UNSUPPORTED = "preflight.os-unsupported"
    PREFLIGHT_DISK_TOO_SMALL = "preflight.disk-too-small"
    PREFLIGHT_MOUNT_UNFIT = "preflight.mount-unfit"
    PREFLIGHT_MEMORY_TOO_SMALL = "preflight.memory-too-small"
    PREFLIGHT_SHARED_MEMORY_UNFIT = "preflight.shared-memory-unfit"
    PREFLIGHT_KEYS_IGNORED = "preflight.keys-ignored"
    PREFLIGHT_GPUS_DIFFER = "preflight.gpus-differ"
    PREFLIGHT_OTHER_DRIVER = "preflight.other-driver"
    PREFLIGHT_SECURE_BOOT = "preflight.secure-boot"
    PREFLIGHT_GPUS_IN_USE = "preflight.gpus-in-use"
    PREFLIGHT_PREFIX_OPEN = "preflight.prefix-open"
    PREFLIGHT_OWNER_UNUSABLE = "preflight.owner-unusable"
    PREFLIGHT_INCOMPATIBLE = "preflight.incompatible"

    DRIVER_KEYRING_REPLACED = "driver.keyring-replaced"
    DRIVER_SOURCE_DIFFERS = "driver.source-differs"
    DRIVER_PINS_DIFFER = "driver.pins-differ"
    DRIVER_NOT_INSTALLED = "driver.not-installed"
    DRIVER_VERSION_DIFFERS = "driver.version-differs"
    DRIVER_FILES_DAMAGED = "driver.files-damaged"
    DRIVER_HEADERS_MISSING = "driver.headers-missing"
    DRIVER_HOLD_DIFFERS = "driver.hold-differs"
    DRIVER_MODULE_NOT_BUILT = "driver.module-not-built"
    DRIVER_BLACKLIST_DIFFERS = "driver.blacklist-differs"
    DRIVER_INITRAMFS_STALE = "driver.initramfs-stale"
    DRIVER_MODULE_DIFFERS = "driver.module-differs"
    DRIVER_CLOSED = "driver.closed"
    DRIVER_PERSISTENCED_DIFFERS = "driver.persistenced-differs"

    PACKAGES_MISSING = "packages.missing"
    PACKAGES_UNFINISHED = "packages.unfinished"

    LAYOUT_DIRECTORY_DIFFERS = "layout.directory-differs"

    CUDA_NOT_INSTALLED = "cuda.not-installed"
    CUDA_TOOLKIT_DIFFERS = "cuda.toolkit-differs"
    CUDA_SHELL_PATH = "cuda.shell-path"
    CUDA_LINK_DIFFERS = "cuda.link-differs"
    CUDA_UNPROVEN = "cuda.unproven"

    LIBCUDA_LINK_DIFFERS = "libcuda.link-differs"
    LIBCUDA_CACHE_STALE = "libcuda.cache-stale"
    LIBCUDA_ANOTHER = "libcuda.another"
    LIBCUDA_UNPROVEN = "libcuda.unproven"

    PYTORCH_LOCK_MISSING = "pytorch.lock-missing"
    PYTORCH_INSTALLER_DIFFERS = "pytorch.installer-differs"
    PYTORCH_ENVIRONMENT_DIFFERS = "pytorch.environment-differs"
    PYTORCH_BUILD_MISSING = "pytorch.build-missing"
    PYTORCH_FALLBACK = "pytorch.fallback"
    PYTORCH_BUILD_DIFFERS = "pytorch.build-differs"
    PYTORCH_VERSION_DIFFERS = "pytorch.version-differs"
    PYTORCH_FILES_DAMAGED = "pytorch.files-damaged"
    PYTORCH_IMPORT_ELSEWHERE = "pytorch.import-elsewhere"
    PYTORCH_LOCK_DIFFERS = "pytorch.lock-differs"

    ENVIRONMENT_FILE_DIFFERS = "environment.file-differs"
    ENVIRONMENT_SET_FOR_ALL = "environment.set-for-all"

    TRAINING_CHECKOUT_DIFFERS = "training.checkout-differs"
    TRAINING_LOCAL_CHANGES = "training.local-changes"
    TRAINING_REQUIREMENTS_DIFFER = "training.requirements-differ"

    TRAINING_LAUNCHER_DIFFERS = "training.launcher-differs"
    TRAINING_MANAGER_OFF = "training.manager-off"
    TRAINING_RUN_ON = "training.run-on"

    SMOKE_SKIPPED = "smoke.skipped"
    SMOKE_CANNOT_PROVE_TWO_GPUS = "smoke.cannot-prove-two-gpus"
    SMOKE_UNPROVEN = "smoke.unproven"
    SMOKE_PROOF_BEFORE_BOOT = "smoke.proof-before-boot"
    SMOKE_UNPROVEN_ACROSS_HOSTS = "smoke.unproven-across-hosts"

    @property
    def stage(self) -> Stage:
        """The stage it belongs to."""
        return Stage(self.value.partition(".")[0])

    @classmethod
    def of(cls, stage: Stage) -> tuple[Id, ...]:
        """Return all of a stage, for the operation that is alone in it."""
        return tuple(each for each in cls if each.stage is stage)


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    + found, expected: what is there and what should be, a few words each
    + action: what the next run does about it, or why it does nothing
    + command: what a person may run where we do nothing
    + packages: names of the packages whose history may tell since when, e.g. ("libcuda1",);
      a trailing * stands for any ending
    + effect: "repair": the next run repairs it; "restart": the next run reloads the module or
      reboots, when nobody uses the GPUs; "report": we leave it alone, and `action` says why;
      "note": worth knowing and no drift, e.g. a proof from before the last reboot
    + stops: the run stops here on this host: what comes after could not work
    + since: the package action that explains it, by the package manager's own log
    + deferred: it waits for a training run to end
    + repeats: what is no failure of a run that leaves it, and for which the next one works again
    """

    id: Id
    found: str
    expected: str
    action: str
    command: str | None = None
    packages: tuple[str, ...] = ()
    _: KW_ONLY
    effect: Effect = "report"
    stops: bool = False
    since: PackageChange | None = None
    deferred: bool = False
    repeats: bool = False

    @property
    def acts(self) -> bool:
        """Whether the next run does something about it."""
        return self.effect in ("repair", "restart") or self.repeats

    @property
    def next_run(self) -> str:
        """What the next run does about it, in words for people."""
        if self.stops:
            return f"stops here: {self.action}"
        if self.effect != "report" or self.repeats or self.action.startswith("left alone"):
            return self.action
        return f"leaves it alone: {self.action}"

    def sentence(self, host: str) -> str:
        """Say it in one sentence, with the remedy."""
        text = f"{host}: {self.found}; expected {self.expected}: {self.action}"
        return f"{text}: `{self.command}`" if self.command else text


class Findings(tuple[Finding, ...]):
    """Findings in the order in which they are to be repaired."""

    __slots__ = ()

    def of(self, *ids: Id) -> Findings:
        """Return those with one of these ids."""
        return Findings(each for each in self if each.id in ids)

    @property
    def acting(self) -> Findings:
        """Those about which the next run does something."""
        return Findings(each for each in self if each.acts)

    @property
    def stopping(self) -> Findings:
        """Those at which the run stops on this host."""
        return Findings(each for each in self if each.stops)

    @property
    def ids(self) -> frozenset[Id]:
        """The ids that there are."""
        return frozenset(each.id for each in self)


report = Finding
"""Make a finding that is left alone: `action` says why, `command` what a person may run."""

note = partial(Finding, effect="note")
"""Make what is worth knowing, and no drift."""

stop = partial(Finding, stops=True)
"""Make a finding at which the run stops: `action` is what a person may do, an imperative."""


def repair(
    id_: Id,
    found: str,
    expected: str,
    action: str,
    packages: tuple[str, ...] = (),
    *,
    effect: Effect = "repair",
) -> Finding:
    """Return a finding that the next run repairs."""
    return Finding(id_, found, expected, action, packages=packages, effect=effect)


def unless_root(spec: HostSpec, finding: Finding) -> Finding:
    """Return what root repairs as it is where there is root; else it is left alone."""
    action = f"left alone with privilege = 'none'; as root one would {finding.action}"
    left = replace(finding, effect="report", action=action)
    return finding if spec.privilege == "sudo" else left


class CannotTell(Exception):  # noqa: N818 - it is no error: neither health nor drift
    """What could not be read on a host, and why, as one sentence."""
