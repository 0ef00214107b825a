"""The proof; also by itself: `pyinfra inventories/lab.py tasks/smoke.py`."""

from pyinfra import host

from pyinfra_gpu import report
from pyinfra_gpu.engine.declared import declared
from pyinfra_gpu.engine.settled import stage
from pyinfra_gpu.operations import smoke as operations
from pyinfra_gpu.operations import smoke_across
from pyinfra_gpu.spec import HostSpec


@stage("Smoke")
def smoke(wanted: HostSpec) -> None:
    """Train one step on all ranks and check the numbers, unless that was done and still holds;
    then, where data says so, one step on all hosts of a group together.
    """
    operations.proven(name="Run the smoke test", spec=wanted)
    smoke_across.proven(name="Run the multi-node smoke test", spec=wanted)


# pyinfra executes a file that its command line names, and does not import it.
if __name__ != "tasks.smoke":
    report.attach()
    smoke(wanted=declared(host))
    report.plan()
