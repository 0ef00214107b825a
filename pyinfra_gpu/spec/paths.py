"""Where everything of ours is on a host."""

from __future__ import annotations

from dataclasses import dataclass, replace


class _Below:
    """A path below the prefix, of which {name} is the environment's and {venv} the venv's."""

    def __init__(self, tail: str) -> None:
        self._tail = tail

    def __get__(self, paths: Paths, owner: object = None) -> str:
        return f"{paths.prefix}/{self._tail.format(name=paths.name, venv=paths._venv)}"


@dataclass(frozen=True, kw_only=True)
class Paths:
    """Every path on the host that is ours, as absolute POSIX text."""

    prefix: str
    name: str
    _venv: str = "venv"

    # The virtual environment that holds torch is the owner's, in a directory of root's.
    venv = _Below("{venv}")
    python = _Below("{venv}/bin/python")
    torch_lock = _Below("{venv}/.pyinfra-gpu-lock.txt")  # of the lock by which torch was installed

    tools = _Below("tools")  # the programs that we bring along
    uv = _Below("tools/bin/uv")
    cache = _Below("cache")

    build = _Below("build")  # where torch is built: tree, log and wheel; the owner's
    build_program = _Below("bin/pyinfra-gpu-build.py")  # the program that builds; root's

    env_dir = _Below("env")
    env_file = _Below("env/{name}.env")  # for systemd's EnvironmentFile and the torchrun wrapper

    bin = _Below("bin")  # commands for people
    torchrun = _Below("bin/torchrun")
    train = _Below("bin/train")
    train_dir = _Below("train")  # what the launcher reads
    train_site = _Below("train/site.json")  # what is declared for it: paths, presets, limits
    train_unit = _Below("train/pyinfra-gpu-train@.service")  # of a run, in the owner's manager
    train_unit_again = _Below("train/pyinfra-gpu-train-again.service")  # by it runs go on
    training_parent = _Below("training")
    training = _Below("training/{name}")  # the checkout

    state = _Below("state")  # what programs write that run as the owner
    verdict = _Below("state/verdict.json")  # of the last smoke test
    across_verdict = _Below("state/across.json")  # of the last step across hosts
    smoke = _Below("smoke")
    smoke_bundle = _Below("smoke/smoke_test.pyz")
    stamp = _Below("smoke/stamp.json")  # what the last smoke test that passed was run on

    proofs = _Below("proofs")
    cuda_proof = _Below("proofs/cuda.json")  # what nvcc last compiled, with which toolkit
    libcuda_proof = _Below("proofs/libcuda.json")  # which library programs last loaded

    lock = _Below(".lock")  # held while a run writes below the prefix
    lease = _Below(".lease")  # held by the run that works on the host, where nobody is root


def beside(paths: Paths) -> Paths:
    """Return these paths with the environment that is made beside the one in use."""
    return replace(paths, _venv="venv.new")
