"""From a bare machine to a proven training step: one line per stage.

    pyinfra inventories/lab.py deploy.py          plan, ask, then act
    pyinfra -y inventories/lab.py deploy.py       act
    pyinfra --dry inventories/lab.py deploy.py    only say what differs

Every stage acts only where a host is not what is declared. Running it again changes nothing.
"""

from pyinfra import host

from pyinfra_gpu import report
from pyinfra_gpu.engine.command_line import require_folder
from pyinfra_gpu.engine.declared import declared

require_folder(__file__)

from tasks.base import base
from tasks.cuda import cuda
from tasks.driver import driver
from tasks.environment import environment
from tasks.libcuda import libcuda
from tasks.preflight import preflight
from tasks.pytorch import pytorch
from tasks.smoke import smoke
from tasks.training import training

report.attach()
wanted = declared(host)

preflight(wanted)
driver(wanted)
base(wanted)
cuda(wanted)
libcuda(wanted)
pytorch(wanted)
environment(wanted)
training(wanted)
smoke(wanted)

report.plan()
