"""The one command that looks at a host.

`asked_by` says where to look, `on_host.probe_program` joins it with the programs of the probe,
and `COMMAND` runs that. What a host answers is read by `pyinfra_gpu.facts.parse`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyinfra_gpu import on_host
from pyinfra_gpu.packages import files as apt_files
from pyinfra_gpu.spec import system_files

if TYPE_CHECKING:
    from pyinfra_gpu.spec import HostSpec, Paths


BOOTSTRAP = on_host.text("probe/bootstrap.sh").strip()
"""Runs the program that comes on standard input; says so where there is no Python to run it."""
COMMAND = f": pyinfra-gpu-probe; {BOOTSTRAP}"
"""The same, named: sudo writes every command line into the host's log, of 40 KB a look if it held
the program."""

COMPARE_S = 13
"""For comparing files, the same in a deploy and in a check, so that both say the same of a host.

A smoke test that passes makes what was not compared count as proven, so this has to be long. Only
files that were touched since cost time."""
_ON_THE_WAY_S = 10  # of the time for a look: for connecting, and for the answer's way back


def asked_by(spec: HostSpec, **changes: object) -> dict[str, Any]:
    """Return what the stages of a host ask.

    + spec: the host's validated specification
    + changes: what is asked otherwise
    """
    paths, training, pytorch = spec.paths, spec.training, spec.pytorch
    requirements = training.requirements if training else None
    asked = asked_of(
        paths,
        nvidia=spec.accelerator == "nvidia",
        training=paths.training if training else "",
        requirements=f"{paths.training}/{requirements}" if requirements else "",
        build=paths.build if pytorch.building is not None else "",
        owner="-" if spec.privilege == "none" else spec.owner or "",
        python=pytorch.interpreter,
        cuda_release=spec.cuda.release or "",
        compiler=spec.cuda.host_compiler or "",
        seconds=max(spec.look_timeout_s - _ON_THE_WAY_S, 5),
        **changes,
    )
    folders = () if pytorch.source == "wheel" else (paths.build,)
    return {**asked, "entries": (*asked["entries"], *folders)}


def asked_of(paths: Paths, *, nvidia: bool = False, **changes: object) -> dict[str, Any]:
    """Return what is asked of what lies under one prefix. An empty path means: do not look.

    + nvidia: whether to look at what only a host with an NVIDIA driver needs: kernels, the
      repository and the log of its packages, toolkits, libcuda, who would mind a restart
    + changes: what is asked otherwise
    """
    return {
        "prefix": paths.prefix,
        # As whom all is looked at that this user can write; "": who logged in; "-": whoever looks.
        "owner": "",
        "venv": paths.venv,
        "uv": paths.uv,
        "python": "",  # the declared interpreter, where that is a path
        "training": paths.training,
        "requirements": "",  # a file in it whose digest is asked
        "training_stamp": f"{paths.venv}/.pyinfra-gpu-training.json",
        "stamp": paths.stamp,
        "verdict": paths.verdict,
        "build": "",  # where torch is built from source
        "entries": _entries(paths, nvidia=nvidia),  # whose kind, mode, owner and digest are asked
        "packages": (),  # whose installed version is asked
        "nvidia": nvidia,
        "cuda_release": "",  # of the declared toolkit, e.g. "13.0"
        "compiler": "",  # the declared host compiler
        "keyring": system_files.KEYRING if nvidia else "",
        "cuda_proof": paths.cuda_proof if nvidia else "",
        "libcuda_proof": paths.libcuda_proof if nvidia else "",
        "reboots": system_files.REBOOTS if nvidia else "",  # those that were asked for
        # For comparing the environment's files; digests of those that were touched are left out
        # three seconds before that is over.
        "compare_s": COMPARE_S,
        "seconds": 50,  # after which what has not been told yet is left out
        **changes,
    }


def _entries(paths: Paths, *, nvidia: bool) -> tuple[str, ...]:
    """The paths of the project's own that are looked at."""
    names = (
        *("prefix", "venv", "tools", "uv", "torch_lock", "cache", "env_dir", "env_file"),
        *("bin", "torchrun", "train", "train_dir", "train_site", "train_unit", "train_unit_again"),
        *("training_parent", "training", "smoke", "smoke_bundle", "state", "lock"),
    )
    systems = (paths.proofs, *system_files.ALL, *apt_files.ALL) if nvidia else ()
    return (*(getattr(paths, name) for name in names), *systems)
