"""What operations stand on."""

from pyinfra_gpu.engine import overhead

# Before any kind of fact is imported: each asks for the global arguments.
overhead.install()
