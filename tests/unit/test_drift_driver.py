"""Every deviation of the driver with its near miss, over the record of a host that is healthy."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

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
    sources,
)
from own_driver_host import MODULES, NOBLE_KERNEL, NOBLE_NEXT, SIGNED, signed_rows, ubuntu

from pyinfra_gpu.packages import files
from pyinfra_gpu.spec import system_files
from pyinfra_gpu.stages.driver.findings import judge
from pyinfra_gpu.stages.driver.inventory import packages, repository, target
from pyinfra_gpu.stages.driver.operations import requests
from pyinfra_gpu.stages.finding import Finding
from pyinfra_gpu.stages.preflight.findings import judge as preflight

OLD, NEWER, NEXT = "580.82.07", "580.105.08", "595.71.05"
TOO_OLD = "580.54.01"
NEXT_KERNEL = "6.1.0-31-amd64"


def judged(host: GpuHost) -> list[Finding]:
    return judge(host.spec(), host.record())


def reported(host: GpuHost) -> list[str]:
    """Return each finding's id without its stage, and its effect where it is no repair."""
    return [
        f"{each.id.removeprefix('driver.')}{'' if each.effect == 'repair' else ' ' + each.effect}"
        for each in judged(host)
    ]


def changed(data: dict[str, Any] | None = None, **changes: Any) -> GpuHost:
    """Return a host of which facts, by PART.FIELD, or fields of `GpuHost` are otherwise."""
    facts = {key: value for key, value in changes.items() if "." in key}
    more = {key: value for key, value in changes.items() if "." not in key}
    return GpuHost(data={**GpuHost().data, **(data or {})}, reported=facts, **more)


def rows(version: str = VERSION, held: str = "1", **other: str) -> list[str]:
    """The driver's packages at one version, some at another; names with "_" for "-"."""
    named = {name.replace("_", "-"): value for name, value in other.items()}
    return [f"{name} {named.get(name, version)}-1 {held} 1" for name in DRIVER_PACKAGES]


def of(*lines: str) -> dict[str, Any]:
    return {"nvidia.packages": [*lines]}


def text(path: str, content: bytes | None = None) -> dict[str, Any]:
    return {"texts": {path: content}}


def lost(row: str) -> dict[str, Any]:
    return {"nvidia.lost": [row]}


def plain(**facts: Any) -> dict[str, Any]:
    """Facts of the driver."""
    return {f"driver.{name}": value for name, value in facts.items()}


def loaded(version: str, *, is_open: bool = True) -> dict[str, Any]:
    return {"loaded": version, "open_modules": is_open}


def libraries(version: str) -> dict[str, str | None]:
    paths = {"libcuda": "libcuda", "libml": "libnvidia-ml"}
    return {name: f"{LIB}/{file}.so.{version}" for name, file in paths.items()}


def whole(version: str) -> dict[str, Any]:
    """A whole driver of another version."""
    facts = {**loaded(version), **libraries(version), "on_disk": version}
    return {**plain(**facts), **of(*rows(version))}


def kernel(module: str | None, *, headers: bool = True) -> dict[str, Any]:
    """A newer kernel beside the running one."""
    both = {"kernel.installed": [KERNEL, NEXT_KERNEL], "kernel.modules": {NEXT_KERNEL: module}}
    return {**both, "kernel.headers": {NEXT_KERNEL: headers, KERNEL: True}}


OWN_SOURCE = f"{files.SOURCES}:deb [signed-by={system_files.KEYRING}] {URL}/ /"
OTHERS = "/etc/apt/sources.list.d/cuda.list:deb"
OFF = plain(persistenced="inactive", persistenced_enabled=False)

