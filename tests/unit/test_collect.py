"""`collect`: a file holds no names, addresses, serial numbers and secrets."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pyinfra_gpu.cli import main
from pyinfra_gpu.engine.look import Unanswered
from pyinfra_gpu.on_host import program
from pyinfra_gpu.report import collect
from pyinfra_gpu.report.collect import without_names

HOSTS, USERS = ("ws1.lab.example", "ws1"), ("anna", "ubuntu")
REPLACED = {
    "ws1 kernel: NVRM: loading": "host-1 kernel: NVRM: loading",
    "from ws1.lab.example to ws1": "from host-1 to host-2",
    "/home/anna/run by anna": "/home/user-1/run by user-1",
    "GPU-1b7ed0e1-8c0a-4f3e-a7a9-0d4b0f0c2d1e": "GPU-uuid-1",
    "root=UUID=3d235e2e-1d37-47dd-ab61-25ad81ad7603 ro": "root=UUID=uuid-1 ro",
    "    Serial Number          : 1324920012345": "    Serial Number          : serial-1",
    "inet 10.1.2.3, gateway 192.168.0.254": "inet address-1, gateway address-2",
    "inet6 2001:db8::1 scope": "inet6 address-1 scope",
    "inet6 fe80::a00:27ff:fe4e:66a1/64": "inet6 address-1/64",
    "link/ether 08:00:27:4e:66:a1 brd": "link/ether mac-1 brd",
    "by anna.b@lab.example.org": "by mail-1",
    "deb https://anna:s3cret@mirror.example/x ./": "deb https://***@mirror.example/x ./",
    "HF_TOKEN=hf_abcdefghijkl": "HF_TOKEN=secret-1",
    '"wandb_api_key": "0123456789abcdef"': '"wandb_api_key": "secret-1"',
    "using ghp_0123456789abcdefghij here": "using secret-1 here",
    "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----": "(a private key)",
}
KEPT = [
    "cudnn 9.24.0.43-1, nvidia_cudnn_cu13-9.24.0.43.dist-info, libcudnn9=9.24.0.43",
    "NVRM version: NVIDIA UNIX Open Kernel Module  580.95.05  Release Build",
    "0000:01:00.0 VGA compatible controller [0300]: NVIDIA [10de:2b85] (rev a1)",
    "00000000:01:00.0 Off, at 12:34:56, 2026-11-22T12:34:56Z",
    "PCI:0000:01:00 GPU-I:05): 94",
    "    Serial Number                  : N/A",
    "listening on 127.0.0.1 and ::1 and 0.0.0.0",
    "sig_key: 5F:0C:11:22:33:44:55:66:77:88:99:AA:9D:CA\nsignature: 08:00:27:4E:66:A1:",
    "annabelle and ws10 are other names; Xid 79",
    "Author: NVIDIA, authority, tokenizer of 32000",
    "ubuntu",  # which everybody is called who logs in there
]


def masked(text: str) -> str:
    return without_names(text, HOSTS, USERS)


@pytest.mark.parametrize("text", REPLACED)
def test_what_says_who_and_where_is_replaced(text: str) -> None:
    assert masked(text) == REPLACED[text]


@pytest.mark.parametrize("text", KEPT)
def test_versions_places_and_times_are_left(text: str) -> None:
    assert masked(text) == text


def test_the_same_is_the_same_word_wherever_it_stands() -> None:
    text = without_names("10.0.0.1 10.0.0.2\n10.0.0.2 on ws1", HOSTS, ())
    assert text == "address-1 address-2\naddress-2 on host-1"


def test_every_program_answers_on_a_machine_without_any_gpu(tmp_path: Path) -> None:
    (tmp_path / "verdict.json").write_text("{}\n")
    os.mkfifo(tmp_path / "fifo.json")
    texts = [
        subprocess.run(["sh", "-c", text], capture_output=True, text=True, timeout=120).stdout
        for text in (
            *(
                program(path, "=====", uses=("collect/item.sh",))
                for path in ("collect/system.sh", "packages/apt/collect.sh")
            ),
            program("collect/owner.sh", "=====", str(tmp_path)),
        )
    ]
    names = texts[0].partition("===== item names\n")[2].partition("\n=====")[0].split()
    assert names[0] == os.uname().nodename
    assert "PRETTY_NAME" in texts[0]
    assert texts[-1] == "\n===== item verdict.json\n{}\n\n===== status\n"


def test_a_file_is_its_owners_alone_and_that_of_another_host_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = {"gpu1": Unanswered(reason="gone"), "gpu2": ("system.kernel = 6.1\n", "")}
    monkeypatch.setattr(collect, "ask", lambda *words: (answers, ()))
    for _ in range(2):
        assert main(["collect", "x.py", "--folder", str(tmp_path / "new")]) == 1
        assert "! gpu1: gone\ngpu2: " in capsys.readouterr().out
    files = sorted((tmp_path / "new").iterdir())
    assert [each.name for each in files] == ["host-1.txt", "host-2.txt"]
    assert {(f.stat().st_mode & 0o777, f.read_text()) for f in files} == {
        (0o600, "system.kernel = 6.1\n")
    }
