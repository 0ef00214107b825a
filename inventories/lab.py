"""Your lab. Edit the names below, then:

    pyinfra inventories/lab.py deploy.py

A host that `ssh NAME` reaches needs nothing but its NAME here: users, ports, keys and jump hosts
are taken from your own ~/.ssh/config. Every key is optional; all of them stand below the hosts,
ready to be copied into one. What a whole group shares belongs into group_data/GROUP.py, what every
host shares into group_data/all.py.
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

# What can be said of a host, each with its default, or with an example where it says "default:".
#
# --- every key: written by `python -m pyinfra_gpu.spec.document`, changes here are lost ---
#
# general
#     "stack": "r580-cu130",
#         versions that fit together; every other version key overrides one of them
#     "rehearsal": False,
#         the host is thrown away after use: label every result so
#     "prefix": "/opt/pyinfra-gpu",
#         the directory that holds everything of ours on the host
#     "owner": "trainer",
#         the user who runs torch and owns what it needs; the rest below prefix is root's; default:
#         None
#     "privilege": "sudo",
#         'none' writes nothing outside prefix and installs no system package
#     "look_timeout_s": 60,
#         seconds a host has to be connected to and looked at; after that it is given up
#
# preflight
#     "gpu_model": "RTX 5090",
#         the model every GPU of the host must be; default: None
#     "gpu_count": 4,
#         how many GPUs the host must have; 2 on nvidia stacks, 0 on cpu stacks; default: the
#         stack's
#     "preflight_min_disk_gib": 40,
#         free GiB needed at prefix where torch is not installed yet; more where it is built;
#         default: the stack's
#     "preflight_min_ram_gib": 64,
#         GiB of memory the host must have; default: the stack's
#     "preflight_apt_wait_s": 120,
#         seconds to wait while another program uses apt or dpkg
#
# driver
#     "driver_source": "nvidia",
#         'nvidia' installs the driver from NVIDIA's repository, 'distribution' from Ubuntu's own
#         archive, with signed modules, 'present' only judges the one that is there; always
#         'present' with privilege = 'none'
#     "driver_branch": 595,
#         the NVIDIA driver branch; default: the stack's
#     "driver_version": "580.95.05",
#         exactly this driver; None = the newest of the branch on offer when it is installed; one of
#         the branch that is there stays; default: None
#     "driver_modules": "open",
#         the flavour of the NVIDIA kernel modules; Blackwell works with 'open' only
#     "driver_packages": "compute",
#         'full' adds what a display server needs
#     "driver_repository_url": "https://mirror.example.org/cuda/repos/{distro}/{arch}",
#         NVIDIA's package repository or a mirror of it, for driver and CUDA toolkit; default: the
#         stack's
#     "driver_key_fingerprint": "0123456789ABCDEF0123456789ABCDEF01234567",
#         the key that signs the repository; None = NVIDIA's, which a mirror keeps; default: None
#     "driver_keyring_sha256": "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
#         digest of the repository's cuda-keyring package; None = NVIDIA's; default: None
#     "driver_hold": True,
#         keep apt upgrade from moving the driver's packages
#     "driver_persistence": True,
#         keep the GPUs initialised by nvidia-persistenced
#     "driver_reboot": "if-idle",
#         what to do when only a reboot helps; 'if-idle' waits for a host without GPU work and
#         without people, 'never' only reports it, 'always' does not look who is there
#     "driver_reboot_wait_s": 900,
#         seconds a host may take to come back from a reboot
#
# packages
#     "packages_extra": ["nvtop", "tmux"],
#         further packages of the distribution to install; taken off here, they stay installed;
#         default: None
#
# cuda
#     "cuda_toolkit": True,
#         install the CUDA toolkit, which torch itself does not need; never with privilege = 'none'
#     "cuda_release": "13.2",
#         the CUDA toolkit; default: the stack's
#     "cuda_version": "13.0.3",
#         exactly this toolkit; None = any of the release; default: None
#     "cuda_archs": ["12.0"],
#         what nvcc is proven to make code for; None = the gpu_model's, without a model those of
#         torch's wheel; default: None
#     "host_compiler": "gcc-13",
#         the C++ compiler nvcc uses; default: None
#
# libcuda
#     "libcuda_toolkit_link": False,
#         link libcuda.so into the toolkit's lib64 too, for Triton 2 and programs linked with
#         -L$CUDA_HOME/lib64 -lcuda
#
# pytorch
#     "pytorch_source": "wheel",
#         where torch comes from; 'nightly' keeps its files, 'source' builds it once per kind of
#         host
#     "pytorch_version": "2.14.0",
#         the torch release; default: the stack's
#     "pytorch_build": "cu126",
#         the torch build; default: the stack's
#     "pytorch_python": "python3",
#         the host's Python that the virtual environment is made from
#     "pytorch_environments_kept": 2,
#         how many virtual environments are kept that newer ones have replaced
#     "pytorch_index_url": "https://mirror.example.org/simple",
#         the index torch is installed from; default: the stack's
#     "pytorch_extra_index_url": "https://mirror.example.org/extra",
#         a second index, asked first for what it has; default: the stack's
#     "pytorch_wheels": "/srv/wheels",
#         a folder of wheels, as `pyinfra-gpu lock` fills it; no index is asked then; default: None
#     "pytorch_lock": "if-there",
#         whether only what a lock of `pyinfra-gpu lock` names is installed, by its digest;
#         'required' stops a host for which there is none
#     "pytorch_fallback": "2.14.1",
#         the release installed as a wheel where a build or a nightly cannot be had; said in every
#         run and check until that is cured; None = such a host fails; default: None
#     "pytorch_git_url": "https://github.com/pytorch/pytorch",
#         the repository torch is built from, a mirror of it, or a bundle; default: None
#     "pytorch_commit": "5c48869085840e9cbb80e2a4d2b5e5d7c3a1f602",
#         the commit of pytorch_git_url to build; default: None
#     "pytorch_archs": ["12.0"],
#         what torch is compiled for; None = the gpu_model's; default: None
#     "pytorch_flags": {"USE_MKLDNN": "0"},
#         options of the build beside those that this project sets; default: {}
#     "pytorch_builder": "ws1",
#         the host that builds; None = the first of its kind; default: None
#     "pytorch_build_memory_gib": 32,
#         memory that a build may use; None = four fifths of the host's; default: None
#
# environment
#     "environment_name": "training",
#         names the env file and the training checkout
#     "environment_variables": {"NCCL_DEBUG": "WARN"},
#         added to the env file; default: {}
#     "environment_dynamo": True,
#         False switches torch.compile off for programs of this environment
#
# training
#     "training_repo": "https://github.com/karpathy/nanochat",
#         the training repo; None = no training stage; default: None
#     "training_commit": "92d63d4a1f0e5b7c8d9e0f1a2b3c4d5e6f708192",
#         the commit to check out; default: None
#     "training_local_changes": "report",
#         what to do about changes in the checkout; 'overwrite' keeps a backup
#     "training_submodules": True,
#         check the repo's submodules out too, each at the commit recorded for it
#     "training_lfs": True,
#         fetch the repo's files of git LFS, where git-lfs is on the host
#     "training_requirements": "requirements.txt",
#         what to install for training, torch excepted; default: None
#     "training_presets": {"tiny": {"file": "train.py", "arguments": {"steps": 200}}},
#         what `train start PRESET` runs, and with which arguments; default: {}
#     "training_stop_grace_s": 30,
#         seconds that a run has to end by itself when it is stopped
#     "training_log_mib": 64,
#         MiB of one rank's log before it is rotated; two older files are kept
#     "training_keep_runs": 50,
#         ended runs whose logs are kept; 0 = all. Checkpoints are never deleted
#     "training_retry_wait_s": 30,
#         seconds before a run begins again by `--retries`; twice as long each further time
#     "training_reboot_wait_s": 86400,
#         seconds after a boot that runs with `resume_after_reboot` wait for a smoke test
#     "training_notify": (),
#         a command that gets JSON on its standard input when a run ends, fails, stalls or is
#         resumed; the owner runs it
#
# smoke
#     "smoke": "auto",
#         run the smoke test when something it depends on changed, always, or never
#     "smoke_ranks": 2,
#         processes of the smoke test where it uses no real GPU; else one per GPU
#     "smoke_deadline_s": 180,
#         seconds after which a smoke test counts as hung and is ended
#     "smoke_allreduce_mib": 128,
#         MiB of the largest all-reduce; default: 256 on GPUs, 64 on the CPU
#     "smoke_accept": "proof",
#         what a pass must prove: all the declared hardware can, or two real GPUs
#     "smoke_limit_network": True,
#         while a smoke test runs, keep all but its own hosts from connecting to it
#     "smoke_across_hosts": False,
#         then one step on all hosts of that group; True = all that say True
#     "smoke_across_address": "10.1.2.3",
#         where the other hosts reach this one; default: None
#     "smoke_across_port": 29400,
#         TCP port at the group's first host, for torchrun's store in that step
# --- end of every key ---
