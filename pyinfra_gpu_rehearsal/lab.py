"""A lab: some throwaway hosts, their network and their services, in one folder of a project."""

from __future__ import annotations

import os
import secrets
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from pyinfra_gpu_rehearsal import control_group, network, own_layer, server
from pyinfra_gpu_rehearsal.base_image import BaseImage, archives_of, ensure_base_image
from pyinfra_gpu_rehearsal.commands import (
    LabError,
    Say,
    cache_folder,
    last_line,
    locked,
    point,
    remove_tree,
    until,
    write_atomically,
)
from pyinfra_gpu_rehearsal.control_group import Group, lab_group
from pyinfra_gpu_rehearsal.git_repository import publish
from pyinfra_gpu_rehearsal.host import LabHost
from pyinfra_gpu_rehearsal.network import Subnet
from pyinfra_gpu_rehearsal.nvidia.machines import machine_named
from pyinfra_gpu_rehearsal.nvidia.repository import NvidiaRepository
from pyinfra_gpu_rehearsal.requirements import available, ensure_packages, gpus_available
from pyinfra_gpu_rehearsal.wheelhouse import INDEX, ensure_wheels

NONE_UP = "no throwaway hosts are up: make them with `pyinfra-gpu rehearsal up 2`"
TRAINING = "git/training.git"  # the training repository, below what is served
RECORD = "lab.json"
_INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
_INOTIFY_WANTED = 8192  # a machine with systemd takes about 8, and the usual limit is 128 a user


class LabRecord(BaseModel):
    """A lab as written down, before what it names is made: a killed `up` leaves nothing unknown.

    + base: the base image on which the hosts' files lie
    + release: what runs on the hosts ("debian13"), "" = what runs on this machine
    + hosts: name -> the simulated machine that it is, "" = without GPU
    """

    model_config = ConfigDict(extra="forbid")
    lab_id: str = Field(default_factory=lambda: secrets.token_hex(4), pattern=r"^[0-9a-f]{8}$")
    subnet: int = 0
    base: str = ""
    release: str = ""
    hosts: dict[Annotated[str, Field(pattern=r"^gpu[1-9]\d*$")], str] = {}

    @classmethod
    def load(cls, directory: Path) -> LabRecord | None:
        """Read the record in DIRECTORY, None where there is none. Raises LabError."""
        path = directory / RECORD
        try:
            return cls.model_validate_json(path.read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, OSError) as error:
            raise LabError(
                f"{path} is not a record of throwaway hosts: remove {directory} and make new hosts"
                " with `pyinfra-gpu rehearsal up 2`"
            ) from error

    def save(self, directory: Path) -> None:
        """Write the record into DIRECTORY."""
        write_atomically(directory / RECORD, self.model_dump_json(indent=1) + "\n")

    @property
    def network(self) -> Subnet:
        """The lab's network."""
        return Subnet(self.lab_id, self.subnet)

    @property
    def group(self) -> Group:
        """The lab's control group."""
        return lab_group(self.lab_id)

    def unmake(self) -> None:
        """End and remove all of the lab but its files."""
        self.group.remove()
        self.network.remove()


