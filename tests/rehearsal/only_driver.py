"""A deploy of the driver alone, for tests of how a host is reached and rebooted."""

from pyinfra import host

from pyinfra_gpu import report
from pyinfra_gpu.engine.declared import declared
from tasks.stages import driver, preflight

report.attach()
wanted = declared(host)

preflight(wanted)
driver(wanted)

report.plan()
