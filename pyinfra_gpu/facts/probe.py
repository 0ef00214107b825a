"""The one command that looks at a host, and the pyinfra fact that sends it.

`ProbeRequest` says where to look, `text_of` joins it with the programs of `on_host/probe`. What a
host answers is read by `pyinfra_gpu.facts.parse`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from pyinfra.api import FactBase, StringCommand
from pyinfra.api.command import QuoteString
from pyinfra.api.exceptions import FactProcessError, FactValueError, PyinfraError

from pyinfra_gpu import on_host
from pyinfra_gpu.facts.answer import Answer
from pyinfra_gpu.facts.parse import record_of
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.packages import files as apt_files
from pyinfra_gpu.spec import system_files

if TYPE_CHECKING:
    from pyinfra_gpu.spec import HostSpec, Paths


class NoPythonError(FactProcessError):
    """The host has no Python that could look."""


# What is looked for when nobody says more; a deploy asks for what its stages need.
PACKAGES = ("ca-certificates", "curl", "g++", "git", "python3", "python3-dev", "python3-venv")

BOOTSTRAP = on_host.text("probe/bootstrap.sh").strip()
"""Runs the program that comes on standard input; says so where there is no Python to run it."""

_ON_THE_WAY_S = 10  # of the time for a look: for connecting, and for the answer's way back
_NO_PATHS = ("cuda_release", "compiler", "repository", "owner")


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ProbeRequest:
    """Where the probe looks. Paths are absolute; an empty string means "do not look".

    + prefix: the folder whose file system's free room is asked
    + owner: the user as whom all is looked at that this user can write; "": who logged in;
      "-": whoever looks looks at all of it
    + build: where torch is built from source
    + venv, uv, env_file: the virtual environment, the installer, the environment's variables
    + python: the declared interpreter, where that is a path
    + training, requirements, training_stamp: the checkout, a file in it, its stamp
    + stamp, verdict: what the smoke test leaves
    + entries: paths whose kind, mode, owner, size and digest are asked
    + packages: names whose installed version is asked
    + nvidia: whether to look at what only a host with an NVIDIA driver needs: kernels, the
      repository and the log of its packages, toolkits, libcuda, who would mind a restart
    + cuda_release: the declared toolkit's, e.g. "13.0"; compiler: the declared host compiler
    + repository: URL of the declared repository, with `{distro}` and `{arch}` in it
    + keyring: the file with the repository's key
    + cuda_proof, libcuda_proof: what the proofs of toolkit and library leave
    + reboots: the list of those that were asked for
    + compare_s: for comparing the environment's files; digests of those that were touched are
      left out three seconds before that is over
    + seconds: after which what has not been told yet is left out
    + kept: where root keeps the compiled programs of a look; keep: whether it may write there

    A path that is not absolute, or any text with a control character, raises `FactValueError`.
    """

    prefix: str
    owner: str = ""
    venv: str
    uv: str
    python: str = ""
    env_file: str
    training: str
    requirements: str
    training_stamp: str
    stamp: str
    verdict: str
    build: str = ""
    entries: tuple[str, ...] = ()
    packages: tuple[str, ...] = PACKAGES
    nvidia: bool = False
    cuda_release: str = ""
    compiler: str = ""
    repository: str = ""
    keyring: str = ""
    cuda_proof: str = ""
    libcuda_proof: str = ""
    reboots: str = ""
    compare_s: int = 5
    seconds: int = 50
    kept: str = system_files.KEPT
    keep: bool = False

    def __post_init__(self) -> None:
        for name in _NO_PATHS:
            if not getattr(self, name).isprintable():
                raise FactValueError(f"{name} {getattr(self, name)!r} holds control characters")
        for path in self._paths():
            if path and (not path.startswith("/") or not path.isprintable()):
                raise FactValueError(
                    f"the path {path!r} must be absolute and without control characters"
                )

    def __repr__(self) -> str:
        # pyinfra prints a fact's arguments with -v: the whole list would bury the rest.
        return f"<what lies under {self.prefix}>"

    @classmethod
    def for_spec(
        cls,
        spec: HostSpec,
        *,
        entries: tuple[str, ...] = (),
        packages: tuple[str, ...] = PACKAGES,
    ) -> ProbeRequest:
        """What the stages of a host ask.

        + spec: the host's validated specification
        + entries: paths to look at beside the project's own
        + packages: the distribution's packages to look for
        """
        training = spec.training
        request = cls.for_paths(
            spec.paths,
            training=training is not None,
            requirements=(training.requirements or "") if training else "",
            nvidia=spec.accelerator == "nvidia",
            entries=entries,
            packages=packages,
        )
        paths, built = spec.paths, spec.pytorch.building is not None
        folders = (paths.build,) if spec.pytorch.source != "wheel" else ()
        request = replace(
            request,
            build=paths.build if built else "",
            entries=(*request.entries, *folders, *((paths.build_bundle,) if built else ())),
            owner="-" if spec.privilege == "none" else spec.owner or "",
            python=spec.pytorch.interpreter,
            seconds=max(spec.look_timeout_s - _ON_THE_WAY_S, 5),
        )
        if not request.nvidia:
            return request
        repository = spec.driver.repository
        return replace(
            request,
            cuda_release=spec.cuda.release or "",
            compiler=spec.cuda.host_compiler or "",
            repository=repository.url if repository else "",
        )

    @classmethod
    def for_paths(
        cls,
        paths: Paths,
        *,
        training: bool = True,
        requirements: str = "",
        nvidia: bool = False,
        entries: tuple[str, ...] = (),
        packages: tuple[str, ...] = PACKAGES,
    ) -> ProbeRequest:
        """What lies under one prefix.

        + training: whether to look at the training repository
        + requirements: a path inside that repository whose digest is asked, or ""
        + nvidia: whether to look at what belongs to an NVIDIA driver, too
        """
        checkout = paths.training if training else ""
        own = (*_own_entries(paths), *(_nvidia_entries(paths) if nvidia else ()))
        return cls(
            prefix=paths.prefix,
            venv=paths.venv,
            uv=paths.uv,
            env_file=paths.env_file,
            training=checkout,
            requirements=f"{checkout}/{requirements}" if checkout and requirements else "",
            training_stamp=f"{paths.venv}/.pyinfra-gpu-training.json",
            stamp=paths.stamp,
            verdict=paths.verdict,
            entries=tuple(dict.fromkeys((*own, *entries))),
            packages=packages,
            nvidia=nvidia,
            keyring=system_files.KEYRING if nvidia else "",
            cuda_proof=paths.cuda_proof if nvidia else "",
            libcuda_proof=paths.libcuda_proof if nvidia else "",
            reboots=system_files.REBOOTS if nvidia else "",
        )

    def _paths(self) -> tuple[str, ...]:
        names = (field.name for field in fields(self) if field.name not in _NO_PATHS)
        single = (getattr(self, name) for name in names)
        return (*(value for value in single if isinstance(value, str)), *self.entries)


def _own_entries(paths: Paths) -> tuple[str, ...]:
    """The paths of the project's own that are looked at on every host."""
    names = (
        *("prefix", "venv", "tools", "uv", "uv_lock", "torch_lock", "cache", "env_dir", "env_file"),
        *("bin", "torchrun", "train", "train_dir", "train_site", "train_unit", "train_unit_again"),
        *("training_parent", "training", "smoke", "smoke_bundle", "state", "lock"),
    )
    return tuple(getattr(paths, name) for name in names)


