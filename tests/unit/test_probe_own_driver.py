"""What the probe tells of the module that modprobe is told to load."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from nvidia_tree import RUNNING, gpu_host_fixture, look  # noqa: F401
from probing import Tree, tree_fixture, write  # noqa: F401

from pyinfra_gpu.facts.fields import Unknown

DEBIANS = "install nvidia modprobe -i nvidia-current-open $CMDLINE_OPTS\n"


def file(tree: Tree, name: str, text: str) -> None:
    path = tree.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


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
    (gpu_host.root / "etc/modprobe.d/nvidia.conf").symlink_to("nowhere")
    driver = look(gpu_host).driver
    assert driver.module is None and not isinstance(driver.on_disk, Unknown)
    assert look(gpu_host).kernel.modules[RUNNING] == "580.95.05"  # type: ignore[index]
