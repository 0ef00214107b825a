"""Your lab. Edit the names below, then:

    pyinfra inventories/lab.py deploy.py

A host that `ssh NAME` reaches needs nothing but its NAME here: users, ports, keys and jump hosts
are taken from your own ~/.ssh/config. Every key below is optional; what is commented out shows
its default, unless it says otherwise. What a whole group shares belongs into group_data/GROUP.py,
what every host shares into group_data/all.py.
"""

# A group is a list. An entry is a name, or (name, {data for this host alone}).
gpu = [
    (
        "ws1.lab.example",
        {
            # How to get there, where ~/.ssh/config does not say it. The user needs sudo; if sudo
            # asks for a password: pyinfra --same-sudo-password ...
            "ssh_user": "alice",
            # "ssh_hostname": "192.0.2.11",
            # "ssh_port": 22,
            # "ssh_key": "~/.ssh/id_ed25519",
            #
            # What is in the box. Compared with the PCI bus before anything is written.
            "gpu_model": "RTX 5090",
            "gpu_count": 2,
            #
            # What to train, and at exactly which commit: git ls-remote URL main
            # "training_repo": "https://github.com/karpathy/nanochat",
            # "training_commit": "all 40 digits",
            # "training_requirements": "pyproject.toml",  # default: install nothing
            # "training_local_changes": "report",  # "overwrite": git stash, then check out
        },
    ),
    (
        "ws2.lab.example",
        {
            "ssh_user": "alice",
            "gpu_model": "RTX 5090",
            "gpu_count": 2,
            #
            # Where things go, and whose they are.
            # "prefix": "/opt/pyinfra-gpu",  # everything of ours lives below it
            # "owner": "alice",  # default: the login user
            # "privilege": "sudo",  # "none": no root, nothing outside prefix is written
            #
            # Versions that are known to work together go by one name, and each can be replaced.
            # "stack": "r580-cu130",
            # "driver_branch": 580,
            # "driver_version": "580.95.05",  # default: the newest of the branch that is offered
            # "driver_modules": "open",  # Blackwell has no other
            # "driver_packages": "compute",  # "full" adds what a display server needs
            # "cuda_toolkit": True,  # torch itself does not need it
            # "cuda_release": "13.0",
            # "cuda_version": "13.0.3",  # default: any of the release
            # "cuda_archs": ["12.0"],  # default: that of gpu_model
            # "host_compiler": "gcc-13",  # default: the host's gcc
            # "libcuda_toolkit_link": False,  # True for Triton 2 and -L$CUDA_HOME/lib64 -lcuda
            #
            # The driver: who installs it, from where, who may move it, and when to reboot for it.
            # "driver_source": "nvidia",  # "present": only judge the driver that is there
            # "driver_repository_url": "https://mirror.lab.example/cuda/repos/{distro}/{arch}",
            # "driver_key_fingerprint": "all 40 digits",  # default: NVIDIA's, as a mirror has it
            # "driver_keyring_sha256": "all 64 digits",  # default: NVIDIA's, as a mirror has it
            # "driver_hold": True,  # apt upgrade does not move it
            # "driver_persistence": True,  # nvidia-persistenced keeps the GPUs initialised
            # "driver_reboot": "if-idle",  # "never": only report; "always": even if in use
            # "driver_reboot_wait_s": 900,
            #
            # torch.
            # "pytorch_source": "wheel",
            # "pytorch_version": "2.14.1",
            # "pytorch_build": "cu130",
            # "pytorch_python": "python3",  # or "3.12", or a path
            # "pytorch_index_url": "https://mirror.lab.example/simple",  # default: PyPI
            # "pytorch_extra_index_url": None,
            #
            # The environment file and what runs in it.
            # "environment_name": "training",
            "environment_variables": {"WANDB_MODE": "offline"},  # default: {}
            # "environment_dynamo": True,  # False switches torch.compile off
            #
            # What must be there before anything is written.
            # "preflight_min_disk_gib": 15,
            # "preflight_min_ram_gib": 8,
            # "preflight_apt_wait_s": 120,  # how long another apt may take
            #
            # The proof.
            # "smoke": "auto",  # "always": each run; "skip": nothing is proven
            # "smoke_ranks": 2,
            # "smoke_deadline_s": 180,
            # "smoke_allreduce_mib": 64,
            # "smoke_accept": "proof",  # "two-gpus": less than two real GPUs is a failure
            #
            # One more step on all hosts of a group together, over the network.
            # "smoke_across_hosts": False,  # a group's name, or True: all that say True
            # "smoke_across_address": "10.1.2.3",  # default: any of the host's addresses
            # "smoke_across_port": 29400,  # and the next one
            #
            # "rehearsal": False,  # True only labels: this is not a real machine
        },
    ),
]

# Hosts without a GPU: group_data/cpu.py gives them the CPU stack.
cpu: list[str] = []
