"""A deploy of one of tasks/ alone, which an environment variable names."""

import os
from importlib import import_module

from pyinfra import host

from pyinfra_gpu import report
from pyinfra_gpu.engine.declared import declared

stage = os.environ["PYINFRA_GPU_ONLY_STAGE"]
report.attach()
getattr(import_module(f"tasks.{stage}"), stage)(declared(host))
report.plan()
