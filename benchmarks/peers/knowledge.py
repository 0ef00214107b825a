"""The same for stock pyinfra: its operations, and its facts where an operation would act."""

from pyinfra import host
from pyinfra.facts.deb import DebPackages
from pyinfra.facts.files import Link, Sha256File
from pyinfra.facts.server import Command
from pyinfra.operations import apt, files, systemd

PREFIX, LIB = "/opt/pyinfra-gpu", "/usr/lib/x86_64-linux-gnu"
ROOT = {"_sudo": True}
OWNER = {"_sudo": True, "_sudo_user": "ubuntu"}
SYSTEM = (
    "/etc/apt/sources.list.d/pyinfra-gpu-nvidia.list",
    "/etc/apt/preferences.d/00pyinfra-gpu-nvidia",
)
OURS = "env/training.env", "bin/torchrun", "bin/train", "smoke/smoke_test.pyz", "smoke/stamp.json"

host.get_fact(DebPackages)
apt.packages(
    packages=["ca-certificates", "curl", "g++", "git", "python3", "python3-dev", "python3-venv"],
    **ROOT,
)
systemd.service(service="nvidia-persistenced", running=True, enabled=True, **ROOT)
for folder in ("tools", "env", "bin", "train", "smoke", "proofs"):
    files.directory(path=f"{PREFIX}/{folder}", user="root", mode="755", **ROOT)
digests = [
    *SYSTEM,
    "/usr/share/keyrings/pyinfra-gpu-nvidia.gpg",
    *(f"{PREFIX}/{each}" for each in OURS),
]
for path in digests:
    host.get_fact(Sha256File, path=path, **ROOT)
for path in (
    f"{LIB}/libcuda.so",
    f"{LIB}/libcuda.so.1",
    "/usr/local/cuda",
    "/etc/alternatives/cuda",
):
    host.get_fact(Link, path=path, **ROOT)
AS_ROOT = (
    "dpkg --get-selections",
    "cat /sys/module/nvidia/version",
    "modinfo nvidia",
    "ldconfig -p",
    "/usr/local/cuda-13.0/bin/nvcc --version",
    f"df -Pk {PREFIX} /dev/shm /usr /var",
    f"cat {PREFIX}/proofs/cuda.json",
    f"cat {PREFIX}/proofs/libcuda.json",
    f"{PREFIX}/tools/bin/uv --version",
    f"cat {PREFIX}/state/verdict.json || true",
    "stat /var/lib/systemd/linger/ubuntu",
)
for command in AS_ROOT:
    host.get_fact(Command, command=command, **ROOT)
host.get_fact(Command, command=host.data.compared, **OWNER)
host.get_fact(
    Command, command=f"git -C {PREFIX}/training/training status --porcelain=v2 --branch", **OWNER
)
