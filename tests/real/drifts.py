"""What goes wrong with a distribution's own driver, and what is to be said of it."""

from __future__ import annotations

from dataclasses import dataclass

RULES = "/etc/nvidia/535.261.03-open/nvidia-modprobe.conf"
MODULE = "/lib/modules/$(uname -r)/updates/dkms/nvidia-current-open.ko"
FIRMWARE = "$(dpkg -L firmware-nvidia-gsp | grep -m1 'gsp.*bin$')"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"


@dataclass(frozen=True)
class Drift:
    """One: what is done to the host as root, and the finding it has to yield."""

    name: str
    inject: str
    id: str
    healed: str


DRIFTS = (
    Drift(
        "somebody chose Mesa's glx",
        "mkdir -p /usr/lib/mesa-diverted"
        " && update-alternatives --install /usr/lib/glx glx /usr/lib/mesa-diverted 5"
        " && update-alternatives --set glx /usr/lib/mesa-diverted",
        "driver.alternative-differs",
        "test $(readlink /etc/alternatives/glx) = /usr/lib/nvidia && modprobe -n nvidia",
    ),
    Drift(
        "the alternative nvidia is gone",
        "rm /etc/alternatives/nvidia",
        "driver.alternative-differs",
        "test $(readlink /etc/alternatives/nvidia) = /usr/lib/nvidia/current-open",
    ),
    Drift(
        "libcuda.so.1 is no longer the alternative's",
        f"rm {LIBRARY}",
        "driver.alternative-differs",
        f"test -e {LIBRARY} && ldconfig -p | grep -q libcuda.so.1",
    ),
    Drift(
        "somebody's file is in the place of libcuda.so.1",
        f"rm {LIBRARY} && echo x > {LIBRARY}",
        "driver.alternative-differs",
        f"test -L {LIBRARY} && test -e {LIBRARY} && ls /usr/lib/x86_64-linux-gnu/before-pyinfra-*",
    ),
    Drift(
        "modprobe's rules name the proprietary module",
        f"sed -i s/nvidia-current-open/nvidia-current/ {RULES}",
        "driver.module-name-differs",
        f"grep -q nvidia-current-open {RULES} && test -e {RULES}.before-pyinfra-gpu",
    ),
    Drift(
        "modprobe's rules are gone",
        f"rm -f {RULES}",
        "driver.module-name-differs",
        f"grep -q nvidia-current-open {RULES}",
    ),
    Drift(
        "the module's file is gone",
        f"rm {MODULE}",
        "driver.module-not-built",
        f"test -e {MODULE}",
    ),
    Drift(
        "nvidia-smi itself is gone",
        "rm $(readlink -f /usr/bin/nvidia-smi)",
        "driver.files-damaged",
        "test -x $(readlink -f /usr/bin/nvidia-smi)",
    ),
    Drift(
        "bytes of the GPU's firmware were changed, and its size was not",
        f"f={FIRMWARE}; sleep 1; printf changed | dd of=$f bs=1 seek=1000 conv=notrunc status=none",
        "driver.files-damaged",
        "! dpkg --verify firmware-nvidia-gsp | grep /lib/firmware",
    ),
    Drift(
        "a hold is gone",
        "apt-mark unhold libcuda1",
        "driver.hold-missing",
        "apt-mark showhold | grep -q libcuda1",
    ),
)
