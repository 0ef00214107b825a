"""The smoke test alone: `pyinfra inventories/lab.py tasks/smoke.py`."""

from pyinfra import host

from pyinfra_gpu import report
from pyinfra_gpu.engine.declared import declared
from tasks.stages import smoke

report.attach()
smoke(wanted=declared(host))
report.plan()
