"""One throwaway host as who breaks it sees it: its processes, and commands in it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from pyinfra_gpu_rehearsal.boot import FEWER_RIGHTS
from pyinfra_gpu_rehearsal.commands import last_line, run
from pyinfra_gpu_rehearsal.control_group import Group
from pyinfra_gpu_rehearsal.errors import LabError
from pyinfra_gpu_rehearsal.network import Subnet
from pyinfra_gpu_rehearsal.nvidia.machines import machine_named
from pyinfra_gpu_rehearsal.state import HostRecord

NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--time")
USERS = {"root": ("0", "/root"), "ubuntu": ("1000", "/home/ubuntu")}
SSH_PORT = 22
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class HostProcesses:
    """The processes of a throwaway host, whose power and faults are LabHost's."""

    user = "ubuntu"

    def __init__(self, record: HostRecord, *, subnet: Subnet, lab: Group, folder: Path) -> None:
        self.name = record.name
        self.last = record.last
        self.machine = machine_named(record.machine) if record.machine else None
        self.subnet = subnet
        self.address = subnet.address(record.last)
        self.port = SSH_PORT
        self.group = lab.sub(record.name)
        self.bridge = lab.sub("bridge")  # of the process that holds the lab's network
        self.folder = folder
        self.upper = folder / "up"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.address!r})"

    # -- processes

    @property
    def network_holder(self) -> Group:
        """The group of the process that holds the host's network namespace, on or off."""
        return self.group.sub("network")

    @property
    def power(self) -> Group:
        """The group of everything that runs while the host is on."""
        return self.group.sub("on")

    def pid(self) -> int | None:
        """Return this machine's id of the host's first process, None while it is off."""
        for folder in ("machine/init.scope", "machine"):
            for pid in self.power.sub(folder).processes():
                try:
                    status = Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue
                ids = next(line for line in status.splitlines() if line.startswith("NSpid:"))
                if ids.split()[-1] == "1" and "State:\tZ" not in status:
                    return pid
        return None

    def is_on(self) -> bool:
        """Tell whether the host has power, be it ready or still booting."""
        return self.power.populated()

    # -- commands

    def run(
        self, command: str, *, root: bool = True, check: bool = True, timeout: float = 300,
        stdin: str | Path | None = None,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """Run the shell COMMAND on the host without SSH and return what it printed.

        + root: as root, otherwise as the host's user.
        + timeout: seconds; the command is ended then.
        + stdin: what the command can read, a text or a file of this machine; None = nothing.

        Raises LabError where the host is off, the command fails (with check) or takes too long.
        """
        limit = ["timeout", "--kill-after=1", f"{timeout:g}"]
        home = USERS["root" if root else self.user][1]
        done = run(
            [*self._inside(root=root), *limit, "sh", "-c", f"cd {home}; {command}"],
            purpose=f"a command on {self.name}",
            stdin=stdin,
            timeout=timeout + 5,
            check=False,
        )
        if check and done.returncode != 0:
            late = done.returncode in (124, 137)
            said = f"no end after {timeout:g} s" if late else last_line(done.stderr or done.stdout)
            raise LabError(f"{self.name}: `{command}` failed (exit {done.returncode}): {said}")
        return done

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a program on the host as its user, and return it with pipes for what it says.

        It ends with the host's power at the latest.
        """
        command = [*self._inside(root=False), *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def _inside(self, *, root: bool) -> list[str]:
        """Return the words before a command that is to run on the host."""
        number, home = USERS["root" if root else self.user]
        user = [] if root else [f"--reuid={number}", f"--regid={number}", "--init-groups"]
        return [
            *self._nsenter(),
            "env", "-i", f"PATH={PATH}", f"HOME={home}", "LANG=C.UTF-8", "TERM=dumb",
            *FEWER_RIGHTS, *user,
        ]  # fmt: skip

    def put(self, source: Path, target: str) -> None:
        """Copy the file SOURCE to the host as TARGET, root's and readable by all."""
        self.run(f"cat >{target}", stdin=source)

    def enter(self, program: Path, *words: str, purpose: str) -> None:
        """Run the shell PROGRAM in the host's namespaces, with every right of this machine's root.

        + program: a file of this machine, which the host cannot see
        + words: its $1, $2 ...
        """
        shell = ["env", "-i", f"PATH={PATH}", "sh", "-c", program.read_text(), "sh", *words]
        run([*self._nsenter(), *shell], purpose=purpose)

    def _nsenter(self) -> list[str]:
        pid = self.pid()
        if pid is None:
            raise LabError(f"{self.name} is off: `pyinfra-gpu rehearsal power-on {self.name}`")
        return ["nsenter", f"--target={pid}", *NAMESPACES, "--"]

    def boot_id(self) -> str:
        """Return the id of the host's current boot."""
        return self.run("cat /proc/sys/kernel/random/boot_id").stdout.strip()

    def boot_age(self) -> float:
        """Return the seconds since the host was switched on."""
        return float(self.run("cat /proc/uptime").stdout.split()[0])

    def ssh_sessions(self, since: float | None = None) -> int:
        """Return how many SSH sessions were started in this boot.

        + since: count from this time on (seconds since the epoch), None = from the boot.
        """
        window = f" --since=@{since:.6f}" if since is not None else ""
        # By identifier: a session's own lines do not carry the name of sshd's unit.
        log = self.run(f"journalctl --sync; journalctl --quiet --output=cat -t sshd{window}").stdout
        return sum(line.startswith("Starting session") for line in log.splitlines())
