"""From a bare machine to a proven training step: one line per stage.

    pyinfra inventories/lab.py deploy.py          plan, ask, then act
    pyinfra -y inventories/lab.py deploy.py       act
    pyinfra --dry inventories/lab.py deploy.py    only say what differs

Every stage acts only where a host is not what is declared. Running it again changes nothing.
"""

from pyinfra import host

from pyinfra_gpu import report
from pyinfra_gpu.engine import command_line
from pyinfra_gpu.engine.declared import declared
from pyinfra_gpu.engine.settled import settled

command_line.require_folder(__file__)

from tasks.base import base  # noqa: E402 - found in this folder only
from tasks.cuda import cuda  # noqa: E402
from tasks.driver import driver  # noqa: E402
from tasks.environment import environment  # noqa: E402
from tasks.libcuda import libcuda  # noqa: E402
from tasks.preflight import preflight  # noqa: E402
from tasks.pytorch import meanwhile, pytorch  # noqa: E402
from tasks.smoke import smoke  # noqa: E402
from tasks.training import training  # noqa: E402

report.attach()
wanted = declared(host)
if not settled(wanted):
    preflight(wanted)
    meanwhile(wanted)
    driver(wanted)
    base(wanted)
    cuda(wanted)
    libcuda(wanted)
    pytorch(wanted)
    environment(wanted)
    training(wanted)
    smoke(wanted)
report.plan()