CASES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "nothing differs": ([], {}),
    # the repository
    "another key": (["keyring-replaced"], {"keyring": KEYRING[:-1] + b"x"}),
    "a second key": (["keyring-replaced"], {"keyring": KEYRING * 2}),
    "no keyring": (["keyring-replaced"], {"keyring": None}),
    "the key in small letters": (
        [], {"data": {"driver_key_fingerprint": str(FINGERPRINT).lower()}},
    ),
    "no source list": (["source-differs"], text(files.SOURCES)),
    "another release": (
        ["source-differs"], text(files.SOURCES, files.sources(URL.replace("12", "11")).encode()),
    ),
    "listed twice": (
        ["source-differs"], sources(OWN_SOURCE, f"{OTHERS} {URL}/ /"),
    ),
    "listed twice, beside another": (
        ["source-differs report"],
        sources(OWN_SOURCE, f"{OTHERS} {URL}/ /", f"{OTHERS} http://lab.example/ /"),
    ),
    "no pins": (["pins-differ"], text(files.PREFERENCES)),
    "unattended-upgrades free": (["pins-differ"], text(files.UNATTENDED)),
    "no blacklist": (["blacklist-differs"], text(system_files.MODPROBE)),
    "one wanted package is missing": (
        ["not-installed"], of(*(row for row in rows() if not row.startswith("nvidia-persist"))),
    ),
    "a package nobody declared is missing": (
        [], of(*(row for row in rows() if not row.startswith("nvidia-smi"))),
    ),
    "the other flavour": (
        ["not-installed"], of(*(row.replace("kernel-open-dkms", "kernel-dkms") for row in rows())),
    ),
    "the other flavour is declared": (
        ["not-installed", "module-differs restart"],
        {"data": {"driver_modules": "proprietary", "gpu_model": None}},
    ),
    "another branch": (["version-differs"], whole(NEXT)),
    "another version than declared": (
        ["version-differs"],
        {
            "data": {"driver_version": OLD},
            **text(files.PREFERENCES, files.preferences(580, OLD, None).encode()),
        },
    ),
    "the declared version": ([], {"data": {"driver_version": VERSION}}),
    "a driver that is too old": (["version-differs"], whole(TOO_OLD)),
    "a newer driver of the branch": ([], whole(NEWER)),
    "a companion is older": (["version-differs"], of(*rows(nvidia_modprobe=OLD))),
    "NVIDIA's other packages have other versions": (
        [],
        of(
            *rows(), "nvidia-container-toolkit 1.18.0-1 0 1", "cuda-compat-13-0 580.65.06-1 0 1",
            "nvidia-kernel-common 20220217+3 0 1", f"nvidia-firmware-580-{OLD} {OLD}-1 0 1",
        ),
    ),
    "a package of another architecture": (
        ["version-differs", "hold-differs"], of(*rows(), f"libcuda1:i386 {OLD}-1 0 1"),
    ),
    "a package is half installed": (
        ["files-damaged"], of(*(row[:-1] + "0" if "smi" in row else row for row in rows())),
    ),
    "a hold is missing": (
        ["hold-differs"], of(*(row[:-3] + "0 1" if "libcuda1" in row else row for row in rows())),
    ),
    "holds that are not wanted": (["hold-differs"], {"data": {"driver_hold": False}}),
    # files
    "nvidia-smi is gone": (["files-damaged"], lost("libcuda1 gone /usr/bin/nvidia-smi")),
    "a file of a package that is none of the driver's is gone": (
        [], lost("nvidia-container-toolkit gone /usr/bin/nvidia-ctk"),
    ),
    "a file is gone while somebody installs packages": (
        [],
        {"packages.lock_holder": "pid 9 (dpkg)", **lost("libcuda1 gone /usr/bin/nvidia-smi")},
    ),
    "another library": (["files-damaged"], plain(**libraries(OLD))),
    "a library without a version": ([], plain(libcuda="/opt/x/libcuda.so.1")),
    "somebody chose that root alone runs nvidia-smi": (
        ["closed report"], {"driver.closed": ["/usr/bin/nvidia-smi"]},
    ),
    "root alone may open the devices": (
        ["closed report"], {"driver.closed": ["/dev/nvidia0", "/dev/nvidiactl"]},
    ),
    # the kernel's side
    "no headers": (["headers-missing"], {"kernel.headers": {KERNEL: False}}),
    "no module": (["module-not-built"], plain(on_disk=None)),
    "a module of another version": (
        ["module-not-built", "module-differs restart"], plain(on_disk=OLD),
    ),
    "no module for the next kernel": (["module-not-built"], kernel("-")),
    "a newer kernel with all it needs": ([], kernel(VERSION)),
    "no kernel in /boot": ([], {"kernel.installed": []}),
    "a stale initramfs": (["initramfs-stale"], {"kernel.initramfs": "stale"}),
    "nouveau beside it": (["module-differs restart"], plain(nouveau=True)),
    "nova": (["module-differs restart"], plain(nova=True, loaded=None, open_modules=None)),
    "an older module loaded": (["module-differs restart"], plain(**loaded(OLD))),
    "the proprietary module loaded": (
        ["module-differs restart"], plain(**loaded(VERSION, is_open=False)),
    ),
    "persistenced is off": (["persistenced-differs"], plain(persistenced="inactive")),
    "persistenced waits for the module": (
        ["module-differs restart", "persistenced-differs restart"],
        plain(persistenced="inactive", **loaded(OLD)),
    ),
    "persistenced is not there": (
        ["persistenced-differs"], plain(persistenced=None, persistenced_enabled=None),
    ),
    "persistenced is masked": (
        ["persistenced-differs report"],
        plain(persistenced="masked", persistenced_enabled=False),
    ),
    "persistenced is on": (["persistenced-differs"], {"data": {"driver_persistence": False}}),
    "persistenced is off as declared": ([], {"data": {"driver_persistence": False}, **OFF}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_deviation_and_its_near_miss(name: str) -> None:
    expected, changes = CASES[name]
    host = changed(**changes)
    assert reported(host) == expected
    for each in judged(host):
        assert each.found and each.action and each.found != each.expected
        assert not {"None", "True", "False"} & set(re.findall(r"[A-Z]\w+", each.found))


@pytest.mark.parametrize(
    ("data", "then"),
    [
        ({"smoke": "auto"}, ", or reboot where only that helps, and run the smoke test again"),
        ({"driver_reboot": "never"}, ""),
    ],
)
def test_a_plan_says_what_follows_on_another_driver(data: dict[str, str], then: str) -> None:
    (found,) = judged(changed(data, **whole(TOO_OLD)))
    assert found.action == f"install that version, reload its module{then}"


def test_a_fresh_host_lacks_everything_and_says_so_in_order() -> None:
    assert reported(bare_gpu_host()) == [
        *("keyring-replaced", "pins-differ", "pins-differ", "blacklist-differs"),
        *("source-differs", "not-installed", "headers-missing"),
        "module-differs restart",
    ]


def test_a_cpu_host_has_no_driver_to_judge() -> None:
    assert judged(GpuHost(data={"stack": "cpu-torch2.13"})) == []


def present(**changes: Any) -> GpuHost:
    """A host whose driver is somebody else's: nothing of it is declared."""
    kept = {name: value for name, value in GpuHost().data.items() if not name.startswith("driver_")}
    host = changed(**changes)
    return replace(host, data={**kept, "driver_source": "present"})


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "data" not in case[1]])
def test_somebody_elses_driver_is_judged_and_never_acted_upon(name: str) -> None:
    expected, changes = CASES[name]
    fatal = [f"{each.split()[0]} report" for each in expected]
    theirs = ("closed",) if "proprietary" in name else ("module-differs", "closed")
    fatal = [each for each in fatal if each.startswith(theirs)]
    assert reported(present(**changes)) == fatal


