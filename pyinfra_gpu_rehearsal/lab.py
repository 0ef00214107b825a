"""A lab: some throwaway hosts, their network and their services, in one folder of a project."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from pyinfra_gpu_rehearsal import access, network, placing, server, services, snapshots
from pyinfra_gpu_rehearsal.aptconfig import of_release, read_machine
from pyinfra_gpu_rehearsal.base_image import BaseImage, Say, ensure_base_image
from pyinfra_gpu_rehearsal.commands import point, remove_tree
from pyinfra_gpu_rehearsal.control_group import Group
from pyinfra_gpu_rehearsal.errors import LabError
from pyinfra_gpu_rehearsal.git_repository import publish
from pyinfra_gpu_rehearsal.host import LabHost
from pyinfra_gpu_rehearsal.nvidia.hardware import write_hardware
from pyinfra_gpu_rehearsal.nvidia.machines import machine_named
from pyinfra_gpu_rehearsal.nvidia.repository import NvidiaRepository
from pyinfra_gpu_rehearsal.placing import lab_place
from pyinfra_gpu_rehearsal.requirements import available, ensure_packages
from pyinfra_gpu_rehearsal.state import (
    HostRecord,
    LabRecord,
    bytecode_folder,
    locked,
    new_lab_id,
)
from pyinfra_gpu_rehearsal.wheelhouse import index_for

NONE_UP = "no throwaway hosts are up: make them with `pyinfra-gpu rehearsal up 2`"
PATIENCE_S = 60  # a boot takes half a second; a busy machine may take long


class Lab:
    """The throwaway hosts that belong to one folder."""

    def __init__(
        self, directory: Path = Path(".rehearsal"), *, training: Path | None = None
    ) -> None:
        """Stand for the lab in DIRECTORY, which need not exist; nothing is made yet.

        + training: the folder served as a git repository; None = examples/tiny-gpt of the
          project DIRECTORY lies in.
        """
        self.directory = directory.absolute()
        self.training = training or self.directory.parent / "examples/tiny-gpt"

    # -- what is there

    @property
    def ssh_config(self) -> Path:
        """The SSH client configuration that names the hosts."""
        return self.directory / "ssh_config"

    @property
    def shown_ssh_config(self) -> Path:
        """The same as a person types it: from the current folder, where it lies below that."""
        here = Path.cwd()
        inside = self.ssh_config.is_relative_to(here)
        return self.ssh_config.relative_to(here) if inside else self.ssh_config

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
        return NvidiaRepository(
            folder=self.directory / "nvidia", www=self.directory / "www", server=self.url
        )

    def hosts(self) -> list[LabHost]:
        """Return the hosts that are on, in the order of their names' numbers."""
        record = LabRecord.load(self.directory)
        if record is None:
            return []
        return [host for host in self._all(record) if host.is_on()]

    def all_hosts(self) -> list[LabHost]:
        """Return all hosts that were made, on or off."""
        record = LabRecord.load(self.directory)
        return [] if record is None else self._all(record)

    def host(self, name: str) -> LabHost:
        """Return the host NAME, on or off. Raises LabError where there is none."""
        known = self.all_hosts()
        if not known:
            raise LabError(NONE_UP)
        for host in known:
            if host.name == name:
                return host
        raise LabError(f"there is no host {name!r}: there are {', '.join(h.name for h in known)}")

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

    def _subnet(self, record: LabRecord) -> network.Subnet:
        return network.Subnet(lab_id=record.lab_id, number=record.subnet)

    @staticmethod
    def _group(record: LabRecord) -> Group:
        return Group(Path(record.group))

    def _host(self, record: LabRecord, host: HostRecord) -> LabHost:
        return LabHost(
            host,
            subnet=self._subnet(record),
            lab=self._group(record),
            folder=self.directory / "hosts" / host.name,
        )

    def _all(self, record: LabRecord) -> list[LabHost]:
        return [self._host(record, host) for host in record.hosts.values()]

    # -- making

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with locked(self.directory / "lock"):
            yield

    def up(
        self, count: int, *, machine: str | None = None, release: str = "", say: Say = print
    ) -> list[LabHost]:
        """Make sure that at least COUNT hosts, gpu1 ..., are on and ready; return all that are.

        + machine: what those that are made now are, a key of nvidia.machines.MACHINES; None =
          machines without GPU.
        + release: what runs on all of them, a key of aptconfig.RELEASES; "" = what runs on those
          that are there, else this machine's own.

        Hosts that are on are left alone; one that is off is switched on and keeps its files.
        Leftovers of an `up` that was killed are removed first. Raises LabError where the machine
        cannot make hosts or one does not become ready.
        """
        if not 1 <= count <= network.MOST_HOSTS:
            raise LabError(f"{count} hosts cannot be made: 1 to {network.MOST_HOSTS} can")
        why = available()
        if why is not None:
            raise LabError(why)
        if machine is not None:
            machine_named(machine)
        known = LabRecord.load(self.directory)
        gpu = machine is not None or any(h.machine for h in (known.hosts.values() if known else ()))
        release = known.release_of(release) if known else release
        ensure_packages(say, gpu=gpu)
        image = ensure_base_image(of_release(read_machine(), release), say)
        wheels = index_for(image.python, say, needed=not release)
        with self._locked():
            record = self._open()
            record.release = release
            if record.base != image.digest:
                self._forget_hosts(record, image, say)
            www = self.directory / "www"
            point(www / "simple", wheels)
            point(www / "debian", image.repository)
            self._publish(record, www, say)
            if gpu:
                self.nvidia.ensure(image, say)
            self._make_hosts(record, image, count, machine or "", say)
            return self._all(record)

    def _open(self) -> LabRecord:
        """Return the lab's record, with its network and its file server on; new where it is new."""
        with locked(placing.LOCK):
            for orphan in placing.orphans():
                services.remove(orphan, lab_place(orphan))
            known, record = placing.labs(), LabRecord.load(self.directory)
            if record and known.get(record.lab_id, self.directory) != self.directory:
                record = None  # a copy of another lab's folder
            if record and record.lab_id in known:
                group, subnet = self._group(record), self._subnet(record)
                if services.are_there(group, subnet):
                    return record
            if record is None:
                record = LabRecord(lab_id=new_lab_id(), subnet=0, group="")
            # Its machine may have been restarted: the hosts are off, and its network may be taken.
            place = lab_place(record.lab_id)
            services.remove(record.lab_id, place)
            record.group = str(place)
            record.subnet = network.choose_subnet(network.networks_of_machine())
            record.save(self.directory)
            placing.claim(place, self.directory)
            placing.raise_inotify()
            www = self.directory / "www"
            www.mkdir(exist_ok=True)
            log = self.directory / "services.log"
            services.start(self._group(record), self._subnet(record), www, log)
        return record

    def _forget_hosts(self, record: LabRecord, image: BaseImage, say: Say) -> None:
        """Remove hosts whose files lie on another base image than IMAGE."""
        if record.hosts:
            say(f"the base image is a new one: making {', '.join(record.hosts)} anew")
        for host in self._all(record):
            self._remove_host(host)
        record.hosts.clear()
        record.base = image.digest
        record.save(self.directory)

    def _publish(self, record: LabRecord, www: Path, say: Say) -> None:
        """Serve the training folder as a git repository, where it has files."""
        name = commit = ""
        if self.training.is_dir() and any(self.training.iterdir()):
            name = self.training.name
            commit = publish(self.training, www / "git" / f"{name}.git")
        elif record.git_commit:
            return  # made by a caller who served another folder: leave it as it is
        else:
            say(f"{self.training} has no files: no training repository is served")
        if (name, commit) != (record.git_name, record.git_commit):
            record.git_name, record.git_commit = name, commit
            record.save(self.directory)

    def _make_hosts(
        self, record: LabRecord, image: BaseImage, count: int, machine: str, say: Say
    ) -> None:
        names = [f"gpu{number}" for number in range(1, count + 1)]
        wanted = [*names, *(name for name in record.hosts if name not in names)]
        started: list[LabHost] = []
        begun = time.monotonic()
        for name in wanted:
            known = record.hosts.get(name)
            if known and known.made and self._host(record, known).is_on():
                continue
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
        point(host.folder / "base", image.root)
        point(host.folder / "bytecode", bytecode_folder())
        repository = f"http://{host.subnet.address(network.SERVICES)}:{server.PORT}/debian"
        access.write_identity(host, image, repository, self.directory)
        if host.machine is not None:
            access.write_machine(host, image, self.nvidia)
        host.connect()
        host.power_on()
        return host

    # -- unmaking

    def fresh(self, name: str) -> LabHost:
        """Make the host NAME a bare machine again: power cut, all its files gone, booted.

        Its snapshots are kept.
        """
        host = self.host(name)
        host.power_off()
        host.wipe()
        snapshots.leave(host)
        if host.machine is not None:
            write_hardware(host.machine, host.folder / "hardware")
        return self._switched_on(host)

    def snapshot(self, name: str, snapshot: str) -> LabHost:
        """Keep what the host NAME, which is on, has on its disk as its snapshot SNAPSHOT.

        + snapshot: small letters, digits and hyphens

        Its power is cut for that and switched on again. Raises LabError where it is off, or where
        it has such a snapshot or cannot have it.
        """
        host = self.host(name)
        snapshots.check_new(host, snapshot)
        boot_id = host.boot_id()
        host.power_off()
        snapshots.take(host, snapshot, boot_id)
        return self._switched_on(host)

    def restore(self, name: str, snapshot: str) -> LabHost:
        """Bring the host NAME, on or off, back to its snapshot SNAPSHOT, and switch it on.

        Raises LabError where it has no such snapshot.
        """
        host = self.host(name)
        snapshots.check_known(host, snapshot)
        host.power_off()
        snapshots.restore(host, snapshot)
        return self._switched_on(host)

    @staticmethod
    def _switched_on(host: LabHost) -> LabHost:
        host.power_on()
        host.wait_ready(PATIENCE_S)
        return host

    def off(self, *, say: Say = print) -> None:
        """Cut the power of every host, and take network and services away; files stay for `up`."""
        record = LabRecord.load(self.directory)
        if record is None:
            return
        with self._locked(), locked(placing.LOCK):
            services.remove(record.lab_id, Path(record.group))
        say(f"switched {len(record.hosts)} throwaway hosts off; {self.directory} keeps their files")

    def down(self, *, say: Say = print) -> None:
        """Remove every host of this lab, its network, its services and its folder."""
        if not self.directory.exists():
            return
        with self._locked():
            record = LabRecord.load(self.directory)
            count = 0
            if record is not None:
                count = len(record.hosts)
                with locked(placing.LOCK):
                    services.remove(record.lab_id, Path(record.group))
            remove_tree(self.directory)
        say(f"removed {count} throwaway hosts and {self.directory}")

    def _remove_host(self, host: LabHost) -> None:
        host.group.remove()
        remove_tree(host.folder)
