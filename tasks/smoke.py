"""The proof; also by itself: `pyinfra inventories/lab.py tasks/smoke.py`."""

from pyinfra import host
from pyinfra.api import deploy

from pyinfra_gpu import report, spec
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.operations import smoke as operations
from pyinfra_gpu.operations import smoke_across as across_hosts
from pyinfra_gpu.spec import HostSpec


@deploy("Smoke")
def smoke(wanted: HostSpec) -> None:
    """Train one step on all ranks and check the numbers, unless that was done and still holds;
    then, where data says so, one step on all hosts of a group together.
    """
    operations.proven(name="Train one checked step", spec=wanted, **as_root(wanted))
    across_hosts.proven(name="Train one across hosts", spec=wanted, **as_root(wanted))


# pyinfra executes a file that its command line names, and does not import it.
if __name__ != "tasks.smoke":
    report.attach()
    data = host.data.dict()  # type: ignore[no-untyped-call]
    smoke(wanted=spec.resolve(data, host.name))
    report.plan()
