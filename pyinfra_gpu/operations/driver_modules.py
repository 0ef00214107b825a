"""The driver at every boot: built for both kernels, the free drivers off, nothing that moves it."""

from __future__ import annotations

from posixpath import dirname
from typing import TYPE_CHECKING

from pyinfra_gpu.drift import driver_modules as drift
from pyinfra_gpu.drift.driver_inventory import archive, packages
from pyinfra_gpu.drift.driver_modules import owed, unbuilt
from pyinfra_gpu.drift.finding import Findings
from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.converge import Commands, converging, fresh
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import step
from pyinfra_gpu.engine.transaction import finish_interrupted, install
from pyinfra_gpu.on_host import program
from pyinfra_gpu.packages import apt
from pyinfra_gpu.spec import system_files

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = drift.STAGE


@converging(
    drift,
    repairs=drift.IDS,
)
def settled(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that every boot finds this driver, and no other, ready.

    + spec: the host's resolved specification

    The module is there, in the packages' version, for the running and for the next kernel: a DKMS
    build that failed leaves packages that count as installed. The initramfs knows that nouveau and
    nova are blacklisted. The packages are on hold as ``driver_hold`` says.

    **Example:**

    .. code:: python

        driver_modules.settled(name="Settle the driver for every boot", spec=wanted)
    """
    # Build, and only then update the initramfs: once, with all of it inside. A kernel's
    # own package stays half configured where its hook could not build our module.
    del found
    unfinished = bool(unbuilt(spec, record))
    yield from _built(spec, record)
    record = fresh(spec, record)
    if unfinished and record.packages.half_configured:
        yield finish_interrupted(STAGE, spec)
    if record.kernel.initramfs == "stale":
        yield step(
            STAGE,
            "update the initramfs",
            program("driver/initramfs.sh", dirname(system_files.MODPROBE)),
            run_as=as_root(spec),
            seconds=deadlines.MODULE,
        )
    yield from _holds(spec, record)


def _built(spec: HostSpec, record: Record) -> Commands:
    versions, own = packages(spec, record).versions, archive(spec, record)
    for kernel in owed(spec, record):
        if own is not None:
            name = own.kernel_package(spec.driver.branch or 0, spec.driver.modules, kernel)
            # A file that somebody deleted comes back only by installing the package again.
            yield from install(STAGE, spec, (name,), reinstall=True)
            continue
        yield step(
            STAGE,
            f"build module {versions[0]} for kernel {kernel}",
            program("driver/build_module.sh", versions[0], kernel),
            run_as=as_root(spec),
            seconds=deadlines.MODULE,
        )


def _holds(spec: HostSpec, record: Record) -> Commands:
    if names := drift.wrongly_held(spec, record):
        command = apt.hold(names, on=spec.driver.hold)
        what = "put the driver on hold" if spec.driver.hold else "take the driver off hold"
        yield step(STAGE, what, command, run_as=as_root(spec), seconds=deadlines.SERVICE)
