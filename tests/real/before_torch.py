"""The deploy up to where torch comes, for hosts whose Python has no wheels here."""

from pyinfra import host

from pyinfra_gpu import report
from pyinfra_gpu.engine.declared import declared
from tasks.base import base
from tasks.cuda import cuda
from tasks.driver import driver
from tasks.libcuda import libcuda
from tasks.preflight import preflight

report.attach()
wanted = declared(host)
preflight(wanted)
driver(wanted)
base(wanted)
cuda(wanted)
libcuda(wanted)
report.plan()
