"""Every deviation of the driver with its near miss, over the record of a host that is healthy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from gpu_host import (
    DRIVER_PACKAGES,
    FINGERPRINT,
    KERNEL,
    KEYRING,
    LIB,
    URL,
    VERSION,
    GpuHost,
    bare_gpu_host,
)

from pyinfra_gpu.drift.driver import judge
from pyinfra_gpu.drift.driver_inventory import packages
from pyinfra_gpu.drift.driver_modules import BLACKLIST
from pyinfra_gpu.drift.driver_packages import library_version, target
from pyinfra_gpu.drift.driver_repository import repository
from pyinfra_gpu.drift.driver_running import owed, users
from pyinfra_gpu.drift.finding import Finding, Id
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.parse import parse
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.operations.driver_packages import requests
from pyinfra_gpu.packages import files
from pyinfra_gpu.spec import system_files

OLD, NEWER, NEXT = "580.82.07", "580.105.08", "595.71.05"
NEXT_KERNEL = "6.1.0-31-amd64"
PIN = "nvidia-driver-pinning-580 580-1 0 1"


def record(host: GpuHost) -> Record:
    return parse(host.probe_lines())


def judged(host: GpuHost) -> list[Finding]:
    return judge(host.spec(), record(host))


def ids(host: GpuHost) -> list[str]:
    return [each.id.removeprefix("driver.") for each in judged(host)]


def rows(version: str = VERSION, held: str = "1", **other: str) -> list[str]:
    """The driver's packages at one version, some at another; names with "_" for "-"."""
    named = {name.replace("_", "-"): value for name, value in other.items()}
    return [f"{name} {named.get(name, version)}-1 {held} 1" for name in DRIVER_PACKAGES]


@dataclass
class Case:
    """What differs from a healthy host, and the deviations that it makes."""

    expected: list[str]
    plain: dict[str, str | None] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)
    texts: dict[str, bytes | None] = field(default_factory=dict)
    data: Mapping[str, object] = field(default_factory=dict)
    keyring: bytes | None = KEYRING

    def host(self) -> GpuHost:
        return GpuHost(
            plain=self.plain,
            lists=self.lists,
            texts=self.texts,
            keyring=self.keyring,
            data={**GpuHost().data, **self.data},
        )


def packages_of(*lines: str) -> dict[str, list[str]]:
    return {"nvidia.package": [*lines]}


def loaded(version: str, flavour: str = "Open Kernel Module for x86_64") -> dict[str, str | None]:
    return {
        "driver.loaded": version,
        "driver.version_line": f"NVRM version: NVIDIA UNIX {flavour}  {version}  Release Build",
    }


def libraries(version: str) -> dict[str, str | None]:
    return {
        "driver.libcuda": f"{LIB}/libcuda.so.{version}",
        "driver.libml": f"{LIB}/libnvidia-ml.so.{version}",
    }


