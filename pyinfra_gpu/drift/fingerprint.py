"""What the smoke test's result depends on, in a form that can be compared."""

from __future__ import annotations

from pyinfra_gpu.drift.pytorch_lock import lock_of
from pyinfra_gpu.drift.rules import if_known
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host.fingerprint import NAMES, part, parts
from pyinfra_gpu.spec import HostSpec, env_file


def fingerprint(spec: HostSpec, record: Record, bundle_sha256: str) -> str:
    """Return a short digest of each of `NAMES`, whose change makes an earlier test worthless.

    + bundle_sha256: digest of the test itself

    Not one digest of them all, so that two fingerprints tell *what* differs (`differences`). What
    the stages before have just ensured is taken as declared, not as found, so that a plan knows
    that a new torch or another environment file means a new test. The boot id is among it: a driver
    reload, a firmware update, a card that did not come back all go with a boot, and a test from
    before it proves nothing about now.
    """
    installed, lock = if_known(record.torch.distributions, {}), lock_of(spec, record)
    values = (
        bundle_sha256,
        str(record.system.boot_id),
        str(record.system.kernel),
        [str(record.driver.loaded), str(record.driver.libcuda)],
        sorted(f"{gpu.address} {gpu.pci_id}" for gpu in if_known(record.gpus.devices, ())),
        str(record.torch.python),
        [spec.pytorch.full_version, str(record.torch.git_version)],
        [*sorted(installed.items()), *([("the lock", lock.requirements)] if lock else [])],
        env_file.render(spec),
        spec.smoke.ranks,
        spec.smoke.allreduce_mib,
    )
    return "".join(part(value) for _, value in zip(NAMES, values, strict=True))


def differences(noted: str, now: str) -> list[str]:
    """Return the names of the ingredients in which two fingerprints differ.

    Fingerprints of different lengths come from different versions of this program.
    """
    before, after = parts(noted), parts(now)
    if before is None or after is None:
        return ["pyinfra-gpu"]
    return [name for name in NAMES if before[name] != after[name]]
