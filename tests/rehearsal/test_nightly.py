"""A nightly torch, from a private index that forgets it: the controller's files serve every host.

The wheels are made here and have nothing of PyTorch; what is shown is where hosts get them from.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path

import pytest
from running import Deployer
from wheels import index, sha256, wheel

from pyinfra_gpu_rehearsal import Lab, LabHost

pytestmark = pytest.mark.rehearsal

DATE, NEXT = "2.16.0.dev20261120", "2.16.0.dev20261122"
ASKED = "import torch, pytorch_triton; print(torch.text, pytorch_triton.text)"


def test_every_host_gets_the_files_of_the_first_use_when_the_index_has_forgotten_them(
    lab: Lab, deployer: Deployer, proven: Callable[[str], LabHost], tmp_path: Path
) -> None:
    first, second = (proven(name) for name in ("gpu1", "gpu2"))
    for host in (first, second):
        host.run("rm -rf /opt/pyinfra-gpu")
    python = first.run("python3 -V").stdout.split()[1].rpartition(".")[0].replace(".", "")
    tag = f"cp{python}-cp{python}-manylinux_2_28_{platform.machine()}"
    needs = "pytorch-triton==3.6.0"
    for version in (DATE, NEXT):
        wheel(tmp_path / "w", "torch", f"{version}+cpu", requires=needs, tag=tag, text=version)
    wheel(tmp_path / "w", "pytorch_triton", "3.6.0", tag=tag, text="3.6.0")
    served = index(tmp_path / "w", lab.directory / "www/nightly")
    data = (
        "smoke=skip",
        "environment_dynamo=false",
        "training_requirements=null",
        "pytorch_source=nightly",
        f"pytorch_extra_index_url={lab.url}/nightly/",
    )
    folder = tmp_path / "runs"
    folder.mkdir()
    nightly = Deployer(lab, folder, data=(*data, f"pytorch_version={DATE}"))
    nightly.converge(limit=first.name)
    said = first.run(f"/opt/pyinfra-gpu/venv/bin/python -c '{ASKED}'").stdout
    assert said.split() == [DATE, "3.6.0"]
    (kept,) = folder.glob(f"pyinfra-gpu/nightlies/*/torch-{DATE}*.whl")
    assert sha256(kept) == sha256(next((tmp_path / "w").glob(f"torch-{DATE}*.whl")))

    for each in served.glob("*torch*/*"):
        each.unlink()
    for each in (tmp_path / "w").glob(f"*{DATE}*"):
        each.unlink()
    for each in (tmp_path / "w").glob("pytorch_triton*"):
        each.unlink()
    index(tmp_path / "w", served)
    both = nightly.converge()
    assert both.changed(first.name) == []
    assert second.run(f"/opt/pyinfra-gpu/venv/bin/python -c '{ASKED}'").stdout.split() == [
        DATE, "3.6.0",
    ]  # fmt: skip
    again = nightly.converge()
    assert (again.changed(first.name), again.changed(second.name)) == ([], [])
