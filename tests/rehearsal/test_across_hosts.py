"""One step on two hosts together; and one of them is lost in the middle of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from running import ON_HOST, PATIENCE_S, Deployer, OnlySmoke

from pyinfra_gpu_rehearsal import Lab, LabHost
from tests.forked import Process
from tests.night import by_night

pytestmark = pytest.mark.rehearsal

PREFIX = "/opt/pyinfra-gpu"
STAMP = f"{PREFIX}/smoke/stamp.json"
VERDICT = f"{PREFIX}/state/across.json"
PASSED = "/root/passed-together"
ACROSS = ("--data", "smoke_across_hosts=cpu")
NAMES = ("gpu1", "gpu2")
CONNECT = ON_HOST / "connect.py"
SSH, MEETING = "22", "29400"
OF_THE_STEP = "pgrep -f '[s]moke_test.pyz|[t]orch.distributed.run'"
LIMITED = os.geteuid() == 0
"""A lab without root cannot have BPF."""
IN_ALL_REDUCE = f"grep -q all-reduce {VERDICT}.logs/rank*.jsonl"


Connected = dict[str, str]
"""Port of gpu1 -> what came of connecting to it during a step."""


@pytest.fixture(scope="module")
def first_time(
    proven: Callable[[str], LabHost], deployer: Deployer, lab: Lab
) -> tuple[OnlySmoke, Connected, Connected]:
    """Return what tests both hosts, which have passed together; and what came of connecting to all
    that listened on gpu1 then, from a third machine of the same network, and from gpu2.
    """
    for name in NAMES:
        proven(name)
    smoke = OnlySmoke(lab, deployer.folder, ACROSS)
    host, second = lab.host("gpu1"), lab.host("gpu2")
    second.put(CONNECT, "/root/connect.py")
    process = smoke.start()
    try:
        _wait_for_all_reduce(host, process)
        rows = [row.split() for row in host.run("ss -ltnH").stdout.splitlines()]
        ports = sorted({row[3].rpartition(":")[2] for row in rows})
        words = [host.subnet.address(host.last), *ports]
        command = [*host.subnet.inside(), sys.executable, "-I", str(CONNECT), *words]
        third = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        from_second = second.run(f"python3 /root/connect.py {' '.join(words)}").stdout
        output, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, output
    _keep(lab)
    return smoke, json.loads(third), json.loads(from_second)


@pytest.fixture(scope="module")
def together(first_time: tuple[OnlySmoke, Connected, Connected]) -> OnlySmoke:
    """Return what tests both hosts, which have passed together."""
    return first_time[0]


def _wait_for_all_reduce(host: LabHost, process: Process) -> None:
    limit = time.monotonic() + PATIENCE_S
    while host.run(IN_ALL_REDUCE, check=False).returncode != 0:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < limit
        time.sleep(0.1)


def _keep(lab: Lab) -> None:
    """Keep what both hosts noted now that they have passed together."""
    for name in NAMES:
        lab.host(name).run(
            f"rm -rf {PASSED} && mkdir {PASSED} && cp -a {PREFIX}/smoke {PREFIX}/state {PASSED}"
        )


def _as_passed(lab: Lab) -> None:
    """Give both hosts back what they noted when they passed together, without the step anew."""
    for name in NAMES:
        lab.host(name).run(f"rm -rf {PREFIX}/smoke {PREFIX}/state && cp -a {PASSED}/. {PREFIX}")


def _take_away(host: LabHost) -> None:
    """Make the host's own stamp one that says nothing of other hosts."""
    program = (
        "import json, sys; text = json.load(open(sys.argv[1])); text.pop('across', None);"
        " json.dump(text, open(sys.argv[1], 'w'))"
    )
    host.run(f'python3 -c "{program}" {STAMP}; rm -rf {VERDICT}*')


def _stamp(host: LabHost) -> dict[str, Any]:
    return dict(json.loads(host.run(f"cat {STAMP}").stdout))