OWN_SOURCE = f"{files.SOURCES}:deb [signed-by={system_files.KEYRING}] {URL}/ /"
CASES: dict[str, Case] = {
    "nothing differs": Case([]),
    # the repository
    "another key": Case(["keyring-replaced"], keyring=KEYRING[:-1] + b"x"),
    "a second key": Case(["keyring-replaced"], keyring=KEYRING * 2),
    "no keyring": Case(["keyring-replaced"], keyring=None),
    "an empty keyring": Case(["keyring-replaced"], keyring=b""),
    "a keyring that is garbage": Case(["keyring-replaced"], keyring=b"<html>"),
    "the declared key in small letters": Case(
        [], data={"driver_key_fingerprint": str(FINGERPRINT).lower()}
    ),
    "no source list": Case(["source-differs"], texts={files.SOURCES: None}),
    "another release": Case(
        ["source-differs"],
        texts={files.SOURCES: files.sources(URL.replace("12", "11")).encode()},
    ),
    "a source list with an empty line more": Case(
        ["source-differs"], texts={files.SOURCES: files.sources(URL).encode() + b"\n"}
    ),
    "listed twice": Case(
        ["source-twice"],
        lists={
            "nvidia.source_line": [OWN_SOURCE, f"/etc/apt/sources.list.d/cuda.list:deb {URL} /"]
        },
    ),
    "listed twice with a slash": Case(
        ["source-twice"],
        lists={
            "nvidia.source_line": [OWN_SOURCE, f"/etc/apt/sources.list.d/cuda.list:deb {URL}/ /"]
        },
    ),
    "another repository of NVIDIA's": Case(
        [],
        lists={
            "nvidia.source_line": [
                OWN_SOURCE,
                "/etc/apt/sources.list.d/ctk.list:deb https://nvidia.github.io/libnvidia/deb /",
            ]
        },
    ),
    # files
    "nvidia-smi is gone": Case(
        ["files-damaged"], lists={"nvidia.file": ["libcuda1 gone /usr/bin/nvidia-smi"]}
    ),
    "a library was changed": Case(
        ["files-damaged"], lists={"nvidia.file": ["libnvidia-ml1 changed /usr/lib/libnvidia-ml.so"]}
    ),
    "a file of a package that is none of the driver's is gone": Case(
        [], lists={"nvidia.file": ["nvidia-container-toolkit gone /usr/bin/nvidia-ctk"]}
    ),
    "root alone may run nvidia-smi": Case(
        ["files-damaged"],
        lists={"nvidia.file": ["libcuda1 closed /usr/bin/nvidia-smi"]},
    ),
    "somebody chose for good that root alone runs nvidia-smi": Case(
        ["files-closed"], lists={"owned.closed": ["/usr/bin/nvidia-smi"]}
    ),
    "a link stands in a library's place": Case(
        ["files-damaged"],
        lists={"nvidia.file": [f"libcuda1 linked {LIB}/libcuda.so.{VERSION}"]},
    ),
    "the package manager's list of a package's files is empty": Case(
        ["files-damaged"],
        lists={"nvidia.file": ["libcuda1 emptied /var/lib/dpkg/info/libcuda1.list"]},
    ),
    "root alone may open the devices": Case(
        ["devices-closed"], lists={"owned.closed": ["/dev/nvidia0", "/dev/nvidiactl"]}
    ),
    "the owner may not write in shared memory": Case([], lists={"owned.closed": ["/dev/shm"]}),
    "a file is gone while somebody installs packages": Case(
        [],
        plain={"packages.lock": "pid 9 (dpkg)"},
        lists={"nvidia.file": ["libcuda1 gone /usr/bin/nvidia-smi"]},
    ),
    "no pins": Case(["pins-differ"], texts={files.PREFERENCES: None}),
    "edited pins": Case(["pins-differ"], texts={files.PREFERENCES: b"Package: *\n"}),
    "pins of another version": Case(
        ["pins-differ"],
        texts={files.PREFERENCES: files.preferences(580, OLD, None).encode()},
    ),
    "no pin package": Case(["pin-package-missing"], lists=packages_of(*rows())),
    "half a pin package": Case(
        ["pin-package-missing"],
        lists=packages_of(*rows(), "nvidia-driver-pinning-580 580-1 0 0"),
    ),
    "the pin package of another branch": Case(
        ["pin-package-missing"], lists=packages_of(*rows(), "nvidia-driver-pinning-595 595-1 0 1")
    ),
    "pins that stand alone": Case(
        [],
        lists=packages_of(*rows()),
        texts={
            files.PREFERENCES: files.preferences(
                580, None, None, "nvidia-driver-pinning-580"
            ).encode()
        },
    ),
    "unattended-upgrades free": Case(
        ["unattended-upgrades-allowed"], texts={files.UNATTENDED: None}
    ),
    # the packages
    "one wanted package is missing": Case(
        ["not-installed"],
        lists=packages_of(*(r for r in rows() if not r.startswith("nvidia-persist")), PIN),
    ),
    "a package nobody declared is missing": Case(
        [], lists=packages_of(*(r for r in rows() if not r.startswith("nvidia-smi")), PIN)
    ),
    "the other flavour": Case(
        ["wrong-flavour"],
        lists=packages_of(*(r.replace("kernel-open-dkms", "kernel-dkms") for r in rows()), PIN),
    ),
    "the flavour that is declared": Case(
        ["wrong-flavour"],
        data={"driver_modules": "proprietary", "gpu_model": None},
    ),
    "another branch": Case(
        ["branch-moved"],
        plain={**loaded(NEXT), **libraries(NEXT), "driver.on_disk": NEXT},
        lists=packages_of(*rows(NEXT), PIN),
    ),
    "one package of another branch": Case(
        ["branch-moved"], lists=packages_of(*rows(nvidia_modprobe=NEXT), PIN)
    ),
    "another version than declared": Case(
        ["version-differs"],
        data={"driver_version": OLD},
        lists=packages_of(*rows(), f"nvidia-driver-pinning-{OLD} {OLD}-1 0 1"),
        texts={files.PREFERENCES: files.preferences(580, OLD, None).encode()},
    ),
    "the declared version": Case(
        [],
        data={"driver_version": VERSION},
        lists=packages_of(*rows(), f"nvidia-driver-pinning-{VERSION} {VERSION}-1 0 1"),
    ),
    "a driver that is too old": Case(
        ["version-differs"],
        data={"driver_branch": 580, "stack": "r580-cu130"},
        plain={
            **loaded("580.54.01"),
            **libraries("580.54.01"),
            "driver.on_disk": "580.54.01",
        },
        lists=packages_of(*rows("580.54.01"), PIN),
    ),
    "a newer driver of the branch": Case(
        [],
        plain={**loaded(NEWER), **libraries(NEWER), "driver.on_disk": NEWER},
        lists=packages_of(*rows(NEWER), PIN),
    ),
    "a companion is older": Case(
        ["versions-mixed"], lists=packages_of(*rows(nvidia_modprobe=OLD), PIN)
    ),
    "a companion is newer": Case(
        ["versions-mixed"], lists=packages_of(*rows(nvidia_modprobe=NEWER), PIN)
    ),
    "NVIDIA's other packages have other versions": Case(
        [],
        lists=packages_of(
            *rows(),
            PIN,
            "nvidia-container-toolkit 1.18.0-1 0 1",
            "cuda-toolkit-13-0 13.0.3-1 0 1",
            "cuda-compat-13-0 580.65.06-1 0 1",
            "nvidia-kernel-common 20220217+3 0 1",
            f"nvidia-firmware-580-{OLD} {OLD}-1 0 1",
        ),
    ),
    "a package of another architecture": Case(
        ["versions-mixed", "hold-missing"],
        lists=packages_of(*rows(), PIN, f"libcuda1:i386 {OLD}-1 0 1"),
    ),
    "a package is half installed": Case(
        ["package-incomplete"],
        lists=packages_of(*(r[:-1] + "0" if "smi" in r else r for r in rows()), PIN),
    ),
    "a hold is missing": Case(
        ["hold-missing"],
        lists=packages_of(*(r[:-3] + "0 1" if "libcuda1" in r else r for r in rows()), PIN),
    ),
    "holds that are not wanted": Case(["hold-unwanted"], data={"driver_hold": False}),
    "no holds, and none wanted": Case(
        [], data={"driver_hold": False}, lists=packages_of(*rows(held="0"), PIN)
    ),
    # the kernel's side
    "DKMS has forgotten it": Case(
        ["module-not-registered"], lists={"kernel.source": ["580.82.07"]}
    ),
    "no headers": Case(["headers-missing"], lists={"kernel.headers": [f"{KERNEL} 0"]}),
    "no headers for the next kernel": Case(
        ["headers-missing"],
        lists={
            "kernel.installed": [KERNEL, NEXT_KERNEL],
            "kernel.module": [f"{NEXT_KERNEL} {VERSION}"],
            "kernel.headers": [f"{NEXT_KERNEL} 0", f"{KERNEL} 1"],
        },
    ),
    "no module": Case(["module-not-built"], plain={"driver.on_disk": None, "driver.license": None}),
    "a module of another version": Case(
        ["module-not-built", "module-differs"], plain={"driver.on_disk": OLD}
    ),
    "no module for the next kernel": Case(
        ["module-not-built-for-next-kernel"],
        lists={
            "kernel.installed": [KERNEL, NEXT_KERNEL],
            "kernel.module": [f"{NEXT_KERNEL} -"],
            "kernel.headers": [f"{NEXT_KERNEL} 1", f"{KERNEL} 1"],
        },
    ),
    "an older module for the next kernel": Case(
        ["module-not-built-for-next-kernel"],
        lists={
            "kernel.installed": [KERNEL, NEXT_KERNEL],
            "kernel.module": [f"{NEXT_KERNEL} {OLD}"],
            "kernel.headers": [f"{NEXT_KERNEL} 1", f"{KERNEL} 1"],
        },
    ),
    "a newer kernel with all it needs": Case(
        [],
        lists={
            "kernel.installed": [KERNEL, NEXT_KERNEL],
            "kernel.module": [f"{NEXT_KERNEL} {VERSION}"],
            "kernel.headers": [f"{NEXT_KERNEL} 1", f"{KERNEL} 1"],
        },
    ),
    "no kernel in /boot": Case([], lists={"kernel.installed": []}),
    "another library": Case(["libraries-differ"], plain=libraries(OLD)),
    "one other library": Case(
        ["libraries-differ"], plain={"driver.libml": f"{LIB}/libnvidia-ml.so.{OLD}"}
    ),
    "a library without a version": Case([], plain={"driver.libcuda": "/opt/x/libcuda.so.1"}),
    "no library": Case([], plain={"driver.libcuda": None, "driver.libml": None}),
    "no blacklist": Case(["blacklist-differs"], texts={system_files.MODPROBE: None}),
    "an edited blacklist": Case(
        ["blacklist-differs"],
        texts={system_files.MODPROBE: BLACKLIST.content.replace(b"nouveau", b"x")},
    ),
    "a stale initramfs": Case(["initramfs-stale"], plain={"kernel.initramfs": "stale"}),
    "no initramfs": Case([], plain={"kernel.initramfs": "absent"}),
    "nouveau beside it": Case(["nouveau-loaded"], plain={"driver.nouveau": "1"}),
    "nova": Case(
        ["nouveau-loaded"],
        plain={"driver.nova": "1", "driver.loaded": None, "driver.version_line": None},
    ),
    "nothing loaded": Case(
        ["not-loaded"], plain={"driver.loaded": None, "driver.version_line": None}
    ),
    "an older module loaded": Case(["module-differs"], plain=loaded(OLD)),
    "the proprietary module loaded": Case(
        ["module-differs"], plain=loaded(VERSION, "x86_64 Kernel Module")
    ),
    "persistenced is off": Case(["persistenced-off"], plain={"driver.persistenced": "inactive"}),
    "persistenced failed": Case(["persistenced-off"], plain={"driver.persistenced": "failed"}),
    "persistenced is not there": Case(
        ["persistenced-off"],
        plain={"driver.persistenced": None, "driver.persistenced_enabled": None},
    ),
    "persistenced ends with this boot": Case(
        ["persistenced-off"], plain={"driver.persistenced_enabled": "disabled"}
    ),
    "persistenced is masked": Case(
        ["persistenced-masked"],
        plain={"driver.persistenced": "masked", "driver.persistenced_enabled": "masked"},
    ),
    "persistenced is on": Case(["persistenced-on"], data={"driver_persistence": False}),
    "persistenced would come back": Case(
        ["persistenced-on"],
        data={"driver_persistence": False},
        plain={"driver.persistenced": "inactive"},
    ),
    "persistenced is off as declared": Case(
        [],
        data={"driver_persistence": False},
        plain={"driver.persistenced": "inactive", "driver.persistenced_enabled": "disabled"},
    ),
    "a runfile driver": Case(["runfile"], plain={"driver.runfile": "1"}),
    # unknown is not a deviation: the operation that needs it refuses
    "packages that cannot be read": Case(
        [],
        lists={"nvidia.package": []},
        plain={"nvidia.package": "?dpkg-query is not on this host"},
    ),
    "a module that cannot be told": Case([], plain={"driver.loaded": "?no version"}),
    "kernels that cannot be read": Case(
        [], lists={"kernel.installed": []}, plain={"kernel.installed": "?no permission"}
    ),
    # what people do on the host is no deviation
    "a job on the GPUs": Case([], lists={"driver.user": ["pid 812 (python3)"]}),
    "somebody is logged in": Case([], lists={"power.session": ["alice on pts/0"]}),
}