def _nvidia_entries(paths: Paths) -> tuple[str, ...]:
    return (paths.proofs, *system_files.ALL, *apt_files.ALL)


def text_of(request: ProbeRequest) -> str:
    """The program that looks at a host as `request` says, for Python's standard input."""
    asked = {field.name: getattr(request, field.name) for field in fields(request)}
    return on_host.probe_program("look", asked)


def command(request: ProbeRequest) -> StringCommand:
    """The same as one command line."""
    given = QuoteString(text_of(request))
    return StringCommand(": pyinfra-gpu-probe; printf %s", given, "| {", BOOTSTRAP, "\n}")


class RecordFact(FactBase[Record]):
    """The whole record, for operations: `host.get_fact(RecordFact, _stdin=text_of(request))`."""

    def command(self, *_: Any, **__: Any) -> StringCommand:
        """Run the program that comes on standard input.

        sudo writes every command line into the host's log; 40 KB a look would bury the rest.
        """
        return StringCommand(": pyinfra-gpu-probe;", BOOTSTRAP)

    def process(self, output: list[str]) -> Record:
        """The record; an answer that is not the probe's fails this host, and only this one."""
        answer = Answer(output)
        if not answer.found:
            first = next((line.strip() for line in output if line.strip()), "")
            said = f"it says {first[:80]!r}" if first else "it says nothing"
            raise FactProcessError(
                f"the login shell does not run what it is given ({said}): `ssh HOST echo ok` must"
                " print ok; what its start-up files do without a terminal keeps it from that"
            )
        if not answer.whole:
            raise FactProcessError(
                "its answer was cut off, so nothing is concluded from it: run again, and if it"
                " stays so, `ssh HOST` by hand says what ends the connection"
            )
        if not answer.python:
            raise NoPythonError(
                "it has no /usr/bin/python3 that could look: a deploy installs python3-minimal"
                " first; by hand, install that package"
            )
        if answer.refused:
            raise FactProcessError(f"its answer could not be read: {answer.refused}")
        try:
            return record_of(answer)
        except Exception as error:  # any other kind would end the run on every host
            raise FactProcessError(f"the probe's output could not be read: {error!r}") from error


class Look(RecordFact):
    """The same for a person: `pyinfra --json INVENTORY fact pyinfra_gpu.facts.probe.Look`."""

    def command(self, *_: Any, **__: Any) -> StringCommand:
        """Look at the host, as its data say."""
        from pyinfra.context import host

        from pyinfra_gpu.spec import resolve

        try:
            return command(ProbeRequest.for_spec(resolve(host.data.dict(), host.name)))  # type: ignore[no-untyped-call]
        except PyinfraError as error:
            # Raised here, it would be a traceback; said by the host, it is one line and exit 1.
            return StringCommand("printf '%s\\n'", QuoteString(str(error)), ">&2; exit 1")
