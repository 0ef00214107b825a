"""A lab: some throwaway hosts, their network and their services, in one folder of a project."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyinfra_gpu_rehearsal import access, control_group, network, server, snapshots
from pyinfra_gpu_rehearsal.base_image import BaseImage, archives_of, ensure_base_image
from pyinfra_gpu_rehearsal.commands import Say, point, remove_tree
from pyinfra_gpu_rehearsal.control_group import Group, lab_group
from pyinfra_gpu_rehearsal.errors import LabError
from pyinfra_gpu_rehearsal.git_repository import publish
from pyinfra_gpu_rehearsal.host import LabHost
from pyinfra_gpu_rehearsal.nvidia.machines import machine_named
from pyinfra_gpu_rehearsal.nvidia.repository import NvidiaRepository
from pyinfra_gpu_rehearsal.requirements import available, ensure_packages, gpus_available
from pyinfra_gpu_rehearsal.state import HostRecord, LabRecord, cache_folder, locked
from pyinfra_gpu_rehearsal.wheelhouse import index_for

NONE_UP = "no throwaway hosts are up: make them with `pyinfra-gpu rehearsal up 2`"
PATIENCE_S = 60  # a boot takes half a second; a busy machine may take long
_INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
_INOTIFY_WANTED = 8192  # a machine with systemd takes about 8, and the usual limit is 128 a user


class Lab:
    """The throwaway hosts that belong to one folder."""

    def __init__(
        self, directory: Path = Path(".rehearsal"), *, training: Path | None = None
    ) -> None:
        """Stand for the lab in DIRECTORY, which need not exist; nothing is made yet.

        + training: the folder served as a git repository; None = examples/tiny-gpt of the
          project DIRECTORY lies in.
        """
        self.shown_ssh_config = directory / access.CONFIG  # as a person types it
        self.directory = directory.absolute()
        self.training = training or self.directory.parent / "examples/tiny-gpt"
        self.ssh_config = self.directory / access.CONFIG
        self.www = self.directory / "www"

    # -- what is there

    @property
    def url(self) -> str:
        """Where the hosts reach the lab's files."""
        return f"http://{self._subnet(self._record()).address(network.SERVICES)}:{server.PORT}"

    @property
    def index_url(self) -> str:
        """The index of Python wheels."""
        return f"{self.url}/simple/"

    @property
    def git_url(self) -> str:
        """The training repository."""
        return f"{self.url}/git/{self._served().git_name}.git"

    @property
    def git_commit(self) -> str:
        """The one commit of the training repository."""
        return self._served().git_commit

    @property
    def nvidia(self) -> NvidiaRepository:
        """The simulated repository of NVIDIA's; its hosts with a simulated GPU use it."""
        return NvidiaRepository(folder=self.directory / "nvidia", www=self.www, server=self.url)

    def hosts(self) -> list[LabHost]:
        """Return the hosts that are on, in the order of their names' numbers."""
        return [host for host in self.all_hosts() if host.is_on()]

    def all_hosts(self) -> list[LabHost]:
        """Return all hosts that were made, on or off."""
        record = LabRecord.load(self.directory)
        return [] if record is None else self._all(record)

    def host(self, name: str) -> LabHost:
        """Return the host NAME, on or off. Raises LabError where there is none."""
        known = {host.name: host for host in self.all_hosts()}
        if not known:
            raise LabError(NONE_UP)
        if name not in known:
            raise LabError(f"there is no host {name!r}: there are {', '.join(known)}")
        return known[name]

    def _record(self) -> LabRecord:
        record = LabRecord.load(self.directory)
        if record is None:
            raise LabError(NONE_UP)
        return record

    def _served(self) -> LabRecord:
        record = self._record()
        if not record.git_commit:
            raise LabError(f"no training repository is served: {self.training} has no files")
        return record

    @staticmethod
    def _subnet(record: LabRecord) -> network.Subnet:
        return network.Subnet(lab_id=record.lab_id, number=record.subnet)

    @staticmethod
    def _group(record: LabRecord) -> Group:
        return lab_group(record.lab_id)

    def _host(self, record: LabRecord, host: HostRecord) -> LabHost:
        folder = self.directory / "hosts" / host.name
        return LabHost(host, subnet=self._subnet(record), lab=self._group(record), folder=folder)

    def _all(self, record: LabRecord) -> list[LabHost]:
        return [self._host(record, host) for host in record.hosts.values()]

    # -- making

    def up(
        self, count: int, *, machine: str | None = None, release: str = "", say: Say = print
    ) -> list[LabHost]:
        """Make sure that at least COUNT hosts, gpu1 ..., are on and ready; return all that are.

        + machine: what those that are made now are, a key of nvidia.machines.MACHINES; None =
          machines without GPU.
        + release: what runs on all of them, a key of base_image.RELEASES; "" = what runs on those
          that are there, else this machine's own.

        Hosts that are on are left alone; one that is off is switched on and keeps its files.
        Leftovers of an `up` that was killed are removed first. Raises LabError where the machine
        cannot make hosts or one does not become ready.
        """
        if not 1 <= count <= network.MOST_HOSTS:
            raise LabError(f"{count} hosts cannot be made: 1 to {network.MOST_HOSTS} can")
        if machine is not None:
            machine_named(machine)
        if why := available() or (gpus_available() if machine else None):
            raise LabError(why)
        known = LabRecord.load(self.directory)
        gpu = machine is not None or any(h.machine for h in (known.hosts.values() if known else ()))
        release = known.release_of(release) if known else release
        ensure_packages(say, gpu=gpu)
        image = ensure_base_image(archives_of(release), say)
        wheels = index_for(image.python, say, needed=not release)
        with locked(control_group.LOCK):
            record = self._open()
            record.release = release
            if record.base != image.digest:
                self._forget_hosts(record, image, say)
            point(self.www / "simple", wheels)
            point(self.www / "debian", image.repository)
            self._publish(record, say)
            if gpu:
                self.nvidia.ensure(image, say)
            self._make_hosts(record, image, count, machine or "", say)
            return self._all(record)

    def _open(self) -> LabRecord:
        """Return the lab's record, with its network and its file server on; new where it is new.

        Removed are labs whose folder is gone.
        """
        for orphan in control_group.orphans():
            network.remove(lab_group(orphan), network.Subnet(lab_id=orphan, number=0))
        known, record = control_group.labs(), LabRecord.load(self.directory)
        if record and known.get(record.lab_id, self.directory) != self.directory:
            record = None  # a copy of another lab's folder
        if record and network.is_on(self._group(record), self._subnet(record)):
            return record
        # Its machine may have been restarted: the hosts are off, and its network may be taken.
        record = record or LabRecord()
        network.remove(self._group(record), self._subnet(record))
        record.subnet = network.choose_subnet(network.networks_of_machine())
        record.save(self.directory)
        control_group.claim(self._group(record), self.directory)
        if int(_INOTIFY.read_text()) < _INOTIFY_WANTED and os.access(_INOTIFY, os.W_OK):
            _INOTIFY.write_text(str(_INOTIFY_WANTED))  # it stays so
        self.www.mkdir(exist_ok=True)
        log = self.directory / "services.log"
        network.start(self._group(record), self._subnet(record), self.www, log)
        return record

    def _forget_hosts(self, record: LabRecord, image: BaseImage, say: Say) -> None:
        """Remove hosts whose files lie on another base image than IMAGE."""
        if record.hosts:
            say(f"the base image is a new one: making {', '.join(record.hosts)} anew")
        for host in self._all(record):
            host.group.remove()
            remove_tree(host.folder)
        record.hosts.clear()
        record.base = image.digest
        record.save(self.directory)

    def _publish(self, record: LabRecord, say: Say) -> None:
        """Serve the training folder as a git repository, where it has files."""
        if self.training.is_dir() and any(self.training.iterdir()):
            record.git_name = self.training.name
            bare = self.www / "git" / f"{record.git_name}.git"
            record.git_commit = publish(self.training, bare)
            record.save(self.directory)
        elif not record.git_commit:  # else made by a caller who served another folder
            say(f"{self.training} has no files: no training repository is served")

    def _make_hosts(
        self, record: LabRecord, image: BaseImage, count: int, machine: str, say: Say
    ) -> None:
        names = [f"gpu{number}" for number in range(1, count + 1)]
        started: list[LabHost] = []
        begun = time.monotonic()
        for name in dict.fromkeys([*names, *record.hosts]):
            known = record.hosts.get(name)
            if not (known and known.made and self._host(record, known).is_on()):
                started.append(self._start_host(record, image, name, machine))
        access.write_client_files(self._all(record), self.directory)
        with ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(lambda host: host.wait_ready(PATIENCE_S), started))
        for host in started:
            record.hosts[host.name].made = True
        record.save(self.directory)
        if machine and machine not in {known.machine for known in record.hosts.values()}:
            say(f"no host is new, so none became {machine!r}: `down` first, or ask for more hosts")
        if started:
            names_up = ", ".join(f"{host.name} ({host.address})" for host in started)
            say(f"{names_up}: ready after {time.monotonic() - begun:.1f} s")

    def _start_host(self, record: LabRecord, image: BaseImage, name: str, machine: str) -> LabHost:
        """Switch on the host NAME, made anew where it never was ready, as a new one a MACHINE."""
        known = record.hosts.get(name)
        if known is None:
            last = network.FIRST_HOST + int(name.removeprefix("gpu")) - 1
            known = record.hosts[name] = HostRecord(name=name, last=last, machine=machine)
            record.save(self.directory)
        host = self._host(record, known)
        host.group.remove()
        if not known.made:
            remove_tree(host.folder)
            for folder in ("root", "up", "work"):
                (host.folder / folder).mkdir(parents=True)
                (host.folder / folder).chmod(0o755)
        # Modules of Python that hosts compiled: made by whoever owns the environment there.
        bytecode = cache_folder() / "bytecode"
        bytecode.mkdir(exist_ok=True)
        bytecode.chmod(0o1777)
        point(host.folder / "bytecode", bytecode)
        point(host.folder / "base", image.root)
        access.write_identity(host, image, self.url, self.directory)
        if host.machine is not None:
            access.write_machine(host, image, self.nvidia)
        host.connect()
        host.power_on()
        return host

    # -- changing and unmaking

    def fresh(self, name: str) -> LabHost:
        """Make the host NAME a bare machine again: power cut, all its files gone, booted.

        Its snapshots are kept.
        """
        host = self.host(name)
        host.power_off()
        host.wipe()
        snapshots.leave(host)
        return self._switched_on(host)

    def snapshot(self, name: str, snapshot: str) -> LabHost:
        """Keep what the host NAME, which is on, has on its disk as its snapshot SNAPSHOT.

        + snapshot: small letters, digits and hyphens

        Its power is cut for that and switched on again. Raises LabError where it is off, or where
        it has such a snapshot or cannot have it.
        """
        host = self.host(name)
        snapshots.take(host, snapshot)
        return self._switched_on(host)

    def restore(self, name: str, snapshot: str) -> LabHost:
        """Bring the host NAME, on or off, back to its snapshot SNAPSHOT, and switch it on.

        Raises LabError where it has no such snapshot.
        """
        host = self.host(name)
        snapshots.restore(host, snapshot)
        return self._switched_on(host)

    @staticmethod
    def _switched_on(host: LabHost) -> LabHost:
        host.power_on()
        host.wait_ready(PATIENCE_S)
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
                network.remove(self._group(record), self._subnet(record))
        if files:
            remove_tree(self.directory)
        count = len(record.hosts) if record else 0
        say(f"removed {count} throwaway hosts and {self.directory}")
