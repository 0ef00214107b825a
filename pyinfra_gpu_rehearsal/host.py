"""One throwaway host: its processes, its power button, its faults and its GPUs."""

from __future__ import annotations

import secrets
import socket
import subprocess
import time
from pathlib import Path

from pyinfra_gpu_rehearsal import network
from pyinfra_gpu_rehearsal.commands import last_line, run, until
from pyinfra_gpu_rehearsal.control_group import Group
from pyinfra_gpu_rehearsal.errors import LabError
from pyinfra_gpu_rehearsal.nvidia.gpu import GpuControls
from pyinfra_gpu_rehearsal.nvidia.hardware import CONNECT_GPUS
from pyinfra_gpu_rehearsal.nvidia.machines import machine_named
from pyinfra_gpu_rehearsal.state import HostRecord

ON_HOST = Path(__file__).parent / "on_host"
NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--time")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# A host's root may do all that stays within the host, but not touch the real kernel or disks.
_TAKEN = "-sys_module,-sys_rawio,-sys_time,-mknod"
FEWER_RIGHTS = ("setpriv", f"--bounding-set={_TAKEN}", f"--inh-caps={_TAKEN}")


class LabHost:
    """A throwaway host. Made by Lab; its files below `upper` are all that it ever wrote."""

    user = "ubuntu"
    port = 22

    def __init__(
        self, record: HostRecord, *, subnet: network.Subnet, lab: Group, folder: Path
    ) -> None:
        self.name = record.name
        self.last = record.last
        self.machine = machine_named(record.machine) if record.machine else None
        self.subnet = subnet
        self.address = subnet.address(record.last)
        self.lab = lab
        self.group = lab.sub(record.name)
        self.bridge = lab.sub("bridge")  # of the process that holds the lab's network
        self.own_network = self.group.sub("network")  # the same of the host's, on or off
        self.power = self.group.sub("on")  # of everything that runs while the host is on
        self.folder = folder
        self.upper = folder / "up"
        self.console = folder / "console.log"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.address!r})"

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
        stdin: str | Path = "",
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """Run the shell COMMAND on the host without SSH and return what it printed.

        + root: as root, otherwise as the host's user.
        + timeout: seconds; the command is ended then.
        + stdin: what the command can read, a text or a file of this machine

        Raises LabError where the host is off, the command fails (with check) or takes too long.
        """
        limit = ["timeout", "--kill-after=1", f"{timeout:g}"]
        done = run(
            [*self._inside(root=root), *limit, "sh", "-c", f"cd; {command}"],
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
        home = "/root" if root else f"/home/{self.user}"
        user = [] if root else ["--reuid=1000", "--regid=1000", "--init-groups"]
        settings = [f"PATH={PATH}", f"HOME={home}", "LANG=C.UTF-8", "TERM=dumb"]
        return [*self._nsenter(), "env", "-i", *settings, *FEWER_RIGHTS, *user]

    def put(self, source: Path, target: str) -> None:
        """Copy the file SOURCE to the host as TARGET, root's and readable by all."""
        self.run(f"cat >{target}", stdin=source)

    def _nsenter(self) -> list[str]:
        pid = self.pid()
        if pid is None:
            raise LabError(f"{self.name} is off: `pyinfra-gpu rehearsal power-on {self.name}`")
        return ["nsenter", f"--target={pid}", *NAMESPACES, "--"]

    def boot_id(self) -> str:
        """Return the id of the host's current boot."""
        return self.run("cat /proc/sys/kernel/random/boot_id").stdout.strip()

    def ssh_sessions(self) -> int:
        """Return how many SSH sessions were started in this boot."""
        # By identifier: a session's own lines do not carry the name of sshd's unit.
        log = self.run("journalctl --sync; journalctl --quiet --output=cat -t sshd").stdout
        return sum(line.startswith("Starting session") for line in log.splitlines())

    @property
    def gpu(self) -> GpuControls:
        """The controls of its simulated GPUs. Raises LabError where it has none."""
        if self.machine is None:
            raise LabError(f"{self.name} has no simulated GPU")
        return GpuControls(self)

    # -- power

    def connect(self) -> None:
        """Make the host's network, which stays while the host is switched off and on."""
        network.connect(self.lab, self.subnet, self.name, self.last, self.own_network, self.console)

    def _holder(self, group: Group) -> int:
        return group.only_process(comm="sleep", purpose=f"finding the network of {self.name}")

    def power_on(self) -> None:
        """Switch the host on; nothing happens where it is on. Does not wait: wait_ready()."""
        if self.is_on():
            return
        self.power.remove()
        button: list[str | Path] = ["sh", ON_HOST / "button.sh", self.folder, self.power.path]
        self.power.sub("button").start(
            [*network.inside(self._holder(self.own_network)), *button, self.name, CONNECT_GPUS,
             *FEWER_RIGHTS],
            log=self.console,
            purpose=f"switching {self.name} on",
        )  # fmt: skip

    def power_off(self) -> None:
        """Cut the host's power: every process ends at once, nothing is told or written."""
        self.power.kill()

    def reboot(self) -> None:
        """Let the host reboot in good order and wait until it is ready again."""
        before = self.pid()
        self.run("systemctl --no-block reboot")
        until(lambda: self.pid() not in (before, None) or not self.is_on(), 120, every=0.02)
        if self.pid() in (before, None):
            raise LabError(f"{self.name} did not come back from its reboot")
        self.wait_ready()

    def wipe(self) -> None:
        """Take away every file the host ever wrote; it must be off.

        They are moved aside and removed in the background: a gigabyte takes seconds to remove.
        """
        trash = self.folder / "trash"
        trash.mkdir(parents=True, exist_ok=True)
        for folder in (self.upper, self.folder / "work"):
            if folder.exists():
                folder.rename(trash / secrets.token_hex(4))
            folder.mkdir()
            folder.chmod(0o755)
        command: list[str | Path] = ["sh", "-c", 'nice rm -rf -- "$1"/*', "sh", trash]
        self.group.sub("trash").start(command, log=self.console, purpose=f"emptying {self.name}")

    def wait_ready(self, timeout: float = 60) -> None:
        """Wait until the host has booted without a failed unit and answers SSH.

        Raises LabError after TIMEOUT seconds, or at once where the host does not boot.
        """
        deadline = time.monotonic() + timeout
        state = "off"
        while time.monotonic() < deadline:
            if not self.is_on():
                said = last_line(self.console.read_text(errors="replace"))
                raise LabError(f"{self.name} did not boot: {said}")
            state = self._system_state(deadline - time.monotonic())
            if state == "degraded":
                failed = self.run("systemctl --failed --plain --no-legend", check=False).stdout
                # The driver's own units do, while it is not loaded.
                if not (self.machine and all(u.startswith("nvidia-") for u in failed.splitlines())):
                    raise LabError(f"{self.name} booted with a failed unit: {failed.strip()}")
            if state in ("running", "degraded") and self._answers_ssh():
                return
            time.sleep(0.03)
        raise LabError(f"{self.name} was not ready after {timeout:g} s (its state: {state})")

    def _system_state(self, timeout: float) -> str:
        try:
            said = self.run("systemctl is-system-running --wait", check=False, timeout=timeout)
        except LabError:
            return "booting"
        return said.stdout.strip() or "booting"

    def _answers_ssh(self) -> bool:
        try:
            with socket.create_connection((self.address, self.port), timeout=1) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    # -- faults

    def network(self, what: str, ms: int = 0) -> None:
        """Break or restore the host's network.

        + what: "cut" (silence: no answer, no refusal), "restore", or "delay".
        + ms: with "delay", the milliseconds each packet takes in each direction.
        """
        purpose = f"changing the network of {self.name}"
        bridge, own = self._holder(self.bridge), self._holder(self.own_network)
        # Off the bridge, frames to and from the host are lost without a word.
        where = "nomaster" if what == "cut" else "master br0"
        network.ip_batch(bridge, f"link set {self.name} {where}", purpose=purpose)
        for holder, device in ((bridge, self.name), (own, "eth0")):
            rule = [*network.inside(holder), "tc", "qdisc"]
            root = ["dev", device, "root"]
            run([*rule, "del", *root], purpose="", check=False)  # there may be none
            if what == "delay":
                netem = ["netem", "delay", f"{ms}ms", "limit", "100000"]
                purpose = "delaying packets, which needs the kernel's netem,"
                run([*rule, "add", *root, *netem], purpose=purpose)

    def fill_disk(self) -> None:
        """Put a full file system under the host's /opt; what is there can still be read."""
        self._enter("fill_disk.sh")

    def free_disk(self) -> None:
        """Take the full file system away again."""
        self._enter("free_disk.sh")

    def _enter(self, program: str) -> None:
        """Run a shell PROGRAM in the host's namespaces, with every right of this machine's root."""
        text, purpose = (ON_HOST / program).read_text(), f"running {program} on {self.name}"
        run([*self._nsenter(), "env", "-i", f"PATH={PATH}", "sh", "-c", text], purpose=purpose)
