"""Every data key: its stage, default, allowed values, description and checker."""

from __future__ import annotations

from collections.abc import Mapping

from pyinfra_gpu.spec import sources, variables
from pyinfra_gpu.spec import values as v
from pyinfra_gpu.spec.key import FROM_STACK, Key, make_key
from pyinfra_gpu.spec.nvidia_keys import NVIDIA_KEYS
from pyinfra_gpu.stacks import catalogue

STAGES = (
    "general", "preflight", "driver", "cuda", "libcuda", "pytorch", "environment", "training",
    "smoke",
)  # fmt: skip


def _stacks() -> list[str]:
    return list(catalogue().stacks)


def _gpus() -> list[str]:
    return list(catalogue().gpus)


_GROUP = r"[A-Za-z][A-Za-z0-9_]{0,63}"
_USER = r"[A-Za-z_][A-Za-z0-9_.-]{0,31}"

_ALL = (
    make_key(
        "stack",
        "general",
        "the name of a stack",
        "r580-cu130",
        v.one_of(_stacks, "a stack"),
        example="cpu-torch2.13",
        description="versions that fit together; every other version key overrides one of them",
    ),
    make_key(
        "rehearsal",
        "general",
        "True or False",
        False,
        v.boolean,
        example=True,
        description="the host is thrown away after use: label every result so",
    ),
    make_key(
        "prefix",
        "general",
        "an absolute path of letters, digits and . _ + @ -, outside system directories",
        "/opt/pyinfra-gpu",
        sources.prefix,
        example="/srv/gpu/lab",
        description="the directory that holds everything of ours on the host",
    ),
    make_key(
        "owner",
        "general",
        "a user name, or None for the login user",
        None,
        v.matching(_USER, "is not a user name"),
        example="trainer",
        description="the user who owns the tree under prefix and runs torch",
    ),
    make_key(
        "privilege",
        "general",
        "'sudo' or 'none'",
        "sudo",
        v.choice("sudo", "none"),
        example="none",
        description="'none' writes nothing outside prefix and installs no system package",
    ),
    make_key(
        "gpu_model",
        "preflight",
        "the name of a GPU in stacks.yaml, or None for no check",
        None,
        v.one_of(_gpus, "a GPU this project knows"),
        example="RTX 5090",
        description="the model every GPU of the host must be",
    ),
    make_key(
        "gpu_count",
        "preflight",
        "a whole number from 0 to 16, 0 only with a cpu stack",
        FROM_STACK,
        v.integer(0, 16),
        example=4,
        description="how many GPUs the host must have; 2 on nvidia stacks, 0 on cpu stacks",
    ),
    make_key(
        "preflight_min_disk_gib",
        "preflight",
        "a number from 0 to 100000",
        FROM_STACK,
        v.number(0, 100_000),
        example=40,
        description="free GiB needed at prefix where torch is not installed yet",
    ),
    make_key(
        "preflight_min_ram_gib",
        "preflight",
        "a number from 0 to 100000",
        FROM_STACK,
        v.number(0, 100_000),
        example=64,
        description="GiB of memory the host must have",
    ),
    make_key(
        "preflight_apt_wait_s",
        "preflight",
        "a whole number from 0 to 3600",
        120,
        v.integer(0, 3600),
        example=600,
        description="seconds to wait while another program uses apt or dpkg",
    ),
    *NVIDIA_KEYS,
    make_key(
        "pytorch_source",
        "pytorch",
        "'wheel'",
        "wheel",
        v.source,
        example="wheel",
        description="where torch comes from",
    ),
    make_key(
        "pytorch_version",
        "pytorch",
        "a final torch release with three numbers",
        FROM_STACK,
        v.torch_version,
        example="2.14.0",
        description="the torch release",
    ),
    make_key(
        "pytorch_build",
        "pytorch",
        "'cpu' or 'cu' and three digits",
        FROM_STACK,
        v.torch_build,
        example="cu126",
        description="the torch build",
    ),
    make_key(
        "pytorch_python",
        "pytorch",
        "a command, an absolute path or a version such as '3.12'",
        "python3",
        v.interpreter,
        example="3.12",
        description="the host's Python that the virtual environment is made from",
    ),
    make_key(
        "pytorch_index_url",
        "pytorch",
        "an http, https or file URL, or None for the package index",
        FROM_STACK,
        sources.index_url,
        example="https://mirror.example.org/simple",
        description="the index torch is installed from",
    ),
    make_key(
        "pytorch_extra_index_url",
        "pytorch",
        "an http, https or file URL, or None",
        FROM_STACK,
        sources.index_url,
        example="https://mirror.example.org/extra",
        description="a second index, asked first for what it has",
    ),
    make_key(
        "environment_name",
        "environment",
        "at most 40 of a-z, 0-9 and -, not starting with -",
        "training",
        v.matching(r"[a-z0-9][a-z0-9-]{0,39}", "is not a short lower-case name"),
        example="nanochat",
        description="names the env file and the training checkout",
    ),
    make_key(
        "environment_variables",
        "environment",
        "a dict of names and texts",
        {},
        variables.variables,
        example={"NCCL_DEBUG": "WARN"},
        description="added to the env file",
    ),
    make_key(
        "environment_dynamo",
        "environment",
        "True or False",
        True,
        v.boolean,
        example=False,
        description="False switches torch.compile off for programs of this environment",
    ),
    make_key(
        "training_repo",
        "training",
        "a git URL (https, http, ssh, git, file or user@host:path), or None",
        None,
        sources.git_url,
        example="https://github.com/karpathy/nanochat",
        description="the training repo; None = no training stage",
    ),
    make_key(
        "training_commit",
        "training",
        "40 hexadecimal digits",
        None,
        sources.commit,
        example="92d63d4a1f0e5b7c8d9e0f1a2b3c4d5e6f708192",
        description="the commit to check out",
    ),
    make_key(
        "training_local_changes",
        "training",
        "'report' or 'overwrite'",
        "report",
        v.choice("report", "overwrite"),
        example="overwrite",
        description="what to do about changes in the checkout; 'overwrite' keeps a backup",
    ),
    make_key(
        "training_requirements",
        "training",
        "a path in the repo to a requirements .txt or pyproject.toml, or None",
        None,
        sources.requirements,
        example="requirements.txt",
        description="what to install for training, torch excepted",
    ),
    make_key(
        "smoke",
        "smoke",
        "'auto', 'always' or 'skip'",
        "auto",
        v.choice("auto", "always", "skip"),
        example="always",
        description="run the smoke test when something it depends on changed, always, or never",
    ),
    make_key(
        "smoke_ranks",
        "smoke",
        "a whole number from 2 to 16",
        2,
        v.integer(2, 16),
        example=4,
        description="processes of the smoke test where it uses no real GPU; else one per GPU",
    ),
    make_key(
        "smoke_deadline_s",
        "smoke",
        "a whole number from 10 to 3600",
        180,
        v.integer(10, 3600),
        example=600,
        description="seconds after which a smoke test counts as hung and is ended",
    ),
    make_key(
        "smoke_allreduce_mib",
        "smoke",
        "a power of two from 1 to 1024",
        64,
        v.power_of_two(1, 1024),
        example=256,
        description="MiB of the largest all-reduce",
    ),
    make_key(
        "smoke_accept",
        "smoke",
        "'proof' or 'two-gpus'",
        "proof",
        v.choice("proof", "two-gpus"),
        example="two-gpus",
        description="what a pass must prove: all the declared hardware can, or two real GPUs",
    ),
    make_key(
        "smoke_across_hosts",
        "smoke",
        "True, False or the name of an inventory group",
        False,
        v.switch_or(_GROUP, "the name of a group"),
        example="gpu",
        description="then one step on all hosts of that group; True = all that say True",
    ),
    make_key(
        "smoke_across_address",
        "smoke",
        "an IP address, or None for those the host has",
        None,
        sources.ip_address,
        example="10.1.2.3",
        description="where the other hosts reach this one",
    ),
    make_key(
        "smoke_across_port",
        "smoke",
        "a whole number from 1024 to 65534",
        29400,
        v.integer(1024, 65_534),
        example=29500,
        description="TCP port at the group's first host for that step, and the next one",
    ),
)

KEYS: Mapping[str, Key] = {key.name: key for key in _ALL}
