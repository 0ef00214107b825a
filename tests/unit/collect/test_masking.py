"""What an archive of `collect` holds: no name, address, number or secret; the rest unharmed."""

from __future__ import annotations

import json

import pytest

from pyinfra_gpu.report.collect.masking import Masks, masked_fields

HOSTS, USERS = ("ws1.lab.example", "ws1"), ("anna", "ubuntu")


def masked(text: str) -> str:
    return Masks(hosts=HOSTS, users=USERS).text(text)


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
    "Requested-By: anna (1000)": "Requested-By: user-1 (1000)",
    "by anna.b@lab.example.org": "by mail-1",
    "deb https://anna:s3cret@mirror.example/x ./": "deb https://***@mirror.example/x ./",
    "HF_TOKEN=hf_abcdefghijkl": "HF_TOKEN=secret-1",
    '"wandb_api_key": "0123456789abcdef"': '"wandb_api_key": "secret-1"',
    "using ghp_0123456789abcdefghij here": "using secret-1 here",
    "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----": "(a private key)",
}  # fmt: skip


@pytest.mark.parametrize("text", REPLACED)
def test_what_says_who_and_where_is_replaced(text: str) -> None:
    assert masked(text) == REPLACED[text]


KEPT = [
    "cudnn 9.24.0.43-1, nvidia_cudnn_cu13-9.24.0.43.dist-info, libcudnn9=9.24.0.43",
    "NVRM version: NVIDIA UNIX Open Kernel Module  580.95.05  Release Build",
    "0000:01:00.0 VGA compatible controller [0300]: NVIDIA [10de:2b85] (rev a1)",
    "00000000:01:00.0 Off, at 12:34:56, 2026-11-22T12:34:56Z",
    "PCI:0000:01:00 GPU-I:05): 94",
    "  Installed: 580.95.05-0ubuntu1\n  Candidate: 1:3.2.1-1ubuntu2",
    "    Serial Number                  : N/A",
    "listening on 127.0.0.1 and ::1 and 0.0.0.0",
    "sig_key: 5F:0C:11:22:33:44:55:66:77:88:99:AA:9D:CA\nsignature: 08:00:27:4E:66:A1:",
    "annabelle and ws10 are other names; Xid 79",
    "Author: NVIDIA, authority, tokenizer of 32000",
    "ubuntu",  # which everybody is called who logs in there
]


@pytest.mark.parametrize("text", KEPT)
def test_versions_places_and_times_are_left(text: str) -> None:
    assert masked(text) == text


def test_the_same_is_the_same_word_in_all_texts_of_a_host() -> None:
    masks = Masks(hosts=HOSTS)
    assert masks.text("10.0.0.1 10.0.0.2") == "address-1 address-2"
    assert masks.text("10.0.0.2 on ws1") == "address-2 on host-1"
    assert masks.counts == {"address": 2, "host": 1}


def test_an_answer_is_masked_in_both_its_halves_and_stays_one() -> None:
    inner = json.dumps({"training.remote": "https://anna:s3cret@x/y", "z": ["host ws1\nof anna"]})
    told = {"system.hostname": "ws1", "n": 7, "owner": inner}
    lines = masked_fields(["pyinfra-gpu-probe 1", json.dumps(told), "end"], Masks(HOSTS, USERS))
    assert (lines[0], lines[-1]) == ("pyinfra-gpu-probe 1", "end")
    found = json.loads("\n".join(lines[1:-1]))
    assert (found["system.hostname"], found["n"]) == ("host-1", 7)
    assert json.loads(found["owner"]) == {
        "training.remote": "https://***@x/y",
        "z": ["host host-1\nof user-1"],
    }
