"""Where everything of ours is on a host."""

from __future__ import annotations

from dataclasses import dataclass

from pyinfra_gpu.spec import sources
from pyinfra_gpu.spec.key import computed, key


@dataclass(frozen=True, kw_only=True, slots=True)
class Paths:
    """Every path on the host that is ours, as absolute POSIX text, from `prefix` and the
    environment's name.
    """

    prefix: str = key(
        sources.prefix,
        default="/opt/pyinfra-gpu",
        allowed="an absolute path of letters, digits and . _ + @ -, outside system directories",
        example="/srv/gpu/lab",
        help="the directory that holds everything of ours on the host",
    )
    name: str = computed(lambda given: given["environment_name"])

    @property
    def venv(self) -> str:
        """The virtual environment that holds torch; the owner's, in a directory of root's."""
        return f"{self.prefix}/venv"

    @property
    def python(self) -> str:
        """The virtual environment's interpreter."""
        return f"{self.venv}/bin/python"

    @property
    def tools(self) -> str:
        """Directory of the programs we bring along."""
        return f"{self.prefix}/tools"

    @property
    def uv(self) -> str:
        """The installer."""
        return f"{self.tools}/bin/uv"

    @property
    def uv_lock(self) -> str:
        """The line of the lock by which the installer was installed; absent where by none."""
        return f"{self.tools}/lock.txt"

    @property
    def torch_lock(self) -> str:
        """The packages of the lock by which torch was installed; absent where by none."""
        return f"{self.venv}/.pyinfra-gpu-lock.txt"

    @property
    def cache(self) -> str:
        """The installer's cache."""
        return f"{self.prefix}/cache"

    @property
    def build(self) -> str:
        """Where torch is built from source, where it is: tree, log and wheel; the owner's."""
        return f"{self.prefix}/build"

    @property
    def build_bundle(self) -> str:
        """The program that builds, one zip file; root's."""
        return f"{self.prefix}/bin/pyinfra-gpu-build.pyz"

    @property
    def env_dir(self) -> str:
        """Directory of the env files."""
        return f"{self.prefix}/env"

    @property
    def env_file(self) -> str:
        """KEY=VALUE lines for systemd's EnvironmentFile and for the torchrun wrapper."""
        return f"{self.env_dir}/{self.name}.env"

    @property
    def bin(self) -> str:
        """Directory of the commands meant for people."""
        return f"{self.prefix}/bin"

    @property
    def torchrun(self) -> str:
        """The torchrun wrapper."""
        return f"{self.bin}/torchrun"

    @property
    def train(self) -> str:
        """The launcher of training runs."""
        return f"{self.bin}/train"

    @property
    def train_dir(self) -> str:
        """Directory of what the launcher reads: what is declared, and the unit of a run."""
        return f"{self.prefix}/train"

    @property
    def train_site(self) -> str:
        """What is declared for the launcher: paths, presets, limits."""
        return f"{self.train_dir}/site.json"

    @property
    def train_unit(self) -> str:
        """The template of a run's unit in the owner's user manager."""
        return f"{self.train_dir}/pyinfra-gpu-train@.service"

    @property
    def train_unit_again(self) -> str:
        """The unit in the owner's user manager by which runs go on after a reboot."""
        return f"{self.train_dir}/pyinfra-gpu-train-again.service"

    @property
    def training_parent(self) -> str:
        """Directory of the training checkouts."""
        return f"{self.prefix}/training"

    @property
    def training(self) -> str:
        """This environment's training checkout."""
        return f"{self.training_parent}/{self.name}"

    @property
    def state(self) -> str:
        """Directory of what programs write that run as the owner: verdicts, logs, evidence."""
        return f"{self.prefix}/state"

    @property
    def smoke(self) -> str:
        """Directory of the smoke test's program and of what its last pass stands for."""
        return f"{self.prefix}/smoke"

    @property
    def smoke_bundle(self) -> str:
        """The smoke test program, one zip file."""
        return f"{self.smoke}/smoke_test.pyz"

    @property
    def stamp(self) -> str:
        """What the last smoke test that passed was run on."""
        return f"{self.smoke}/stamp.json"

    @property
    def verdict(self) -> str:
        """What the last smoke test found."""
        return f"{self.state}/verdict.json"

    @property
    def across_verdict(self) -> str:
        """What the last step across hosts found."""
        return f"{self.state}/across.json"

    @property
    def proofs(self) -> str:
        """Directory of what was proven of the CUDA toolkit and of libcuda, and on which state."""
        return f"{self.prefix}/proofs"

    @property
    def cuda_proof(self) -> str:
        """What nvcc last compiled here, and with which toolkit and compiler."""
        return f"{self.proofs}/cuda.json"

    @property
    def libcuda_proof(self) -> str:
        """Which library programs last loaded here, and the state it was proven on."""
        return f"{self.proofs}/libcuda.json"

    @property
    def lock(self) -> str:
        """Held while a run writes below the prefix; root's, and open to the owner to be locked."""
        return f"{self.prefix}/.lock"

    @property
    def lease(self) -> str:
        """Locked by the run that works on the host, where nobody is root for it."""
        return f"{self.prefix}/.lease"


def beside(paths: Paths) -> Paths:
    """Return these paths with the environment that is made beside the one in use."""
    return _Beside(prefix=paths.prefix, name=paths.name)


class _Beside(Paths):
    """The same, but for an environment that is not in use yet."""

    @property
    def venv(self) -> str:
        return f"{self.prefix}/venv.new"