@pytest.mark.parametrize(
    ("lines", "data", "expected"),
    [
        (rows(OLD, nvidia_driver_cuda=VERSION, nvidia_kernel_open_dkms=VERSION), {}, VERSION),
        ([f"nvidia-modprobe {OLD}-1 0 1"], {}, None),  # only companions
        (rows(), {"driver_version": OLD}, OLD),
    ],
)
def test_the_version_all_packages_must_have(
    lines: list[str], data: dict[str, object], expected: str | None
) -> None:
    host = changed(data, **of(*lines))
    assert target(host.spec(), packages(host.spec(), host.record())) == expected


def test_apt_is_asked_for_every_package_by_name_and_to_remove_what_is_anothers() -> None:
    asked = requests(changed().spec(), changed(**of(*rows(nvidia_modprobe=OLD))).record())
    assert set(asked) == {f"{name}={VERSION}-*" for name in DRIVER_PACKAGES}
    other = changed(**of(*(row.replace("open-dkms", "dkms") for row in rows())))
    asked = requests(other.spec(), other.record())
    assert {"nvidia-kernel-dkms-", f"nvidia-kernel-open-dkms={VERSION}-*"} <= set(asked)
    other = changed(**of(*rows(NEXT), f"libnvidia-compute-595 {NEXT}-1 1 1"))
    assert {"libnvidia-compute-595-", "libcuda1"} <= set(requests(other.spec(), other.record()))
    other = ubuntu(reported=NEWER_KERNEL)  # what has its own version is asked for without one
    both = {f"{MODULES}{NOBLE_NEXT}", f"nvidia-utils-580-server={SIGNED}-*"}
    assert both <= set(requests(other.spec(), other.record()))
    bare = bare_gpu_host()
    assert requests(bare.spec(), bare.record()) == (
        *("nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-persistenced"),
    )


