"""What a user's deploy calls: each name has the operations of one stage or a part of it."""

# ruff: noqa: F401 - who imports this has them all

from pyinfra_gpu.stages.cuda import operations as cuda
from pyinfra_gpu.stages.driver import operations as driver
from pyinfra_gpu.stages.environment import operations as environment
from pyinfra_gpu.stages.launcher import operations as launcher
from pyinfra_gpu.stages.layout import operations as layout
from pyinfra_gpu.stages.libcuda import operations as libcuda
from pyinfra_gpu.stages.packages import operations as packages
from pyinfra_gpu.stages.preflight import operations as preflight
from pyinfra_gpu.stages.pytorch import operations as pytorch
from pyinfra_gpu.stages.pytorch_build import operations as pytorch_build
from pyinfra_gpu.stages.smoke import operations as smoke
from pyinfra_gpu.stages.training import operations as training
