"""The CUDA toolkit: its packages, /usr/local/cuda, and the proof that nvcc makes code."""

from __future__ import annotations

from pyinfra.api.command import FunctionCommand

from pyinfra_gpu.engine import deadlines, proof, transaction
from pyinfra_gpu.engine.converge import Commands, converging
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import step
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host import program
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stages.cuda import findings
from pyinfra_gpu.stages.finding import Findings, Id

STAGE = findings.STAGE
_NO_REPOSITORY = (
    "the toolkit comes from NVIDIA's repository, which driver_source = 'present' does not set up;"
    " without a toolkit declare cuda_toolkit = False"
)


@converging(
    findings,
    repairs=(Id.CUDA_NOT_INSTALLED, Id.CUDA_TOOLKIT_DIFFERS, Id.CUDA_SHELL_PATH),
)
def installed(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that the declared toolkit is installed, and whole.

    Other toolkits beside it stay. Files that are gone come back with their packages.
    """
    del found
    if wanted := findings.to_install(spec, record):
        hint = f"see `apt-cache policy {findings.package(spec)}` there"
        hint = _NO_REPOSITORY if spec.driver.source == "present" else hint
        yield FunctionCommand(transaction.install, (STAGE, spec, wanted), {"hint": hint})
    if names := [*findings.damaged(spec, record)]:  # a whole toolkit is gigabytes
        yield FunctionCommand(transaction.again, (STAGE, spec, names), {})


@converging(findings, repairs=(Id.CUDA_LINK_DIFFERS,))
def chosen(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that /usr/local/cuda leads to the declared toolkit, by update-alternatives.

    A link, or a folder, that somebody made there is kept under another name.
    """
    del found
    wanted, link = findings.home(spec), findings.PLAIN
    # 130 is what NVIDIA's packages give release 13.0: by it update-alternatives chooses by itself,
    # as long as nobody has set one.
    priority = str(spec.cuda.release).replace(".", "")
    by_hand = "1" if findings.made_by_hand(record) else ""
    uses = ("files/set_aside.sh",)
    command = program("cuda/choose.sh", link, wanted, priority, by_hand, uses=uses)
    what, seconds = f"choose {wanted} for {link}", deadlines.PLAIN
    yield step(STAGE, what, command, run_as=as_root(spec), seconds=seconds, stream=True)


@converging(findings, repairs=(Id.CUDA_UNPROVEN,))
def proven(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that nvcc compiled a kernel for each declared GPU architecture, with what is there.

    The proof is kept on the host with toolkit, compiler and architectures; while those are the
    same there is nothing to do.
    """
    del found
    cuda, archs = spec.cuda, [*spec.cuda.archs]
    asked = {"toolkit": findings.home(spec), "release": cuda.release, "archs": archs}
    what, compiler = f"compile for {findings.architectures(spec)}", findings.compiler(spec)
    state = findings.state(spec, record)
    yield from proof.run("cuda", spec, record, what, state, compiler=compiler, **asked)
