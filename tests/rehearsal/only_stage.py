"""A deploy of one stage alone, which an environment variable names."""

import os

from pyinfra import host

from pyinfra_gpu import report
from pyinfra_gpu.engine.declared import declared
from tasks import stages

stage = os.environ["PYINFRA_GPU_ONLY_STAGE"]
report.attach()
getattr(stages, stage)(declared(host))
report.plan()