@pytest.mark.parametrize("name", CASES)
def test_each_deviation_and_its_near_miss(name: str) -> None:
    assert ids(CASES[name].host()) == CASES[name].expected


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.expected])
def test_a_deviation_says_what_is_found_expected_and_done(name: str) -> None:
    for each in judged(CASES[name].host()):
        assert each.found != each.expected
        assert not {"None", "True", "False"} & set(re.findall(r"[A-Z]\w+", each.found))
        assert each.found
        assert each.action
        assert each.stage == "driver"
        restarts = ("nouveau-loaded", "not-loaded", "module-differs")
        left = ("runfile", "masked", "devices-closed", "files-closed")
        effect = "report" if each.id.endswith(left) else "repair"
        assert each.effect == ("restart" if each.id.partition(".")[2] in restarts else effect)


def test_a_fresh_host_lacks_everything_and_says_so_in_order() -> None:
    assert ids(bare_gpu_host()) == [
        "keyring-replaced",
        "source-differs",
        "pins-differ",
        "unattended-upgrades-allowed",
        "pin-package-missing",
        "not-installed",
        "headers-missing",
        "blacklist-differs",
        "nouveau-loaded",
    ]


def test_a_cpu_host_has_no_driver_to_judge() -> None:
    host = GpuHost(data={"stack": "cpu-torch2.13"})
    assert judged(host) == []


