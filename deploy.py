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

from tasks import stages

report.attach()
wanted = declared(host)

stages.preflight(wanted)
stages.driver(wanted)
stages.base(wanted)
stages.cuda(wanted)
stages.libcuda(wanted)
stages.pytorch(wanted)
stages.environment(wanted)
stages.training(wanted)
stages.smoke(wanted)

report.plan()