class Lab:
    """The throwaway hosts that belong to one folder."""

    def __init__(
        self, directory: Path = Path(".rehearsal"), *, training: Path | None = None
    ) -> None:
        """Stand for the lab in DIRECTORY, which need not exist; nothing is made yet.

        + training: the folder served as a git repository; None = examples/tiny-gpt of the
          project DIRECTORY lies in.
        """
        self.shown_ssh_config = directory / own_layer.CONFIG  # as a person types it
        self.directory = directory.absolute()
        self.training = training or self.directory.parent / "examples/tiny-gpt"
        self.ssh_config = self.directory / own_layer.CONFIG
        self.www = self.directory / "www"

    # -- what is there

    def _record(self) -> LabRecord:
        record = LabRecord.load(self.directory)
        if record is None:
            raise LabError(NONE_UP)
        return record

    @property
    def url(self) -> str:
        """Where the hosts reach the lab's files."""
        return f"http://{self._record().network.address(network.SERVICES)}:{server.PORT}"

    @property
    def index_url(self) -> str:
        """The index of Python wheels."""
        return f"{self.url}/simple/"

    @property
    def git_url(self) -> str:
        """The training repository."""
        return f"{self.url}/{TRAINING}"

    @property
    def git_commit(self) -> str:
        """The one commit of the training repository."""
        try:
            return (self.www / TRAINING / "refs/heads/main").read_text().strip()
        except FileNotFoundError:
            reason = f"no training repository is served: {self.training} has no files"
            raise LabError(reason if self.directory.exists() else NONE_UP) from None

    @property
    def nvidia(self) -> NvidiaRepository:
        """The simulated repository of NVIDIA's; its hosts with a simulated GPU use it."""
        return NvidiaRepository(folder=self.directory / "nvidia", www=self.www, server=self.url)

    def all_hosts(self) -> list[LabHost]:
        """Return all hosts that were made, on or off, in the order in which they were."""
        record = LabRecord.load(self.directory)
        return [] if record is None else self._hosts(record)

    def hosts(self) -> list[LabHost]:
        """Return the hosts that are on."""
        return [host for host in self.all_hosts() if host.is_on()]

    def host(self, name: str) -> LabHost:
        """Return the host NAME, on or off. Raises LabError where there is none."""
        known = {host.name: host for host in self.all_hosts()}
        if not known:
            raise LabError(NONE_UP)
        if name not in known:
            raise LabError(f"there is no host {name!r}: there are {', '.join(known)}")
        return known[name]

    def _hosts(self, record: LabRecord) -> list[LabHost]:
        return [self._host(record, name) for name in record.hosts]

    def _host(self, record: LabRecord, name: str) -> LabHost:
        machine = machine_named(record.hosts[name]) if record.hosts[name] else None
        folder = self.directory / "hosts" / name
        return LabHost(name, machine, subnet=record.network, lab=record.group, folder=folder)

    # -- making and unmaking

    def up(
        self, count: int, *, machine: str = "", release: str = "", say: Say = print
    ) -> list[LabHost]:
        """Make sure that at least COUNT hosts, gpu1 ..., are on and ready; return all that are.

        + machine: what those that are made now are, e.g. "2x RTX 5090"; "": machines without GPU
        + release: what runs on all of them, a key of base_image.RELEASES; "" = what runs on those
          that are there, else this machine's own.

        Hosts that are on are left alone; one that is off is switched on and keeps its files.
        Leftovers of an `up` that was killed are removed first. Raises LabError where the machine
        cannot make hosts or one does not become ready.
        """
        if not 1 <= count <= network.MOST_HOSTS:
            raise LabError(f"{count} hosts cannot be made: 1 to {network.MOST_HOSTS} can")
        if machine:
            machine_named(machine)
        known = LabRecord.load(self.directory) or LabRecord()
        gpu = bool(machine) or any(known.hosts.values())
        if why := available() or (gpus_available() if gpu else None):
            raise LabError(why)
        if known.hosts and release not in ("", known.release):
            raise LabError(
                f"the hosts that are there run {known.release or 'what runs on this machine'}, not"
                f" {release}: `down` first, or make those in a folder of their own (--directory)"
            )
        release = release or known.release
        ensure_packages(say, gpu=gpu)
        image = ensure_base_image(archives_of(release), say)
        wheels = ensure_wheels(image.python, say) / INDEX
        with locked(control_group.LOCK):
            record = self._open()
            record.release = release
            if record.hosts and record.base != image.digest:
                raise LabError("the base image is a new one: `pyinfra-gpu rehearsal down` first")
            record.base = image.digest
            point(self.www / "simple", wheels)
            point(self.www / "debian", image.repository)
            if self.training.is_dir() and any(self.training.iterdir()):
                publish(self.training, self.www / TRAINING)
            elif not (self.www / TRAINING).exists():  # a caller may have served another folder
                say(f"{self.training} has no files: no training repository is served")
            if gpu:
                self.nvidia.ensure(image, say)
            self._make_hosts(record, image, count, machine, say)
            return self._hosts(record)

    def _open(self) -> LabRecord:
        """Return the lab's record, with its network and its file server on; new where it is new.

        Removed are labs whose own record is gone or is another lab's. One that cannot be
        understood is somebody's.
        """
        labs = control_group.labs()
        for lab_id, directory in labs.items():
            try:
                of_it = LabRecord.load(directory)
            except LabError:
                continue
            if of_it is None or of_it.lab_id != lab_id:
                LabRecord(lab_id=lab_id).unmake()
        record = LabRecord.load(self.directory)
        if record is None or labs.get(record.lab_id, self.directory) != self.directory:
            record = LabRecord()  # new, or a copy of another lab's folder
        files = record.group.sub("files")
        if files.populated() and network.link_exists(record.network.link):
            return record
        # Its machine may have been restarted: the hosts are off, and its network may be taken.
        record.unmake()
        record.subnet = network.choose_subnet()
        record.save(self.directory)
        control_group.claim(record.group, self.directory)
        if int(_INOTIFY.read_text()) < _INOTIFY_WANTED and os.access(_INOTIFY, os.W_OK):
            _INOTIFY.write_text(str(_INOTIFY_WANTED))  # it stays so
        record.network.start()
        self._serve(record, files)
        return record

    def _serve(self, record: LabRecord, files: Group) -> None:
        """Start the file server in the control group FILES."""
        self.www.mkdir(exist_ok=True)
        log, purpose = self.directory / "services.log", "starting the file server"
        log.write_text("")
        words: list[str | Path] = [sys.executable, "-I", Path(server.__file__), self.www]
        address = record.network.address(network.SERVICES)
        files.start([*record.network.inside(), *words, address], log=log, purpose=purpose)
        until(lambda: "ready" in log.read_text() or not files.populated(), 10)
        if "ready" not in (said := log.read_text(errors="replace")).splitlines():
            raise LabError(f"{purpose} failed: {last_line(said)}")

    def _make_hosts(
        self, record: LabRecord, image: BaseImage, count: int, machine: str, say: Say
    ) -> None:
        begun = time.monotonic()
        new = [name for n in range(count) if (name := f"gpu{n + 1}") not in record.hosts]
        for name in new:
            remove_tree(self.directory / "hosts" / name)  # of a lab of which this is a copy
        record.hosts |= dict.fromkeys(new, machine)
        record.save(self.directory)
        if machine and machine not in record.hosts.values():
            say(f"no host is new, so none became {machine!r}: `down` first, or ask for more hosts")
        hosts = self._hosts(record)
        started = [host for host in hosts if host.state() not in ("running", "degraded")]
        for host in started:
            if not host.is_on():  # else it boots, and who waited for it was killed
                self._start_host(host, image)
        own_layer.write_client_files(hosts, self.directory)
        with ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(LabHost.wait_ready, started))
        if started:
            names = ", ".join(f"{host.name} ({host.address})" for host in started)
            say(f"{names}: ready after {time.monotonic() - begun:.1f} s")

    def _start_host(self, host: LabHost, image: BaseImage) -> None:
        """Switch a host on, with the files that it wrote, where it was there before."""
        host.group.remove()
        for name in ("root", "up", "work"):
            (host.folder / name).mkdir(parents=True, exist_ok=True)
            (host.folder / name).chmod(0o755)
        # Modules of Python that hosts compiled: made by whoever owns the environment there.
        bytecode = cache_folder() / "bytecode"
        bytecode.mkdir(exist_ok=True)
        bytecode.chmod(0o1777)
        point(host.folder / "bytecode", bytecode)
        point(host.folder / "base", image.root)
        own_layer.write_identity(host, image, self.url, self.directory)
        if host.machine is not None:
            own_layer.write_machine(host, host.machine, image, self.nvidia.archive)
        host.subnet.connect(host.name, host.last)
        host.power_on()

    def fresh(self, name: str) -> LabHost:
        """Make the host NAME a bare machine again, and return it; its snapshots are kept."""
        host = self.host(name)
        host.fresh()
        return host

    def snapshot(self, name: str, snapshot: str) -> LabHost:
        """Keep what the host NAME, which is on, has on its disk as SNAPSHOT, and return it."""
        host = self.host(name)
        host.snapshot(snapshot)
        return host

    def restore(self, name: str, snapshot: str) -> LabHost:
        """Bring the host NAME, on or off, back to its SNAPSHOT, and return it."""
        host = self.host(name)
        host.restore(snapshot)
        return host

    def down(self, *, say: Say = print, files: bool = True) -> None:
        """Remove every host of this lab, its network, its services and its folder.

        + files: whether the folder is removed; it takes longer than all else
        """
        if not self.directory.exists():
            return
        record = LabRecord.load(self.directory)
        with locked(control_group.LOCK):
            if record is not None:
                record.unmake()
        if files:
            remove_tree(self.directory)
        count = len(record.hosts) if record else 0
        say(f"removed {count} throwaway hosts and {self.directory}")