# Where the driver is somebody else's, nothing of it is declared.
@pytest.mark.parametrize(
    "path",
    [
        *(system_files.KEYRING, system_files.MODPROBE),
        *(files.SOURCES, files.PREFERENCES, files.UNATTENDED),
    ],
)
def test_a_directory_in_a_files_place_is_named_with_what_to_do(path: str) -> None:
    """A run leaves it alone, so "write it" was no advice; of a keyring it said there was no key."""
    keyring = None if path == system_files.KEYRING else KEYRING
    (found,) = judged(GpuHost(entries={path: f"41ed 0 root 4096 {path}"}, keyring=keyring))
    assert " is a dir" in found.found
    assert (
        found.action
        == f"move that directory away, e.g. `mv {path} {path}.old`: a run leaves it alone"
    )


FOREIGN = [n for n, c in CASES.items() if not any(k.startswith("driver_") for k in c.data)]


def test_what_root_alone_may_use_is_told_as_a_file_of_its_package_where_that_is_ours() -> None:
    lists = {
        "nvidia.file": [
            f"libcuda1 closed {LIB}/libcuda.so.{VERSION}",
            "nvidia-smi closed /usr/bin/nvidia-smi",
        ],
        "owned.closed": [f"{LIB}/libcuda.so.1", "/usr/bin/nvidia-smi"],
    }
    assert ids(GpuHost(lists=lists)) == ["files-damaged"]
    kept = {name: value for name, value in GpuHost().data.items() if not name.startswith("driver_")}
    theirs = GpuHost(data={**kept, "driver_source": "present"}, lists=lists)
    assert ids(theirs) == ["files-closed"]


