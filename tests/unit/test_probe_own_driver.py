"""What the probe tells of alternatives and of the module that modprobe is told to load."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from nvidia_tree import RUNNING, gpu_host_fixture, look  # noqa: F401
from probing import Tree, tree_fixture, write  # noqa: F401

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import Alternative

DEBIANS = "install nvidia modprobe -i nvidia-current-open $CMDLINE_OPTS\n"
GROUP = """\
auto
/usr/lib/glx
glx--cfg
/usr/lib/cfg.so
glx--manual
/usr/share/manual.gz
glx--rules
/etc/modprobe.d/nvidia.conf

/usr/lib/mesa-diverted
5



/usr/lib/nvidia
100
/usr/lib/nvidia/cfg.so
/usr/lib/nvidia/manual.gz
/etc/nvidia/rules.conf

"""


def file(tree: Tree, name: str, text: str) -> None:
    path = tree.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def link(tree: Tree, name: str, target: str) -> None:
    """A link that leads to TARGET below the tree; one of the group itself keeps its text."""
    path = tree.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target if name == "etc/alternatives/glx" else tree.root / target)


@pytest.fixture(name="debian")
def debian_fixture(gpu_host: Tree) -> Tree:
    """A group that leads where its choice says; the manual page of a package was left out."""
    file(gpu_host, "var/lib/dpkg/alternatives/glx", GROUP)
    for name in ("usr/lib/nvidia/cfg.so", "etc/nvidia/rules.conf"):
        file(gpu_host, name, DEBIANS)
    link(gpu_host, "etc/alternatives/glx", "/usr/lib/nvidia")
    link(gpu_host, "usr/lib/glx", "usr/lib/nvidia")
    link(gpu_host, "usr/lib/cfg.so", "usr/lib/nvidia/cfg.so")
    link(gpu_host, "etc/modprobe.d/nvidia.conf", "etc/nvidia/rules.conf")
    return gpu_host


def glx(tree: Tree) -> Alternative:
    (found,) = look(tree).nvidia.alternatives  # type: ignore[misc]
    return found


def test_a_group_that_leads_where_it_says_is_whole(debian: Tree) -> None:
    assert glx(debian) == Alternative(
        name="glx", auto=True, leads_to="/usr/lib/nvidia", broken=None
    )


def test_a_choice_by_hand_for_which_some_links_are_not_there(debian: Tree) -> None:
    file(debian, "var/lib/dpkg/alternatives/glx", GROUP.replace("auto", "manual", 1))
    (debian.root / "usr/lib/mesa-diverted").mkdir()
    link(debian, "etc/alternatives/glx", "/usr/lib/mesa-diverted")
    link(debian, "usr/lib/glx", "usr/lib/mesa-diverted")
    assert glx(debian) == Alternative(
        name="glx", auto=False, leads_to="/usr/lib/mesa-diverted", broken=None
    )


@pytest.mark.parametrize("name", ["usr/lib/cfg.so", "etc/modprobe.d/nvidia.conf", "usr/lib/glx"])
def test_a_link_that_is_gone_or_leads_elsewhere_is_named(debian: Tree, name: str) -> None:
    (debian.root / name).unlink()
    assert glx(debian).broken == f"/{name}"
    file(debian, name, "mine\n")
    assert glx(debian).broken == f"/{name}"


def test_without_the_groups_own_link_it_leads_nowhere(debian: Tree) -> None:
    (debian.root / "etc/alternatives/glx").unlink()
    assert glx(debian).leads_to is None


@pytest.mark.parametrize(
    ("text", "module"),
    [
        (DEBIANS, "nvidia-current-open"),
        ("# install nvidia x\ninstall nvidia-drm modprobe -i y\n", None),
        ("alias nvidia off\nalias nvidia-drm off\n", "nothing"),
        ("install nvidia /bin/false\n", "/bin/false"),
        ("install nvidia modprobe --ignore-install nvidia-x A=1", "nvidia-x"),
        ("install\tnvidia  modprobe  -i nvidia $CMDLINE_OPTS", "nvidia"),
    ],
)
def test_the_module_that_a_rule_has_loaded(gpu_host: Tree, text: str, module: str | None) -> None:
    file(gpu_host, "etc/modprobe.d/nvidia.conf", text)
    said = (
        'case "$*" in *nvidia-*) echo "version:        535.261.03" ;; *) exec %s/usual "$@" ;; esac'
    )
    (gpu_host.tools / "modinfo").rename(gpu_host.tools / "usual")
    gpu_host.tool("modinfo", said % gpu_host.tools)
    driver = look(gpu_host).driver
    assert driver.module == (None if module is None else f"{module} /etc/modprobe.d/nvidia.conf")
    assert driver.on_disk == ("535.261.03" if "-" in str(module) else "580.95.05")


def test_rules_that_may_not_be_read_are_no_rules(gpu_host: Tree) -> None:
    link(gpu_host, "etc/modprobe.d/nvidia.conf", "nowhere")
    driver = look(gpu_host).driver
    assert driver.module is None and not isinstance(driver.on_disk, Unknown)
    assert look(gpu_host).kernel.modules[RUNNING] == "580.95.05"  # type: ignore[index]
