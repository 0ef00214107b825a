"""libcuda: links and linker cache that lead to the driver's own library, and the proof of it."""

from __future__ import annotations

from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from pyinfra_gpu.engine import deadlines, proof, transaction
from pyinfra_gpu.engine.converge import Commands, converging
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import step
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host import program
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stages.finding import Findings, Id
from pyinfra_gpu.stages.libcuda import findings

STAGE = findings.STAGE


@converging(findings, repairs=(Id.LIBCUDA_LINK_DIFFERS, Id.LIBCUDA_CACHE_STALE, Id.LIBCUDA_ANOTHER))
def linked(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that the links to libcuda and the linker's cache lead to the driver's library.

    A link that belongs to a package comes back with its package; another one is made as
    `libcuda.so -> libcuda.so.1`. What somebody put in the way is kept under another name, said in
    the output. A library that is not the driver's and comes first in the cache fails this host.
    """
    # Packages first, links of ours second, the cache last, since it is made from both.
    del found
    wrong, inside = list(findings.wrong_links(spec, record)), findings.toolkit_link(spec)
    if in_the_way := [path for path in wrong if _is_in_the_way(record, path)]:
        what = f"look at what is at {', '.join(in_the_way)}"
        command = program("libcuda/set_aside.sh", *in_the_way)
        yield step(STAGE, what, command, run_as=as_root(spec), seconds=deadlines.PLAIN, stream=True)
    if of_packages := [path for path in wrong if path != inside]:
        packages = [] if findings.has_library(record) else findings.library_packages(record)
        yield FunctionCommand(_reinstall, (spec, of_packages, packages), {})
    soname = findings.path(record, findings.SONAME)
    targets = {findings.path(record, findings.DEV): findings.SONAME, inside: soname}
    pairs = [word for path in wrong if path in targets for word in (path, targets[path])]
    command = program("libcuda/links.sh", soname, *pairs)
    what = "update the linker's cache"
    yield step(STAGE, what, command, run_as=as_root(spec), seconds=deadlines.SERVICE)


def _is_in_the_way(record: Record, path: str) -> bool:
    """Tell whether something is lost when a link is made there; a dangling link leads nowhere."""
    there = findings.link(record, path)
    return there.kind != "absent" and not (there.kind == "link" and there.real is None)


def _reinstall(
    state: State, host: Host, spec: HostSpec, paths: list[str], packages: list[str]
) -> bool:
    """Install again the packages to which these paths belong, and those whose files are gone."""
    owners = transaction.owners(state, host, spec, paths)
    return transaction.again(state, host, STAGE, spec, [*packages, *owners])


@converging(findings, repairs=(Id.LIBCUDA_UNPROVEN,))
def proven(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that programs were seen to load the driver's library, as it is now.

    One program is linked with -lcuda, one opens libcuda.so.1; both must get the file whose version
    is the loaded module's. The proof is kept with library, links and cache.
    """
    del found
    what = "compile and run programs that load libcuda"
    version, owned = str(record.driver.loaded), spec.driver.source != "present"
    asked = {"version": version, "owned": owned, "compiler": "gcc"}
    yield from proof.run("libcuda", spec, record, what, findings.state(spec, record), **asked)