@pytest.mark.parametrize("name", FOREIGN)
def test_somebody_elses_driver_is_judged_and_never_acted_upon(name: str) -> None:
    case = CASES[name]
    host = case.host()
    host.data = {
        **{key: value for key, value in host.data.items() if not key.startswith("driver_")},
        "driver_source": "present",
    }
    found = judged(host)
    fatal = ("nouveau-loaded", "not-loaded", "module-differs", "devices-closed", "files-closed")
    assert [each.id.partition(".")[2] for each in found] == [n for n in case.expected if n in fatal]
    assert {each.effect for each in found} <= {"report"}


TARGETS: dict[str, tuple[list[str], dict[str, object], str | None]] = {
    "nothing there": ([], {}, None),
    "all of one version": (rows(), {}, VERSION),
    "a companion is newer": (rows(nvidia_modprobe=NEWER), {}, VERSION),
    "the declared packages are newer": (
        rows(OLD, nvidia_driver_cuda=VERSION, nvidia_kernel_open_dkms=VERSION),
        {},
        VERSION,
    ),
    "only companions": ([f"nvidia-modprobe {OLD}-1 0 1"], {}, None),
    "another branch": (rows(NEXT), {}, None),
    "too old": (rows("580.54.01"), {}, None),
    "declared": (rows(), {"driver_version": OLD}, OLD),
}


