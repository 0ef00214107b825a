"""Your lab. Edit the names below, then:

    pyinfra inventories/lab.py deploy.py

A host that `ssh NAME` reaches needs nothing but its NAME here: users, ports, keys and jump hosts
are taken from your own ~/.ssh/config. Every key is optional; docs/keys.md lists them all. What a
whole group shares belongs into group_data/GROUP.py, what every host shares into group_data/all.py.
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
            # "training_requirements": "pyproject.toml",
        },
    ),
    (
        "ws2.lab.example",
        {
            "ssh_user": "alice",
            "gpu_model": "RTX 5090",
            "gpu_count": 2,
            "environment_variables": {"WANDB_MODE": "offline"},
        },
    ),
]

# Hosts without a GPU: group_data/cpu.py gives them the CPU stack.
cpu: list[str] = []
