"""A run with nothing to do beside other tools that ask the same hosts for the same.

    .venv/bin/python benchmarks/compare.py [FOLDER]       1, 10, 25 hosts; 0 and 20 ms of delay


One throwaway host with two simulated GPUs is deployed, and the others stand on a snapshot of it. In
one run, and on the same hosts, take turns: paramiko with one trivial command, paramiko with our
probe, `pyinfra-gpu check`, `pyinfra -y deploy.py`, stock pyinfra, mitogen, and Ansible tuned
(pipelining, 25 forks) and as it comes. What the last four ask is in benchmarks/peers/knowledge.py
and .yml: packages, versions, links, modules, digests, services, repository, the files of torch. All
of them are to find nothing to do. Connections begin cold, and the quickest of ROUNDS counts; of
what takes longer than half a minute there is one round.

Peers come from the package index into FOLDER/peers, never into the project's environment. Each
result is kept in FOLDER/results.json: what is there is not measured again. The table goes to
standard output. The delay is of both directions together.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import look

from pyinfra_gpu.engine.transport import one_line
from pyinfra_gpu.facts.probe import asked_of
from pyinfra_gpu.on_host import probe_program
from pyinfra_gpu.spec import Paths
from pyinfra_gpu_rehearsal import Lab, LabHost

PROJECT = Path(__file__).resolve().parents[1]
PEERS = PROJECT / "benchmarks" / "peers"
MACHINE = "2x RTX 5090"
DEPLOYED = "deployed"
ROUNDS, LONG_S, MOST_S = 3, 30, 900
HOSTS, DELAYS = (1, 10, 25), (0, 20)  # milliseconds there and back
ANSIBLE = "ansible-core==2.19.*"  # mitogen 0.3 takes it
NAMES = {
    "floor": "SSH alone",
    "probe": "SSH with our probe",
    "check": "pyinfra-gpu check",
    "ours": "pyinfra -y deploy.py",
    "stock": "stock pyinfra",
    "mitogen": "mitogen",
    "tuned": "Ansible, tuned",
    "default": "Ansible, default",
}
TUNED = {"ANSIBLE_FORKS": "25", "ANSIBLE_PIPELINING": "1"}
Results = dict[str, list[float]]


def fleet(lab: Lab, count: int, folder: Path) -> list[LabHost]:
    """Return that many hosts that are on, all in the state that a deploy left the first in."""
    hosts = lab.up(count, machine=MACHINE)[:count]
    first = hosts[0]
    kept = first.folder / "snapshots" / DEPLOYED
    if not kept.exists():
        write_inventory(folder / "first.py", lab, 1)
        subprocess.run(ours(folder / "first.py"), cwd=PROJECT, env=environment(lab), check=True)
        lab.snapshot(first.name, DEPLOYED)
    for host in hosts[1:]:
        place = host.folder / "snapshots" / DEPLOYED
        if not place.exists():
            place.parent.mkdir(exist_ok=True)
            place.symlink_to(kept.absolute())
            lab.restore(host.name, DEPLOYED)
    return hosts


def delayed(host: LabHost, ms: int) -> None:
    """Delay what the host sends by that much, which needs the kernel's netem; 0: not at all."""
    rule = [*host.subnet.inside(host.name), "tc", "qdisc"]
    subprocess.run([*rule, "del", "dev", "eth0", "root"], capture_output=True, check=False)
    if ms:
        netem = ["netem", "delay", f"{ms}ms", "limit", "100000"]
        subprocess.run([*rule, "add", "dev", "eth0", "root", *netem], check=True)


def environment(lab: Lab) -> dict[str, str]:
    """Return what our own commands need to find these hosts."""
    return {
        **os.environ, "PYINFRA_GPU_REHEARSAL": str(lab.directory), "PYINFRA_PROGRESS": "off"
    }  # fmt: skip


def write_inventory(place: Path, lab: Lab, count: int) -> None:
    """Write an inventory of the first hosts, with all that the lab's own says of them."""
    whole = str(PROJECT / "inventories/rehearsal.py")
    place.write_text(f"import runpy\ngpu = runpy.run_path({whole!r})['gpu'][:{count}]\n")


def write_peers(place: Path, lab: Lab, hosts: Sequence[LabHost], text: str) -> None:
    """Write what the peers are told: inventories, and the comparison of torch's files."""
    key, known = str(lab.directory / "id_ed25519"), str(lab.directory / "known_hosts")
    reported = [
        {
            "name": host.name, "address": host.address, "port": host.port, "user": host.user,
            "key": key, "known_hosts": known,
        }
        for host in hosts
    ]  # fmt: skip
    probe = f"sudo /usr/bin/python3 -I -S -c {shlex.quote(text)}"
    for name, command in (("floor", "true"), ("probe", probe)):
        given = {"hosts": reported, "command": one_line(command)}
        (place / f"{name}.json").write_text(json.dumps(given))
    # The comparison of torch's files and little else: no driver, no checkout, no path of ours.
    paths = Paths(prefix="/opt/pyinfra-gpu", name="training")
    compared = probe_program("look", asked_of(paths, training="", entries=(), compare_s=10))
    rows, stock = {}, []
    for host in hosts:
        rows[host.name] = {
            "ansible_host": host.address, "ansible_port": host.port, "ansible_user": host.user,
            "ansible_ssh_private_key_file": key, "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={known}", "compared": compared,
        }  # fmt: skip
        data = {
            "ssh_hostname": host.address, "ssh_port": host.port, "ssh_user": host.user,
            "ssh_key": key, "ssh_known_hosts_file": known,
            "compared": shlex.join(["/usr/bin/python3", "-I", "-S", "-c", compared]),
        }  # fmt: skip
        stock.append((host.name, data))
    (place / "hosts.json").write_text(json.dumps({"all": {"hosts": rows}}))
    (place / "stock.py").write_text(f"hosts = {stock!r}\n")