@pytest.mark.parametrize("name", TARGETS)
def test_the_version_all_packages_must_have(name: str) -> None:
    lines, data, expected = TARGETS[name]
    host = GpuHost(lists={"nvidia.package": lines}, data={**GpuHost().data, **data})
    found = packages(host.spec(), record(host))
    assert target(host.spec(), found) == expected


def test_apt_is_asked_for_every_package_by_name() -> None:
    host = GpuHost(lists=packages_of(*rows(nvidia_modprobe=OLD), PIN))
    asked = requests(host.spec(), record(host))
    assert set(asked) == {f"{name}={VERSION}-*" for name in DRIVER_PACKAGES}


def test_apt_is_asked_to_remove_the_other_flavour_by_name() -> None:
    lines = [row.replace("kernel-open-dkms", "kernel-dkms") for row in rows()]
    host = GpuHost(lists=packages_of(*lines, PIN))
    asked = requests(host.spec(), record(host))
    assert "nvidia-kernel-dkms-" in asked
    assert f"nvidia-kernel-open-dkms={VERSION}-*" in asked


def test_a_fresh_host_is_asked_for_the_newest_of_the_branch() -> None:
    host = bare_gpu_host()
    asked = requests(host.spec(), record(host))
    assert asked == ("nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-persistenced")


def test_names_of_another_branch_are_removed_and_not_asked_for() -> None:
    lines = [*rows(NEXT), f"libnvidia-compute-595 {NEXT}-1 1 1", PIN]
    host = GpuHost(lists=packages_of(*lines))
    asked = requests(host.spec(), record(host))
    assert "libnvidia-compute-595-" in asked
    assert "libcuda1" in asked


@pytest.mark.parametrize(
    ("path", "version"),
    [
        (f"{LIB}/libcuda.so.{VERSION}", VERSION),
        (f"{LIB}/nvidia/current/libcuda.so.580.142", "580.142"),
        (f"{LIB}/libnvidia-ml.so.{VERSION}", VERSION),
        (f"{LIB}/libcuda.so.1", None),
        ("/usr/local/cuda-13.0/lib64/stubs/libcuda.so", None),
        (f"{LIB}/libcuda.so.{VERSION}.bak", None),
        (None, None),
        (Unknown("no"), None),
    ],
)
def test_a_librarys_version_is_in_its_name(path: object, version: str | None) -> None:
    assert library_version(path) == version  # type: ignore[arg-type]


def test_nvidias_services_are_nobody() -> None:
    host = GpuHost(
        lists={"driver.user": ["pid 1 (nv-hostengine)", "pid 2 (python3)", "pid 3 (Xorg)"]}
    )
    assert users(record(host)) == ("pid 2 (python3)", "pid 3 (Xorg)")


REPOSITORIES: dict[str, tuple[dict[str, object], dict[str, list[str]], str]] = {
    "NVIDIA's own": (
        {
            "driver_repository_url": None,
            "driver_key_fingerprint": None,
            "driver_keyring_sha256": None,
        },
        {},
        "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64",
    ),
    "a mirror": ({}, {}, URL),
    "a mirror with a slash": (
        {"driver_repository_url": "http://mirror.example/nvidia/{distro}/{arch}/"},
        {},
        URL,
    ),
    "an unknown release": (
        {},
        {"system.os": ['PRETTY_NAME="Debian 11"', 'VERSION_ID="11"', "ID=debian"]},
        "NVIDIA's repository for Debian 11 is not known",
    ),
    "an unknown release with a whole URL": (
        {"driver_repository_url": "http://mirror.example/own"},
        {"system.os": ['PRETTY_NAME="Debian 11"', 'VERSION_ID="11"', "ID=debian"]},
        "http://mirror.example/own",
    ),
    "an unknown release without a key": (
        {
            "driver_repository_url": "http://mirror.example/own",
            "driver_key_fingerprint": None,
        },
        {"system.os": ['PRETTY_NAME="Debian 11"', 'VERSION_ID="11"', "ID=debian"]},
        "declare `driver_key_fingerprint`",
    ),
}


