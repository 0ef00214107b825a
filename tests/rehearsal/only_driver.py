"""A deploy of the driver alone, for tests of how a host is reached and rebooted."""

from pyinfra import host

from pyinfra_gpu import report, spec
from tasks.driver import driver
from tasks.preflight import preflight

report.attach()
wanted = spec.resolve(host.data.dict(), host.name)

preflight(wanted)
driver(wanted)

report.plan()
