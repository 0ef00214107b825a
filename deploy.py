"""From a bare machine to a proven training step: one line per stage.

    pyinfra inventories/lab.py deploy.py          plan, ask, then act
    pyinfra -y inventories/lab.py deploy.py       act
    pyinfra --dry inventories/lab.py deploy.py    only say what differs

Every stage looks at the host, compares with what `group_data/` and the inventory declare, and
acts only on a difference. Running it again changes nothing.
"""

from pyinfra import host

from pyinfra_gpu import report, spec
from tasks.environment import environment
from tasks.preflight import preflight
from tasks.pytorch import pytorch
from tasks.smoke import smoke
from tasks.training import training

report.attach()
wanted = spec.resolve(host.data.dict(), host.name)

preflight(wanted)
pytorch(wanted)
environment(wanted)
training(wanted)
smoke(wanted)