@pytest.mark.parametrize("name", REPOSITORIES)
def test_the_repository_is_that_of_the_hosts_own_release(name: str) -> None:
    data, lists, expected = REPOSITORIES[name]
    kept = {**GpuHost().data, **data}
    host = GpuHost(data={k: v for k, v in kept.items() if v is not None}, lists=lists)
    source = repository(host.spec(), record(host))
    assert (source if isinstance(source, str) else source.url).startswith(expected)


BOOT = "77777777-1d37-47dd-ab61-25ad81ad7603"  # another one than the record's
NOUVEAU: dict[str, str | None] = {
    **dict.fromkeys(("driver.loaded", "driver.version_line")),
    "driver.nouveau": "1",
}
REBOOTS: dict[str, tuple[str | None, bool]] = {
    # what the host keeps, and whether one more reboot may follow
    "none": (None, True),
    "for this": (f"1763777520 {BOOT} nouveau is bound to the GPUs\n", False),
    "for this, among others": (
        f"1 {BOOT} x\n2 {BOOT} nouveau is bound to the GPUs\n3 {BOOT} y\n",
        False,
    ),
    "for this, in a year that is none": (
        f"999999999999 {BOOT} nouveau is bound to the GPUs\n",
        False,
    ),
    "for this, but it has not gone down": ("1 {own} nouveau is bound to the GPUs\n", True),
    "for something else": (f"1 {BOOT} no NVIDIA module is loaded\n", True),
    "nobody knows": ("?no permission to read it", True),
}


@pytest.mark.parametrize("name", REBOOTS)
def test_what_one_reboot_did_not_cure_is_reported_and_stops_the_run(name: str) -> None:
    text, again = REBOOTS[name]
    own = record(GpuHost()).system.boot_id
    text = text.replace("{own}", str(own)) if text else None
    (found,) = judged(GpuHost(plain={**NOUVEAU, "power.reboots": text}))
    assert (found.acts, found.stops) == (again, not again)
    assert ("did not help, so none follows" in found.action) is not again


@pytest.mark.parametrize(
    ("plain", "noted"),
    [
        ({"power.reboots": f"1 {BOOT} nouveau is bound to the GPUs\n"}, True),
        ({"power.reboots": f"1 {BOOT} x\n2 {BOOT} no NVIDIA module is loaded\n"}, True),
        ({"power.reboots": None}, False),
        ({"power.reboots": "?no permission to read it"}, False),
        ({"power.reboots": f"1 {BOOT} x\n", **NOUVEAU}, False),
        ({"power.reboots": f"1 {BOOT} x\n", "driver.loaded": "?no permission"}, False),
    ],
)
def test_a_reboot_that_helped_is_forgotten_by_the_next_run_where_its_own_could_not(
    plain: dict[str, str | None], noted: bool
) -> None:
    found = [each for each in judged(GpuHost(plain=plain)) if each.id is Id.DRIVER_REBOOT_NOTED]
    assert bool(found) is noted
    assert all(each.effect == "repair" for each in found)


def test_a_reason_is_the_same_every_night_though_who_is_there_differs() -> None:
    reasons = {
        owed(judged(GpuHost(plain=NOUVEAU, lists={"driver.user": users})))
        for users in ([], ["pid 812 (python3)"], ["pid 9 (x)", "pid 10 (y)"])
    }
    assert reasons == {"nouveau is bound to the GPUs"}
    assert owed(judged(GpuHost())) is None
