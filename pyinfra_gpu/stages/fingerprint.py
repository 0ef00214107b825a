"""What the smoke test's result depends on, in a form that can be compared."""

from __future__ import annotations

from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host.fingerprint import part, parts
from pyinfra_gpu.spec import HostSpec, env_file
from pyinfra_gpu.stages.pytorch.lock import lock_of
from pyinfra_gpu.stages.rules import if_known


def fingerprint(spec: HostSpec, record: Record, bundle_sha256: str) -> str:
    """Return name and short digest of each part whose change makes an earlier test worthless.

    + bundle_sha256: digest of the test itself

    Not one digest of them all, so that two fingerprints tell *what* differs (`differences`). What
    the stages before have just ensured is taken as declared, not as found, so that a plan knows
    that a new torch or another environment file means a new test. The boot id is among it: a driver
    reload, a firmware update, a card that did not come back all go with a boot, and a test from
    before it proves nothing about now.
    """
    devices = if_known(record.gpus.devices, ())
    installed, lock = if_known(record.torch.distributions, {}), lock_of(spec, record)
    values = {
        "the test itself": bundle_sha256,
        "the boot": str(record.system.boot_id),
        "the kernel": str(record.system.kernel),
        "the driver": [str(record.driver.loaded), str(record.driver.libcuda)],
        "the GPUs": sorted(f"{gpu.address} {gpu.pci_id}" for gpu in devices),
        "Python": str(record.torch.python),
        "torch": [spec.pytorch.full_version, str(record.torch.git_version)],
        "installed packages": [
            *sorted(installed.items()),
            *([("the lock", lock.requirements)] if lock else []),
        ],
        "the environment file": env_file.render(spec),
        "smoke_ranks": spec.smoke.ranks,
        "smoke_allreduce_mib": spec.smoke.allreduce_mib,
    }
    return ";".join(f"{name}:{part(value)}" for name, value in values.items())


def differences(noted: str, now: str) -> list[str]:
    """Return the names of the parts in which two fingerprints differ."""
    before, after = parts(noted), parts(now)
    return [name for name, digest in after.items() if before.get(name) != digest]