def test_two_hosts_train_one_step_together_and_each_notes_both(
    together: OnlySmoke, lab: Lab
) -> None:
    for host in lab.hosts():
        verdict = json.loads(host.run(f"cat {VERDICT}").stdout)
        assert (verdict["status"], verdict["ranks"]) == ("pass", 4)
        assert _stamp(host)["across"] == verdict["hosts"] == [*NAMES]


def test_no_third_host_can_connect_to_the_step_and_its_hosts_can(
    first_time: tuple[OnlySmoke, Connected, Connected], lab: Lab
) -> None:
    _, third, second = first_time
    verdict = json.loads(lab.host("gpu1").run(f"cat {VERDICT}").stdout)
    assert verdict["others_kept_out"] is LIMITED
    # The network leads there, and something listens that only the step can be.
    assert third[SSH] == second[SSH] == "connected"
    of_step = {port for port, came in second.items() if came == "connected"} - {SSH}
    assert MEETING in of_step
    assert len(of_step) >= 2
    if LIMITED:
        assert {third[port] for port in of_step} == {"timed out"}


def test_a_test_of_one_host_listened_for_itself_alone(together: OnlySmoke, lab: Lab) -> None:
    for host in lab.hosts():
        verdict = json.loads(host.run(f"cat {PREFIX}/state/verdict.json").stdout)
        assert verdict["others_kept_out"] is LIMITED


def test_the_second_run_changes_nothing_through_one_channel_per_host(
    together: OnlySmoke, lab: Lab
) -> None:
    before = {host.name: host.ssh_sessions() for host in lab.hosts()}
    run = together.deploy()
    assert run.code == 0, run.output
    for host in lab.hosts():
        assert run.status(host.name) == "as declared"
        assert host.ssh_sessions() - before[host.name] == 1


def test_a_run_that_leaves_the_other_host_out_says_so_and_does_not_fail(
    together: OnlySmoke, lab: Lab
) -> None:
    _take_away(lab.host("gpu2"))
    run = together.deploy(limit="gpu2")
    assert run.code == 0, run.output
    assert "this run leaves gpu1 out" in " ".join(run.stage("gpu2", "smoke")["warnings"])
    _as_passed(lab)


def _lost_in_the_middle(together: OnlySmoke, lab: Lab, how: str) -> str:
    """Start the step, lose gpu2 in the middle, and return what was said."""
    host = lab.host("gpu2")
    _take_away(host)
    process = together.start()
    try:
        _wait_for_all_reduce(host, process)
        if how == "power":
            host.power_off()
        else:
            host.run("kill -9 $(pgrep -f '[-]-rank .*/across.json.logs' | tail -1)")
        output, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 1
    return " ".join(output.split())


def _nothing_left(host: LabHost, seconds: float) -> None:
    limit = time.monotonic() + seconds
    while host.run(OF_THE_STEP, check=False).returncode == 0:
        assert time.monotonic() < limit, host.run("ps ax").stdout
        time.sleep(0.5)


LOST = [
    ("power", "failed on gpu2: it was lost in the middle of the step"),
    ("kill", "the multi-node step failed on gpu2: S6.import: rank"),
]


@pytest.mark.parametrize(("how", "words"), by_night(LOST, ()))
def test_a_host_that_is_lost_in_the_middle_is_named_and_the_others_end(
    how: str, words: str, together: OnlySmoke, lab: Lab
) -> None:
    host = lab.host("gpu2")
    try:
        output = _lost_in_the_middle(together, lab, how)
        assert words in output
        assert "Traceback" not in output.split("Results:")[-1]
        _nothing_left(lab.host("gpu1"), 60)
        assert _stamp(lab.host("gpu1"))["across"] == []
    finally:
        if how == "power":
            host.power_on()
            host.wait_ready(PATIENCE_S)
    _nothing_left(host, 180)
    if how == "power":  # what is left behind is the most there
        together.converge()
        _keep(lab)  # a proof from before the last boot would be made anew
    else:
        _as_passed(lab)
    assert together.converge().changed("gpu1") == []
