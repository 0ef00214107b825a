"""A deploy of the driver and of torch alone, for tests of what is fetched meanwhile."""

from pyinfra import host

from pyinfra_gpu import report
from pyinfra_gpu.engine.declared import declared
from tasks.base import base
from tasks.driver import driver
from tasks.preflight import preflight
from tasks.pytorch import meanwhile, pytorch

report.attach()
wanted = declared(host)

preflight(wanted)
meanwhile(wanted)
driver(wanted)
base(wanted)
pytorch(wanted)

report.plan()
