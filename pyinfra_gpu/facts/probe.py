"""The one command that looks at a host, and the pyinfra fact that sends it.

`asked_by` says where to look, `text_of` joins it with the programs of `on_host/probe`. What a
host answers is read by `pyinfra_gpu.facts.parse`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyinfra.api import FactBase, StringCommand
from pyinfra.api.command import QuoteString
from pyinfra.api.exceptions import FactProcessError, PyinfraError

from pyinfra_gpu import on_host
from pyinfra_gpu.facts.parse import Answer
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
        "packages": PACKAGES,  # whose installed version is asked
        "nvidia": nvidia,
        "cuda_release": "",  # of the declared toolkit, e.g. "13.0"
        "compiler": "",  # the declared host compiler
        "keyring": system_files.KEYRING if nvidia else "",
        "cuda_proof": paths.cuda_proof if nvidia else "",
        "libcuda_proof": paths.libcuda_proof if nvidia else "",
        "reboots": system_files.REBOOTS if nvidia else "",  # those that were asked for
        # For comparing the environment's files; digests of those that were touched are left out
        # three seconds before that is over.
        "compare_s": 5,
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


def text_of(asked: Mapping[str, object]) -> str:
    """The program that looks at a host as it is asked, for Python's standard input."""
    return on_host.probe_program("look", asked)


class RecordFact(FactBase[Record]):
    """The whole record, for operations: `host.get_fact(RecordFact, _stdin=text_of(asked))`."""

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
            return answer.record()
        except Exception as error:  # any other kind would end the run on every host
            raise FactProcessError(f"the probe's output could not be read: {error!r}") from error


class Look(RecordFact):
    """The same for a person: `pyinfra --json INVENTORY fact pyinfra_gpu.facts.probe.Look`."""

    def command(self, *_: Any, **__: Any) -> StringCommand:
        """Look at the host, as its data say."""
        from pyinfra.context import host

        from pyinfra_gpu.spec import resolve

        try:
            spec = resolve(host.data.dict(), host.name)  # type: ignore[no-untyped-call]
        except PyinfraError as error:
            # Raised here, it would be a traceback; said by the host, it is one line and exit 1.
            return StringCommand("printf '%s\\n'", QuoteString(str(error)), ">&2; exit 1")
        return command(asked_by(spec))


def command(asked: Mapping[str, object]) -> StringCommand:
    """The look as one command line."""
    given = QuoteString(text_of(asked))
    return StringCommand(": pyinfra-gpu-probe; printf %s", given, "| {", BOOTSTRAP, "\n}")
