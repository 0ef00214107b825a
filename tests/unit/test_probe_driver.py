"""What the probe tells of the driver: who uses the GPUs, its service, its key, how it got there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from nvidia_tree import VERSION, gpu_host_fixture, look, modules, opened, unit  # noqa: F401
from probing import NOBODY, ROOT, Tree, tree_fixture, write  # noqa: F401
from test_probe_hangs import impatient

from pyinfra_gpu.facts.fields import Unknown


def test_processes_with_a_gpu_open_are_told_once_and_the_persistence_daemon_is_not(
    gpu_host: Tree,
) -> None:
    opened(gpu_host, 813, "tor(ch) run", "/dev/nvidia-caps/nvidia-cap1")
    opened(gpu_host, 814, "editor", "/home/x/nvidia0", "/dev/null")
    assert sorted(look(gpu_host).driver.users) == [  # type: ignore[arg-type]
        "pid 812 (python3)",
        "pid 813 (tor(ch) run)",
    ]


@pytest.mark.skipif(not ROOT, reason="only root can take another user's place")
def test_a_plain_user_does_not_take_unseen_processes_for_none() -> None:
    import shutil
    import tempfile

    from nvidia_tree import asked, furnish_nvidia

    base = Path(tempfile.mkdtemp(prefix="probe-"))
    try:
        base.chmod(0o755)
        tree = Tree(base / "host")
        furnish_nvidia(tree)
        (tree.root / "proc/812/fd").chmod(0o500)
        record = tree.look(asked(tree), user=NOBODY)
        assert record.driver.users == Unknown(
            "it may not see what other users' processes have open"
        )
        assert record.driver.loaded == VERSION
    finally:
        shutil.rmtree(base)


UNITS: dict[tuple[str, str, str], tuple[object, object]] = {
    ("loaded", "active", "enabled"): ("active", True),
    ("loaded", "active", "enabled-runtime"): ("active", True),
    ("loaded", "failed", "disabled"): ("failed", False),
    ("loaded", "inactive", "static"): ("inactive", False),
    ("not-found", "inactive", ""): (None, None),
    ("not-found", "failed", ""): (None, None),
    ("loaded", "active", ""): ("active", None),
    ("masked", "inactive", "masked"): ("masked", False),
    ("loaded", "activating", "odd"): ("activating", Unknown("systemd calls it 'odd'")),
}


@pytest.mark.parametrize(("load", "active", "file"), sorted(UNITS))
def test_the_persistence_daemons_unit_is_told(
    gpu_host: Tree, load: str, active: str, file: str
) -> None:
    unit(gpu_host, load=load, active=active, file=file)
    driver = look(gpu_host).driver
    assert (driver.persistenced, driver.persistenced_enabled) == UNITS[load, active, file]


def test_a_service_manager_that_hangs_is_given_up(gpu_host: Tree) -> None:
    """The bound is seconds long; here `timeout` itself is shortened."""
    impatient(gpu_host)
    gpu_host.tool("systemctl", "exec sleep 30")
    driver = look(gpu_host).driver
    assert driver.persistenced == Unknown("systemctl: it did not answer in time")
    assert driver.loaded == VERSION


def test_without_systemd_there_is_no_unit(gpu_host: Tree) -> None:
    (gpu_host.root / "run/systemd/system").rmdir()
    driver = look(gpu_host).driver
    assert (driver.persistenced, driver.persistenced_enabled) == (None, None)


def test_a_driver_past_the_package_manager_is_told_by_its_uninstaller(
    gpu_host: Tree,
) -> None:
    assert look(gpu_host).driver.runfile is False
    write(gpu_host.root / "usr/bin/nvidia-uninstall", "", 0o755)
    write(gpu_host.root / "var/lib/dpkg/info/git.list", "/.\n/usr\n/usr/bin/git\n")
    assert look(gpu_host).driver.runfile is True
    write(gpu_host.root / "var/lib/dpkg/info/x.list", "/.\n/usr/bin/nvidia-uninstall\n")
    assert look(gpu_host).driver.runfile is False


KEYS = {
    "{key} is already enrolled": True,
    "SKIP: {key} is already in db": True,
    "{key} is not enrolled": False,
    "{key} is already in the enrollment request": False,
    "EFI variables are not supported on this system": Unknown(
        "mokutil said 'EFI variables are not supported on this system'"
    ),
}


@pytest.mark.parametrize("said", sorted(KEYS))
@pytest.mark.parametrize("place", ["var/lib/dkms/mok.pub", "var/lib/shim-signed/mok/MOK.der"])
def test_under_secure_boot_the_firmware_knows_the_modules_key_or_not(
    gpu_host: Tree, place: str, said: str
) -> None:
    root = gpu_host.root
    write(root / "sys/firmware/efi/efivars/SecureBoot-1", b"\x06\0\0\0\x01")
    key = write(root / place, "")
    gpu_host.tool(
        "mokutil", f'[ "$*" = "--test-key {key}" ] && echo "{said.format(key=key)}"; exit 1'
    )
    assert look(gpu_host).driver.mok == KEYS[said]


def test_dkms_own_setting_names_the_key(gpu_host: Tree) -> None:
    root = gpu_host.root
    write(root / "sys/firmware/efi/efivars/SecureBoot-1", b"\x06\0\0\0\x01")
    write(root / "var/lib/dkms/mok.pub", "")
    write(root / "etc/keys/a.der", "")
    write(root / "etc/dkms/framework.conf", '# x\nmok_certificate="/etc/keys/a.der"\n')
    gpu_host.tool("mokutil", 'case $2 in */etc/keys/a.der) echo "$2 is already enrolled" ;; esac')
    assert look(gpu_host).driver.mok is True
    gpu_host.tool("mokutil", "exit 3")
    reason = "mokutil: it ended with status 3 and said nothing"
    assert look(gpu_host).driver.mok == Unknown(reason)


def test_without_secure_boot_or_a_key_there_is_nothing_to_enrol(gpu_host: Tree) -> None:
    gpu_host.tool("mokutil", "echo it is not enrolled")
    assert look(gpu_host).driver.mok is None
    variable = gpu_host.root / "sys/firmware/efi/efivars/SecureBoot-1"
    write(variable, b"\x06\0\0\0\x01")
    assert look(gpu_host).driver.mok is None
    write(gpu_host.root / "var/lib/dkms/mok.pub", "")
    assert look(gpu_host).driver.mok is False
    write(variable, b"\x06\0\0\0\0")
    assert look(gpu_host).driver.mok is None
    write(variable, b"")
    assert isinstance(look(gpu_host).driver.mok, Unknown)


def test_what_a_host_without_gpus_is_not_asked_is_not_looked_at(gpu_host: Tree) -> None:
    for tool in ("systemctl", "find", "mokutil", "sort", "gcc", "getconf"):
        gpu_host.tool(tool, f"echo called >{gpu_host.base}/called")
    record = gpu_host.look()
    assert not (gpu_host.base / "called").exists()
    assert (record.driver.users, record.driver.persistenced, record.driver.mok) == ((), None, None)
    assert (record.kernel.installed, record.nvidia.packages, record.power.sessions) == ((), (), ())
    assert record.driver.loaded == VERSION


@pytest.mark.parametrize(
    ("error", "found"),
    [
        ("Invalid argument", None),  # a file without contents, as a power cut leaves it
        ("Exec format error", None),
        ("Permission denied", Unknown("modinfo: modinfo: ERROR: could not get modinfo from"
                                      " 'nvidia': Permission denied")),
    ],
)  # fmt: skip
def test_a_damaged_module_is_none(
    error: str,
    found: Unknown | None,
    gpu_host: Tree,
) -> None:
    said = f"modinfo: ERROR: could not get modinfo from 'nvidia': {error}"
    gpu_host.tool("modinfo", f'echo "{said}" >&2; exit 1')
    driver = look(gpu_host).driver
    assert (driver.on_disk, driver.on_disk_open) == (found, found)


def test_a_module_that_names_no_version_is_unknown(gpu_host: Tree) -> None:
    gpu_host.tool("modinfo", "echo 'license:  NVIDIA'")
    reason = Unknown("modinfo finds a module nvidia without a version")
    driver = look(gpu_host).driver
    assert (driver.on_disk, driver.on_disk_open) == (reason, reason)
    modules(gpu_host)
    driver = look(gpu_host).driver
    assert (driver.on_disk, driver.on_disk_open) == (None, None)
