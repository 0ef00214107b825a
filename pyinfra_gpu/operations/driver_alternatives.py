"""The names by which the driver is found: alternatives, and the module that modprobe loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra.api.command import FunctionCommand

from pyinfra_gpu.drift import driver_alternatives as drift
from pyinfra_gpu.drift.finding import Findings, Id
from pyinfra_gpu.engine import deadlines, transaction
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.converge import Commands, converging
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import failed, reason, step
from pyinfra_gpu.on_host import program

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = drift.STAGE


@converging(drift, repairs=drift.IDS)
def led(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that programs and modprobe find the declared driver by the names they know it by.

    + spec: the host's resolved specification

    A distribution's packages put drivers side by side: update-alternatives chooses whose libraries
    and programs are found, and which module `modprobe nvidia` loads. A choice that went elsewhere
    is made anew, with all the links that follow it; rules that somebody changed are kept under
    another name and come back with their package. A rule in a file of somebody's own fails this
    host.

    **Example:**

    .. code:: python

        driver_alternatives.led(name="Lead to the driver", spec=wanted)
    """
    leads = drift.leads(spec, record)
    for name, there in drift.wrong(spec, record).items():
        if there is None:
            yield FunctionCommand(_registered, (spec,), {})
            return
        yield step(
            STAGE,
            f"select {name} with update-alternatives",
            program("driver/choose_alternative.sh", name, leads[name], there.broken or ""),
            run_as=as_root(spec),
            seconds=deadlines.SERVICE,
        )
    if found.of(Id.DRIVER_MODULE_NAME_DIFFERS):
        yield FunctionCommand(_rules_back, (spec,), {})


def _registered(state: State, host: Host, spec: HostSpec) -> bool:
    """Install again what registers the groups."""
    names = ("nvidia-alternative", "glx-alternative-nvidia")
    return transaction.again(state, host, STAGE, spec, names)


def _rules_back(state: State, host: Host, spec: HostSpec) -> bool:
    """Keep what modprobe's rules are now under another name, and bring back their package's."""
    command = program("driver/set_rules_aside.sh", drift.RULES, uses=("files/set_aside.sh",))
    answer = ask(state, host, command, as_root(spec), seconds=deadlines.PLAIN)
    owners = transaction.owners(state, host, spec, answer.stdout[-1:]) if answer.ok else []
    if not owners:
        why = "they belong to no package" if answer.ok else reason(answer.lines)
        return failed(host, STAGE, f"{host.name}: the rules of {drift.RULES} are lost ({why})")
    return transaction.again(state, host, STAGE, spec, owners)
