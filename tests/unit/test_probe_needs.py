"""What the probe tells of what every login is given, and of what the owner may not have."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from nvidia_tree import LIBDIR, asked, gpu_host_fixture  # noqa: F401
from probing import NOBODY, ROOT, Tree, tree_fixture, write  # noqa: F401

DEVICES = ("/dev/nvidia0", "/dev/nvidiactl")


@pytest.fixture(name="open_host")
def open_host_fixture(gpu_host: Tree, tmp_path: Path) -> Tree:
    """A host whose files another user than root can reach."""
    if not ROOT:
        pytest.skip("only root can take another user's place")
    for folder in (tmp_path, *tmp_path.parents):
        if folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o711) if folder.owner() == "root" else None
    for device in DEVICES:
        Path(f"{gpu_host.root}{device}").chmod(0o666)
    (gpu_host.root / "dev/shm").chmod(0o1777)
    write(gpu_host.root / "usr/bin/nvidia-smi", "", 0o755)
    return gpu_host


def closed(host: Tree) -> tuple[object, object]:
    record = host.look(asked(host), user=NOBODY)
    return record.driver.closed, record.storage.shm_closed


def test_what_the_owner_may_use_is_not_told(open_host: Tree) -> None:
    assert closed(open_host) == ((), False)


def test_devices_libraries_and_programs_of_root_alone_are_told(
    open_host: Tree,
) -> None:
    root = open_host.root
    for device in DEVICES:
        Path(f"{root}{device}").chmod(0o600)
    for file in Path(f"{root}{LIBDIR}").glob("libcuda.so.5*"):
        file.chmod(0o600)
    (root / "usr/bin/nvidia-smi").chmod(0o700)
    (root / "dev/shm").chmod(0o755)
    expected = (*DEVICES, f"{LIBDIR}/libcuda.so.1", "/usr/bin/nvidia-smi")
    assert closed(open_host) == (expected, True)


def test_a_device_that_may_only_be_read_is_told(open_host: Tree) -> None:
    Path(f"{open_host.root}/dev/nvidiactl").chmod(0o644)
    assert closed(open_host) == (("/dev/nvidiactl",), False)


def test_variables_for_every_login_are_told_without_their_values(tree: Tree) -> None:
    etc = tree.root / "etc"
    write(etc / "environment", "LANG=C.UTF-8\n#PYTHONHOME=/x\nCUDA_VISIBLE_DEVICES=s3cret\n")
    write(etc / "environment.d/50-lab.conf", "PYTHONPATH=/opt/lab\n")
    write(etc / "security/pam_env.conf", "# X DEFAULT=1\nLD_PRELOAD DEFAULT=/x.so OVERRIDE=\n")
    write(etc / "profile.d/lab.sh", "if true; then\n\texport  LD_LIBRARY_PATH='/opt/x y'\nfi\n")
    write(etc / "profile.d/more.csh", "PYTHONPATH=/of another shell\n")
    assert tree.look().environment.for_all == (
        "/etc/environment CUDA_VISIBLE_DEVICES",
        "/etc/environment.d/50-lab.conf PYTHONPATH",
        "/etc/security/pam_env.conf LD_PRELOAD",
        "/etc/profile.d/lab.sh LD_LIBRARY_PATH",
    )
    assert "s3cret" not in tree.output()


def test_what_the_loader_is_to_load_is_told_with_whether_it_is_there(
    tree: Tree,
) -> None:
    write(tree.root / "opt/agent.so", "")
    write(
        tree.root / "etc/ld.so.preload",
        "# an agent\n/opt/agent.so:/opt/gone.so\nlibjemalloc.so.2 /usr/$LIB/x.so # mine\n",
    )
    system = tree.look().system
    assert system.preload == (
        *("1 /opt/agent.so", "0 /opt/gone.so"),
        *("- libjemalloc.so.2", "- /usr/$LIB/x.so"),
    )
    assert system.preload_problem is None


def test_the_loaders_own_words_are_told(tree: Tree) -> None:
    write(tree.root / "etc/ld.so.preload", "/opt/odd.so")
    said = (
        "ERROR: ld.so: object '/opt/odd.so' from /etc/ld.so.preload cannot be preloaded: ignored."
    )
    real = shutil.which("true")
    tree.tool("true", f'echo "{said}" >&2\nexec {real}')
    assert tree.look().system.preload_problem == said


@pytest.mark.parametrize("name", ["user@.service", "user@%d.service", "systemd-logind.service"])
def test_a_manager_that_is_masked_is_told(tree: Tree, name: str) -> None:
    folder = tree.root / "etc/systemd/system"
    folder.mkdir(parents=True)
    file = folder / (name % os.geteuid() if "%" in name else name)
    write(folder / "ssh.service", "[Unit]\n")
    file.symlink_to("/dev/null")
    assert tree.look().launcher.masked == (f"/etc/systemd/system/{file.name}",)


def test_a_manager_that_is_not_on_is_told_where_the_kernel_says_so(
    tree: Tree,
) -> None:
    assert tree.look().launcher.manager is None
    groups = tree.root / "sys/fs/cgroup"
    write(groups / "cgroup.controllers", "cpu\n")
    assert tree.look().launcher.manager is False
    own = os.geteuid()
    (groups / f"user.slice/user-{own}.slice/user@{own}.service").mkdir(parents=True)
    assert tree.look().launcher.manager is True
