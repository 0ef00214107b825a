"""What a user's deploy calls: each module has the operations of one part of a host."""

from pyinfra_gpu.operations import (  # noqa: F401 - who imports the package has them all
    cuda,
    driver,
    environment,
    launcher,
    layout,
    libcuda,
    packages,
    preflight,
    pytorch,
    pytorch_build,
    smoke,
    training,
)