DEBIAN_11 = {"system.os_name": "Debian 11", "system.os_version": "11", "system.os_id": "debian"}
REPOSITORIES: dict[str, tuple[dict[str, object], dict[str, list[str]], str]] = {
    "NVIDIA's own": (
        dict.fromkeys(("driver_repository_url", "driver_key_fingerprint", "driver_keyring_sha256")),
        {}, "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64",
    ),
    "a mirror with a slash": (
        {"driver_repository_url": "http://mirror.example/nvidia/{distro}/{arch}/"}, {}, URL,
    ),
    "an unknown release": ({}, DEBIAN_11, "NVIDIA's repository for Debian 11 is not known"),
    "an unknown release without a key": (
        {"driver_repository_url": "http://mirror.example/own", "driver_key_fingerprint": None},
        DEBIAN_11, "declare `driver_key_fingerprint`",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REPOSITORIES)
def test_the_repository_is_that_of_the_hosts_own_release(name: str) -> None:
    data, lists, expected = REPOSITORIES[name]
    kept = {**GpuHost().data, **data}
    host = GpuHost(data={k: v for k, v in kept.items() if v is not None}, reported=lists)
    source = repository(host.spec(), host.record())
    assert (source if isinstance(source, str) else source.url).startswith(expected)


BOOT = "77777777-1d37-47dd-ab61-25ad81ad7603"  # another one than the record's
BOUND = f"{BOOT} nouveau is bound to the GPUs\n"
NOUVEAU = plain(loaded=None, open_modules=None, nouveau=True)


@pytest.mark.parametrize(
    ("kept", "again"),
    [
        (None, True),
        (f"1 {BOOT} x\n2 {BOUND}3 {BOOT} y\n", False),
        ("1 {own} nouveau is bound to the GPUs\n", True),  # it has not gone down
        (f"1 {BOOT} no NVIDIA module is loaded\n", True),
        ("?no permission to read it", True),
    ],
)
def test_what_one_reboot_did_not_cure_is_reported_and_stops_the_run(
    kept: str | None, again: bool
) -> None:
    own = str(GpuHost().record().system.boot_id)
    kept = kept.replace("{own}", own) if kept else None
    (found,) = judged(GpuHost(reported={**NOUVEAU, "power.reboots": kept}))
    assert (found.acts, found.stops) == (again, not again)
    assert ("did not help, so none follows" in found.action) is not again


# -- Ubuntu's own driver

NEWER_KERNEL = {
    "kernel.installed": [NOBLE_KERNEL, NOBLE_NEXT],
    "kernel.modules": {NOBLE_NEXT: None},
}
DEBIAN = {"system.os_name": "Debian 12", "system.os_version": "12", "system.os_id": "debian"}

OWN: dict[str, tuple[GpuHost, list[str]]] = {
    "as declared, with Secure Boot and without headers": (ubuntu(), []),
    "unattended upgrades that leave the modules behind": (
        ubuntu(texts={files.UNATTENDED: files.unattended().encode()}), ["pins-differ"],
    ),
    "what has a version of its own": (
        ubuntu(
            reported={
                "nvidia.packages": [*signed_rows(NOBLE_KERNEL), "nvidia-modprobe 570.133.07-1 0 1"],
            },
        ),
        [],
    ),
    "no module for the running kernel": (
        ubuntu(reported={"nvidia.packages": signed_rows()}), ["not-installed"],
    ),
    "no module for the next kernel": (
        ubuntu(reported=NEWER_KERNEL), ["not-installed", "module-not-built"],
    ),
    "a module's file is gone": (ubuntu(reported={"driver.on_disk": None}), ["module-not-built"]),
}  # fmt: skip


@pytest.mark.parametrize("name", OWN)
def test_each_deviation_of_ubuntus_own_driver_and_its_near_miss(name: str) -> None:
    host, expected = OWN[name]
    assert [each.partition(" ")[0] for each in reported(host)] == expected


def stops(host: GpuHost) -> list[str]:
    found = preflight(host.spec(), host.record())
    return [f"{each.found}; {each.expected}; {each.action}" for each in found if each.stops]


def test_secure_boot_without_a_key_does_not_stop_what_ubuntu_signed() -> None:
    gone = {"driver.loaded": None, "driver.on_disk": None, "system.secure_boot": True}
    assert stops(ubuntu(reported={**gone, "nvidia.packages": []})) == []


def test_an_archive_without_the_branch_is_refused_with_the_way_out() -> None:
    bare: dict[str, object] = {"nvidia.packages": []}
    (said,) = stops(ubuntu(reported=bare, data={"stack": "r595-cu132"}))
    assert said.startswith("driver_source = 'distribution' offers branch 535 and 570 and 580")
    assert said.endswith("driver_source = 'nvidia'")
    (said,) = stops(ubuntu(reported={**bare, **DEBIAN}))
    assert "no packages of driver branch 580 with open modules are known for Debian 12" in said
    assert "declare `driver_source = 'nvidia'`" in said


OTHER = MODULES.replace("-server", "")


@pytest.mark.parametrize(
    ("row", "name"),
    [
        (None, None),
        ("nvidia-dkms-580-open 580.95.05-1ubuntu1 0 1", "nvidia-dkms-580-open"),
        ("libnvidia-compute-570-server 570.211.01-0ubuntu1 0 1", None),
        (f"{OTHER}x 6.8.0-149.149 0 1", f"{OTHER}x"),
    ],
)
def test_another_drivers_packages_are_left_to_a_person(row: str | None, name: str | None) -> None:
    host = ubuntu(reported={"nvidia.packages": [row]} if row else {})
    found = [each for each in stops(host) if "of another driver" in each]
    assert bool(found) is (name is not None)
    if name:
        assert found[0].startswith(f"{name} is installed") and "apt-get purge" in found[0]
