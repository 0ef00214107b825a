"""One throwaway host: its processes, its power, its snapshots and its faults."""

from __future__ import annotations

import re
import secrets
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from pyinfra_gpu_rehearsal.commands import LabError, empty_folder, last_line, run, until
from pyinfra_gpu_rehearsal.control_group import Group
from pyinfra_gpu_rehearsal.network import FIRST_HOST, Subnet
from pyinfra_gpu_rehearsal.nvidia.machines import Machine

ON_HOST = Path(__file__).parent / "on_host"
CONNECT_GPUS = Path(__file__).parent / "nvidia/on_host/connect_gpus.sh"
NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--time")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# A host's root may do all that stays within the host, but not touch the real kernel or disks.
_TAKEN = "-sys_module,-sys_rawio,-sys_time,-mknod"
FEWER_RIGHTS = ("setpriv", f"--bounding-set={_TAKEN}", f"--inh-caps={_TAKEN}")
PATIENCE_S = 60  # a boot takes half a second; a busy machine may take long
# In a host's folder and in those of its snapshots: the layers below what it writes, each with a
# colon, and the boot that it goes on with. on_host/boot.sh reads them, the second for one boot.
LOWER, BOOT_ID = "lower", "boot_id"


class LabHost:
    """A throwaway host. Made by Lab; its files below `upper` are all that it wrote lately.

    Its files are an overlay: the base image and its own identity below, then its snapshots, and
    what it writes on top. To take a snapshot moves the top into the folder of the snapshot and
    begins an empty one; to restore throws the top away. Both take as long as a boot does.
    """

    user = "ubuntu"
    port = 22

    def __init__(
        self, name: str, machine: Machine | None, *, subnet: Subnet, lab: Group, folder: Path
    ) -> None:
        self.name = name
        self.machine = machine
        self.subnet = subnet
        self.last = FIRST_HOST + int(name.removeprefix("gpu")) - 1
        self.address = subnet.address(self.last)
        self.group = lab.sub(name)
        self.power = self.group.sub("on")  # of everything that runs while the host is on
        self.folder = folder
        self.upper = folder / "up"
        self.console = folder / "console.log"

    def is_on(self) -> bool:
        """Tell whether the host has power, be it ready or still booting."""
        return self.power.populated()

    def state(self) -> str:
        """Return what systemd says of the host: "running", "degraded" ...; "off" while it is."""
        with suppress(LabError):
            return self.run("systemctl is-system-running", check=False).stdout.strip() or "booting"
        return "booting" if self.is_on() else "off"

    def pid(self) -> int | None:
        """Return this machine's id of the host's first process, None while it is off."""
        with suppress(OSError, ValueError):  # it is just being written
            if self.is_on():
                return int((self.folder / "pid").read_text())
        return None

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
        pid = self.pid()
        if pid is None:
            raise LabError(f"{self.name} is off: `pyinfra-gpu rehearsal up` switches it on")
        home = "/root" if root else f"/home/{self.user}"
        user = [] if root else ["--reuid=1000", "--regid=1000", "--init-groups"]
        settings = [f"PATH={PATH}", f"HOME={home}", "LANG=C.UTF-8", "TERM=dumb"]
        done = run(
            ["nsenter", f"--target={pid}", *NAMESPACES, "--", "env", "-i", *settings,
             *FEWER_RIGHTS, *user, "timeout", "--kill-after=1", f"{timeout:g}",
             "sh", "-c", f"cd; {command}"],
            purpose=f"a command on {self.name}",
            stdin=stdin,
            timeout=timeout + 5,
            check=False,
        )  # fmt: skip
        if check and done.returncode != 0:
            late = done.returncode in (124, 137)
            said = f"no end after {timeout:g} s" if late else last_line(done.stderr or done.stdout)
            raise LabError(f"{self.name}: `{command}` failed (exit {done.returncode}): {said}")
        return done

    def put(self, source: Path, target: str) -> None:
        """Copy the file SOURCE to the host as TARGET, root's and readable by all."""
        self.run(f"cat >{target}", stdin=source)

    def boot_id(self) -> str:
        """Return the id of the host's current boot."""
        return self.run("cat /proc/sys/kernel/random/boot_id").stdout.strip()

    def ssh_sessions(self) -> int:
        """Return how many SSH sessions were started in this boot."""
        # By identifier: a session's own lines do not carry the name of sshd's unit.
        log = self.run("journalctl --sync; journalctl --quiet --output=cat -t sshd").stdout
        return sum(line.startswith("Starting session") for line in log.splitlines())

    # -- power

    def power_on(self) -> None:
        """Switch the host on; nothing happens where it is on. Does not wait: wait_ready()."""
        if self.is_on():
            return
        self.power.remove()
        (self.folder / "pid").unlink(missing_ok=True)
        button: list[str | Path] = ["sh", ON_HOST / "button.sh", self.folder, self.power.path]
        self.power.sub("button").start(
            [*self.subnet.inside(self.name), *button, self.name, CONNECT_GPUS, *FEWER_RIGHTS],
            log=self.console,
            purpose=f"switching {self.name} on",
        )

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

    def wait_ready(self, timeout: float = PATIENCE_S) -> None:
        """Wait until the host has booted, sshd and all, without a failed unit.

        Raises LabError after TIMEOUT seconds, or at once where the host does not boot.
        """
        state = "booting"

        def ready() -> bool:
            nonlocal state
            if not self.is_on():
                said = last_line(self.console.read_text(errors="replace"))
                raise LabError(f"{self.name} did not boot: {said}")
            with suppress(LabError):  # it has no first process yet
                asked = self.run("systemctl is-system-running --wait", check=False, timeout=timeout)
                state = asked.stdout.strip() or "booting"
            return state in ("running", "degraded")

        if not until(ready, timeout, every=0.03):
            raise LabError(f"{self.name} was not ready after {timeout:g} s (its state: {state})")
        if state == "degraded":
            failed = self.run("systemctl --failed --plain --no-legend", check=False).stdout
            # The driver's own units do, while it is not loaded.
            if not (self.machine and all(u.startswith("nvidia-") for u in failed.splitlines())):
                raise LabError(f"{self.name} booted with a failed unit: {failed.strip()}")

    # -- its files: each of these cuts its power and switches it on again

    def _wipe(self) -> None:
        """Take away what the host wrote since its last snapshot, and leave it off.

        The files are moved aside and removed in the background: a gigabyte takes seconds.
        """
        self.power_off()
        trash = self.folder / "trash"
        trash.mkdir(parents=True, exist_ok=True)
        for folder in (self.upper, self.folder / "work"):
            if folder.exists():
                folder.rename(trash / secrets.token_hex(4))
            empty_folder(folder)
        command: list[str | Path] = ["sh", "-c", 'nice rm -rf -- "$1"/*', "sh", trash]
        self.group.sub("trash").start(command, log=self.console, purpose=f"emptying {self.name}")

    def fresh(self) -> None:
        """Make it a bare machine again: all its files gone; its snapshots are kept."""
        self._wipe()
        for name in (LOWER, BOOT_ID):
            (self.folder / name).unlink(missing_ok=True)
        self.power_on()
        self.wait_ready()

    def snapshots(self) -> list[str]:
        """Return the names of its snapshots."""
        return sorted(path.parent.name for path in (self.folder / "snapshots").glob(f"*/{LOWER}"))

    def snapshot(self, snapshot: str) -> None:
        """Keep the files of the host, which is on, as its snapshot SNAPSHOT.

        What it holds in memory is not kept: its services start as after a boot. Its boot id is,
        so that what was proven in this boot still holds. Raises LabError where the host is off or
        cannot have a snapshot of that name: it does not fit, or is taken.
        """
        if re.fullmatch(r"[a-z0-9][a-z0-9-]*", snapshot) is None:
            form = "use small letters, digits and -"
            raise LabError(f"a snapshot cannot be called {snapshot!r}: {form}")
        if snapshot in self.snapshots():
            raise LabError(f"{self.name} has a snapshot {snapshot!r} already")
        boot_id = self.boot_id()
        self.power_off()
        folder, before = self.folder / "snapshots" / snapshot, self.folder / LOWER
        empty_folder(folder)  # it may have been begun and killed
        (folder / BOOT_ID).write_text(f"{boot_id}\n")
        self.upper.rename(folder / "up")
        layers = before.read_text() if before.exists() else ""
        (folder / LOWER).write_text(f"snapshots/{snapshot}/up:{layers}")
        self.restore(snapshot)

    def restore(self, snapshot: str) -> None:
        """Bring the host, on or off, back to the files that it had in its snapshot SNAPSHOT.

        Raises LabError where it has no such snapshot.
        """
        known = self.snapshots()
        if snapshot not in known:
            have = f"it has {', '.join(known)}" if known else "it has none"
            raise LabError(f"{self.name} has no snapshot {snapshot!r}: {have}")
        self._wipe()
        for part in (LOWER, BOOT_ID):
            shutil.copyfile(self.folder / "snapshots" / snapshot / part, self.folder / part)
        self.power_on()
        self.wait_ready()

    # -- faults

    def network(self, what: str) -> None:
        """Break or restore the host's network: "cut" (no answer, no refusal) or "restore"."""
        self.subnet.cut(self.name, off=what == "cut")

    def fill_disk(self) -> None:
        """Put a full file system under the host's /opt; what is there can still be read."""
        self.run((ON_HOST / "fill_disk.sh").read_text())

    def free_disk(self) -> None:
        """Take the full file system away again."""
        self.run((ON_HOST / "free_disk.sh").read_text())
