"""The CUDA toolkit: its packages, /usr/local/cuda, and the proof that nvcc makes code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra.api.command import FunctionCommand

from pyinfra_gpu.drift import compilers
from pyinfra_gpu.drift import cuda as drift
from pyinfra_gpu.drift.finding import Findings, Id
from pyinfra_gpu.engine import deadlines, proof, transaction
from pyinfra_gpu.engine.converge import Commands, converging, fresh
from pyinfra_gpu.engine.look import look
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import quoted, step

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = drift.STAGE
_NO_REPOSITORY = (
    "the toolkit comes from NVIDIA's repository, which driver_source = 'present' does not set up;"
    " without a toolkit declare cuda_toolkit = False"
)


@converging(drift, repairs=drift.TOOLKIT)
def installed(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that the declared toolkit and a compiler for it are installed, and whole.

    Only the toolkit's own package is asked for: `cuda` and `cuda-13-0` bring a driver of their
    choice. Other toolkits beside it stay. Files that are gone come back with their packages. A
    compiler that nvcc refuses fails this host with the one to install.
    """
    if record.packages.half_configured:
        yield FunctionCommand(transaction.wait_for_lock, (STAGE, spec), {})
        yield transaction.finish_interrupted(STAGE, spec)
    yield from _install(spec, record, found)


def _hint(spec: HostSpec, record: Record) -> str:
    """Return what to think of where there is no toolkit to install."""
    if spec.driver.source == "present":
        return _NO_REPOSITORY
    offers = f"apt-cache policy {drift.package(spec)}"
    if spec.cuda.version:
        return (
            f"cuda_version = {spec.cuda.version!r} is declared; what is on offer there is told by"
            f" `{offers}`"
        )
    return f"see `{offers}` there"


def _install(spec: HostSpec, record: Record, found: Findings) -> Commands:
    wanted = compilers.compiler_packages(spec, record)
    if drift.toolkit_owed(spec, record, found):
        name, version = drift.package(spec), spec.cuda.version
        wanted.append(f"{name}={version}-*" if version else name)
    if wanted:
        yield from transaction.install(STAGE, spec, wanted, hint=_hint(spec, record))
    if found.of(Id.CUDA_COMPILER_MISSING):
        yield FunctionCommand(_compilers_again, (spec,), {})
    if found.of(Id.CUDA_HALF_REMOVED):
        yield FunctionCommand(_reinstall, (spec, record), {})


def _compilers_again(state: State, host: Host, spec: HostSpec) -> bool:
    """Install again the compilers whose packages are there, and their programs are not."""
    record = look(spec)
    names = [] if record is None else compilers.compiler_packages(spec, record)
    return transaction.again(state, host, STAGE, spec, names)


def _reinstall(state: State, host: Host, spec: HostSpec, record: Record) -> bool:
    """Install again what lost files, and only that: a whole toolkit is gigabytes."""
    lost = transaction.with_missing_files(state, host, spec, drift.home(spec))
    found = (*lost, *drift.damaged(spec, record), *drift.incomplete(spec, record))
    packages = list(dict.fromkeys(found)) or drift.nvcc_packages(spec, record)
    return transaction.again(state, host, STAGE, spec, packages)


@converging(drift, repairs=drift.PLAIN_PATH)
def chosen(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that /usr/local/cuda leads to the declared toolkit, by update-alternatives.

    A link that somebody made by hand is kept under another name; a folder there is left alone and
    fails this host.
    """
    del found
    yield step(
        STAGE,
        f"choose {drift.home(spec)} for {drift.PLAIN}",
        _choose(spec, by_hand=drift.link_by_hand(record)),
        run_as=as_root(spec),
        seconds=deadlines.PLAIN,
        stream=True,
    )


def _choose(spec: HostSpec, *, by_hand: bool) -> str:
    """Return the shell command; a toolkit whose package registered it is not registered again.

    130 is what NVIDIA's packages give release 13.0: by it update-alternatives chooses on its own,
    as long as nobody has set one.
    """
    wanted, link = drift.home(spec), drift.PLAIN
    major, _, minor = str(spec.cuda.release).partition(".")
    set_it = quoted("update-alternatives", "--set", "cuda", wanted)
    add_it = quoted("update-alternatives", "--install", link, "cuda", wanted, f"{major}{minor}")
    command = f"{set_it} 2>/dev/null || {{ {add_it} && {set_it}; }}"
    if not by_hand:
        return command
    # Links are cheap to keep, and say later what somebody wanted.
    aside = f'kept={link}.before-pyinfra-gpu.$(date +%Y%m%d-%H%M%S) && mv -T {link} "$kept"'
    return f'{aside} && echo "the link of before is kept as $kept" && {{ {command}; }}'


@converging(drift, repairs=drift.PROOF)
def proven(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that nvcc compiled a kernel for each declared GPU architecture, with what is there.

    The proof is kept on the host with toolkit, compiler and architectures; while those are the
    same there is nothing to do.
    """
    del found
    record = fresh(spec, record)
    yield from proof.run(
        "cuda",
        spec,
        record,
        f"compile for {', '.join(f'sm_{arch}' for arch in spec.cuda.archs)}",
        drift.state(spec, record),
        toolkit=drift.home(spec),
        release=str(spec.cuda.release),
        compiler=compilers.compiler_name(spec),
        archs=list(spec.cuda.archs),
    )
