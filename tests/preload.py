"""What the process that forks runs imports once: each verb, each operation, and what they keep."""

from importlib import import_module
from pathlib import Path

import pyinfra_gpu.cli
import pyinfra_gpu.operations
import pyinfra_gpu.report.run
from pyinfra_gpu.diagnosis.command import explain_lines
from pyinfra_gpu.stacks.bundle import smoke_bundle
from pyinfra_gpu.stages.launcher import findings as launcher

PACKAGE = Path(pyinfra_gpu.cli.__file__).parent
for verb in PACKAGE.rglob("*/cli.py"):
    import_module(".".join(("pyinfra_gpu", *verb.relative_to(PACKAGE).with_suffix("").parts)))
explain_lines(["nothing that anybody knows"])
launcher.program("/opt/pyinfra-gpu/venv/bin/python")
smoke_bundle()
