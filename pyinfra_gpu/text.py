"""Text for a terminal of 80 columns: what prints on hosts prints here as well."""

from pyinfra_gpu.on_host.terminal import *  # noqa: F403