def ours(inventory: Path) -> list[str]:
    """Return the command of our run."""
    return [str(Path(sys.executable).parent / "pyinfra"), "-y", str(inventory), "deploy.py"]


def command(name: str, place: Path, peers: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command of a tool, and what its environment has beside."""
    binary = Path(sys.executable).parent
    if name in ("floor", "probe"):
        return [sys.executable, str(PEERS / "floor.py"), str(place / f"{name}.json")], {}
    if name == "check":
        return [str(binary / "pyinfra-gpu"), "check", str(place / "ours.py")], {}
    if name == "ours":
        return ours(place / "ours.py"), {}
    if name == "stock":
        words = ["-y", str(place / "stock.py"), str(PEERS / "knowledge.py")]
        return [str(peers / "stock/bin/pyinfra"), *words], {}
    book = ["-i", str(place / "hosts.json"), str(PEERS / "knowledge.yml")]
    more = {"ANSIBLE_SSH_CONTROL_PATH_DIR": tempfile.mkdtemp(prefix="cp-", dir="/tmp")}
    if name != "default":
        more |= TUNED
    if name == "mitogen":
        (found,) = (peers / "ansible").glob("lib/python3*/site-packages/ansible_mitogen")
        more |= {
            "ANSIBLE_STRATEGY": "mitogen_linear",
            "ANSIBLE_STRATEGY_PLUGINS": str(found / "plugins/strategy"),
        }
    return [str(peers / "ansible/bin/ansible-playbook"), *book], more


def measured(name: str, place: Path, peers: Path, lab: Lab) -> list[float]:
    """Return the wall seconds of the quickest round, and the controller's processor seconds."""
    best = [float("inf"), 0.0]
    for _ in range(ROUNDS):
        words, more = command(name, place, peers)
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(
            words,
            cwd=PROJECT if name in ("check", "ours") else place,  # a tool reads what lies around it
            env={**environment(lab), **more},
            capture_output=True,
            text=True,
            timeout=MOST_S,
            check=False,
        )
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        text = done.stdout + done.stderr
        if done.returncode != 0 or "changed=1" in text or " changed " in text:
            sys.exit(f"{name} found something to do, or failed:\n{text[-4000:]}")
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        best = min(best, [wall, used])
        if wall > LONG_S:
            break
    return [round(each, 2) for each in best]


def ready_peers(folder: Path) -> str:
    """Install the peers where they are not there; return their versions."""
    reported = [f"Python {platform.python_version()}"]
    for name, packages in (("stock", ["pyinfra==3.10.0"]), ("ansible", [ANSIBLE, "mitogen"])):
        pip = [str(folder / name / "bin/python"), "-m", "pip", "--disable-pip-version-check"]
        if not (folder / name / "bin").exists():
            subprocess.run([sys.executable, "-m", "venv", folder / name], check=True)
            subprocess.run([*pip, "install", "-q", *packages], check=True)
        rows = subprocess.run([*pip, "freeze"], capture_output=True, text=True, check=True).stdout
        wanted = ("pyinfra==", "ansible-core==", "mitogen==")
        reported += [row.replace("==", " ") for row in rows.splitlines() if row.startswith(wanted)]
    return ", ".join(reported)


def table(results: Results) -> str:
    """Return all results as a table: wall seconds, and the controller's processor in brackets."""
    rows = []
    for delay in DELAYS:
        rows += [f"\n{delay} ms of delay\n", "| hosts | " + " | ".join(NAMES.values()) + " |"]
        rows.append("|---" * (len(NAMES) + 1) + "|")
        for count in HOSTS:
            cells = [results.get(f"{name} {delay} {count}") for name in NAMES]
            reported = [f"{cell[0]:.2f} ({cell[1]:.1f})" if cell else "" for cell in cells]
            rows.append(f"| {count} | " + " | ".join(reported) + " |")
    return "\n".join(rows)


def main(folder: Path) -> None:
    """Measure what is not known yet, and print the table."""
    folder.mkdir(parents=True, exist_ok=True)
    lab = Lab(folder / "lab", training=PROJECT / "examples/tiny-gpt")
    kept, peers = folder / "results.json", folder / "peers"
    results: Results = json.loads(kept.read_text()) if kept.exists() else {}
    versions = ready_peers(peers)
    os.environ["PYINFRA_GPU_REHEARSAL"] = str(lab.directory)
    try:
        for count in HOSTS:
            hosts = fleet(lab, count, folder)
            write_inventory(folder / "ours.py", lab, count)
            # The snapshot may be of an earlier state of the project.
            subprocess.run(ours(folder / "ours.py"), cwd=PROJECT, env=environment(lab), check=True)
            write_peers(folder, lab, hosts, look.look_texts()[hosts[0].name])
            for delay in DELAYS:
                for host in hosts:
                    delayed(host, delay)
                for name in NAMES:
                    key = f"{name} {delay} {count}"
                    if key not in results:
                        results[key] = measured(name, folder, peers, lab)
                        kept.write_text(json.dumps(results, indent=1))
    finally:
        lab.down()
    print(f"\n{platform.machine()}, {os.cpu_count()} cores for controller and hosts; {versions}")
    print(table(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PROJECT / ".rehearsal/compare")
