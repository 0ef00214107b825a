"""pyinfra executes this file first: check what is declared before any host is contacted."""

from pyinfra import config

from pyinfra_gpu.engine import command_line

config.REQUIRE_PYINFRA_VERSION = ">=3.10,<4"
command_line.begin()
