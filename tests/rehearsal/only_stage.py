"""A deploy of some stages alone, which an environment variable names."""

import os

from pyinfra import host

from pyinfra_gpu import report
from pyinfra_gpu.engine.declared import declared
from tasks import stages

report.attach()
for stage in os.environ["PYINFRA_GPU_ONLY_STAGE"].split():
    getattr(stages, stage)(declared(host))
report.plan()
