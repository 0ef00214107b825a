"""Site defaults: what every host gets unless its group or the host itself says otherwise.

Data is merged per key: --data KEY=VALUE, then the host, then its groups, then this file.
All keys, their meaning and their defaults: docs/keys.md.
"""

# One name for a driver, a CUDA toolkit and a torch that are known to work together.
stack = "r580-cu130"

# Everything we install outside the distribution's packages lives below this directory.
prefix = "/opt/pyinfra-gpu"
