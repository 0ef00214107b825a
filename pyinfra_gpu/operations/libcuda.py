"""libcuda: links and linker cache that lead to the driver's own library, and the proof of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra.api.command import FunctionCommand

from pyinfra_gpu.drift import libcuda as drift
from pyinfra_gpu.drift import libcuda_files as files
from pyinfra_gpu.drift.finding import Findings, Id
from pyinfra_gpu.engine import deadlines, proof, transaction
from pyinfra_gpu.engine.converge import Commands, converging, fresh
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import quoted, step
from pyinfra_gpu.packages import apt

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = drift.STAGE


@converging(drift, repairs=drift.LINKS)
def linked(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that the links to libcuda and the linker's cache lead to the driver's library.

    A link that belongs to a package comes back with its package; another one is made as
    `libcuda.so -> libcuda.so.1`. What somebody put in the way is kept under another name, said in
    the output. A library that is not the driver's and comes first in the cache fails this host.
    """
    # Packages first, links of ours second, the cache last, since it is made from both.
    wrong = list(drift.troubles(record))
    declared = found.of(Id.LIBCUDA_TOOLKIT_LINK_DIFFERS)
    ours = [drift.toolkit_link(spec)] if declared else []
    in_the_way = [path for path in (*wrong, *ours) if _is_in_the_way(record, path)]
    if in_the_way:
        what = f"look at what is at {', '.join(in_the_way)}"
        command = " && ".join(_set_aside(record, path) for path in in_the_way)
        yield step(STAGE, what, command, run_as=as_root(spec), seconds=deadlines.PLAIN, stream=True)
    if wrong:
        packages = [] if files.driver_files(record) else files.library_packages(record)
        yield FunctionCommand(_reinstall, (spec, wrong, packages), {})
    links = [_link(record, path) for path in wrong if path == files.path(record, files.DEV)]
    links += [quoted("ln", "-sfn", files.path(record, files.SONAME), path) for path in ours]
    yield step(
        STAGE,
        "update the linker's cache",
        _then(links),
        run_as=as_root(spec),
        seconds=deadlines.SERVICE,
    )


def _is_in_the_way(record: Record, path: str) -> bool:
    """Tell whether something is lost when a link is made there; a dangling link leads nowhere."""
    there = files.link(record, path)
    return there.kind != "absent" and not (there.kind == "link" and there.real is None)


def _set_aside(record: Record, path: str) -> str:
    """Return the shell command that keeps what stands at `path`, unless it is a package's link.

    ldconfig takes up whatever is named lib*.so*, so the name begins otherwise.
    """
    where, _, name = path.rpartition("/")
    kept = f"{quoted(f'{where}/before-pyinfra-gpu.{name}')}.$(date +%Y%m%d-%H%M%S)"
    owned = f"test -L {quoted(path)} && {apt.owners([path])} >/dev/null"
    move = f'kept={kept} && mv -T {quoted(path)} "$kept" && echo "what was there is kept as $kept"'
    return f"{{ {{ {owned}; }} || {{ {move}; }}; }}"


def _reinstall(
    state: State, host: Host, spec: HostSpec, paths: list[str], packages: list[str]
) -> bool:
    """Install the packages anew to which these paths belong, if there are any.

    + packages: more of them, whose files are all gone
    """
    owners = transaction.owners(state, host, spec, paths)
    return transaction.again(state, host, STAGE, spec, [*packages, *owners])


def _link(record: Record, path: str) -> str:
    """Return the shell command that makes libcuda.so, unless its package has brought it back.

    Some distributions' packages lead it through /etc/alternatives.
    """
    good = f"{files.SONAME}|/etc/alternatives/*"
    ours = quoted("ln", "-sfn", files.SONAME, path)
    soname = files.path(record, files.SONAME)
    target = f'"$(readlink -- {quoted(path)})"'
    same = f"test {quoted(path)} -ef {quoted(soname)}"
    return f"{{ case {target} in {good}) {same} ;; *) false ;; esac || {ours}; }}"


def _then(links: list[str]) -> str:
    """ldconfig makes libcuda.so.1 from the library's own name, so it runs before and after."""
    return " && ".join(["ldconfig", *links, *(["ldconfig"] if links else [])])


@converging(drift, repairs=drift.PROOF)
def proven(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that programs were seen to load the driver's library, as it is now.

    One program is linked with -lcuda, one opens libcuda.so.1; both must get the file whose version
    is the loaded module's. The proof is kept with library, links and cache.
    """
    del found
    record = fresh(spec, record)
    yield from proof.run(
        "libcuda",
        spec,
        record,
        "compile and run programs that load libcuda",
        drift.state(spec, record),
        version=str(record.driver.loaded),
        owned=spec.driver.source != "present",
        compiler="gcc",
    )
