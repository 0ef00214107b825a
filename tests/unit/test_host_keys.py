"""Host keys: what we accept, `ssh` accepts with the same files. Real `ssh`, real connections."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import paramiko
import pytest
from pyinfra.connectors import ssh as connector

from pyinfra_gpu.engine import transport

HERE = Path(__file__).parent


def new_key(path: Path, kind: str = "ed25519") -> str:
    """Make a key and return its public half: "KIND BASE64"."""
    # As few bits as are accepted: of RSA's, 3072 take half a second of a processor.
    size = ["-b", "2048"] if kind == "rsa" else []
    quiet = ["ssh-keygen", "-q", "-t", kind, *size, "-N", "", "-C", "", "-f", str(path)]
    subprocess.run(quiet, check=True)
    return path.with_suffix(".pub").read_text(encoding="utf-8").strip()


@dataclass(frozen=True)
class Served:
    """A server, its own keys, one of somebody else's, and a client's."""

    port: int
    ed25519: str
    rsa: str
    other: str
    other_rsa: str
    client: Path
    folder: Path

    @property
    def name(self) -> str:
        return f"[127.0.0.1]:{self.port}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    transport.install()
    folder = tmp_path_factory.mktemp("keys")
    own = [new_key(folder / "host"), new_key(folder / "host_rsa", "rsa")]
    others = [new_key(folder / "other"), new_key(folder / "other_rsa", "rsa")]
    new_key(folder / "client")
    port = serving(folder / "host", folder / "host_rsa")
    return Served(port, *own, *others, folder / "client", folder)


def serving(*keys: Path) -> int:
    """The port of a server with these host keys, which is there until the tests end."""
    stdin, stdout = servers().stdin, servers().stdout
    assert stdin
    assert stdout
    stdin.write(json.dumps([str(key) for key in keys]) + "\n")
    stdin.flush()
    return int(stdout.readline())


@cache
def servers() -> subprocess.Popen[str]:
    """The process of all servers: to import what they are made of takes as long as ten tests."""
    command = [sys.executable, HERE / "ssh_server.py"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ssh_accepts(served: Served, known: Path, strictness: str, host: str = "127.0.0.1") -> bool:
    """What the real client says, which is asked for nothing else than the host's key."""
    options = [
        *("-F", "none", "-p", str(served.port), "-i", str(served.client)),
        *("-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={known}"),
        *("-o", "GlobalKnownHostsFile=none", "-o", f"StrictHostKeyChecking={strictness}"),
    ]
    done = subprocess.run(
        ["ssh", *options, host, "true"], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0 or "Host key verification failed" in done.stderr, done.stderr
    return done.returncode == 0


def refusal(
    served: Served, host: str, config: str, strictness: str | None = "accept-new"
) -> str | None:
    """What pyinfra's client says, as its connector uses it; None where it connects."""
    file = served.folder / f"config-{random.getrandbits(64):x}"
    file.write_text(f"{config}\nUser somebody\nIdentityFile {served.client}\n", encoding="utf-8")
    client = connector.SSHClient()
    try:
        client.connect(
            host,
            _pyinfra_ssh_config_file=str(file),
            _pyinfra_ssh_strict_host_key_checking=strictness,
            allow_agent=False,
            look_for_keys=False,
            timeout=20,
        )
    except (OSError, paramiko.SSHException) as error:
        return str(error)
    finally:
        client.close()
    return None


def config(served: Served, known: Path, host: str = "127.0.0.1") -> str:
    return (
        f"Host {host}\nPort {served.port}\nUserKnownHostsFile {known}\nGlobalKnownHostsFile none\n"
    )


def hashed(name: str, folder: Path) -> str:
    file = folder / "to_hash"
    file.write_text(f"{name} ssh-ed25519 {'A' * 68}\n", encoding="utf-8")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    return file.read_text(encoding="utf-8").split()[0]


DAMAGED = "{name} ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA"
FILES: dict[str, tuple[str, str | None]] = {
    # what is in the file, and what the refusal says; None: it is accepted
    "known": ("{name} {ed25519}", None),
    "changed": ("{name} {other}", "known line 1"),
    "changed after a line that is no text": ("x\xff\x00\x01 y z\n{name} {other}", "known line 2"),
    "changed after @cert-authority": ("@cert-authority * {rsa}\n{name} {other}", "known line 2"),
    "known by its other key": ("{name} {rsa}", None),
    "its other key is changed": ("{name} {other_rsa}", "ssh-rsa key"),
    "another without its port": ("127.0.0.1 {other}", None),
    "changed by a pattern": ("[127.0.0.?]:* {other}", "known line 1"),
    "hashed": ("{hashed} {ed25519}", None),
    "revoked": ("@revoked * {ed25519}\n{name} {ed25519}", "revoked by"),
    "nothing": ("", None),
    # ssh would take a new key here
    "damaged": (DAMAGED, "known line 1"),
    "of an authority alone": ("@cert-authority 127.0.0.1,{name} {rsa}", "certificate authority"),
}
STRICTER = ["damaged", "of an authority alone"]


def written(served: Served, text: str, path: Path) -> Path:
    known = path / "known"
    words = {"name": served.name}
    if "{hashed}" in text:
        words["hashed"] = hashed(served.name, path)
    keys = ("ed25519", "rsa", "other", "other_rsa")
    words |= {key: getattr(served, key) for key in keys}
    known.write_bytes(text.format(**words).encode("latin-1"))
    return known


@pytest.mark.parametrize("case", FILES)
def test_what_is_accepted_and_what_is_refused(served: Served, case: str, tmp_path: Path) -> None:
    text, reason = FILES[case]
    known = written(served, text, tmp_path)
    before = known.read_bytes()
    by_ssh = ssh_accepts(served, known, "accept-new")
    known.write_bytes(before)
    said = refusal(served, "127.0.0.1", config(served, known))
    assert said is None if reason is None else reason in (said or ""), said
    assert by_ssh == (reason is None or case in STRICTER)


def test_a_new_key_is_stored_on_a_line_of_its_own_as_ssh_stores_it(
    served: Served, tmp_path: Path
) -> None:
    known = tmp_path / "known"
    known.write_text(f"elsewhere {served.other}", encoding="utf-8")  # no line break at its end
    assert refusal(served, "127.0.0.1", config(served, known)) is None
    assert known.read_text().splitlines()[1] == f"{served.name} {served.ed25519}"
    assert ssh_accepts(served, known, "yes")
    assert refusal(served, "127.0.0.1", config(served, known), "yes") is None


FIRST, SECOND = "UserKnownHostsFile {0}/a {0}/b", 'UserKnownHostsFile {0}/b "{0}/a"'
NONE, UNKNOWN = "UserKnownHostsFile {0}/new", "log in there once"
CONFIGURED = [
    # ~/.ssh/config of a host whose key is in the file `a`, what data says, what the refusal says
    (FIRST, "yes", None),
    (SECOND, "yes", None),
    ("UserKnownHostsFile none\nGlobalKnownHostsFile {0}/b {0}/a", "yes", None),
    ("UserKnownHostsFile {0}/b", "yes", "no key of [127.0.0.1]"),
    ("UserKnownHostsFile {0}/c\nHostKeyAlias gpu2", "yes", None),
    ("UserKnownHostsFile {0}/a\nHostKeyAlias gpu2", "yes", "no key of gpu2"),
    ("UserKnownHostsFile {0}/missing/new", "accept-new", None),
    ("UserKnownHostsFile ~/.ssh/%h", "yes", "%h"),
    (f"{FIRST}\nRevokedHostKeys /etc/ssh/revoked", "yes", "RevokedHostKeys /etc/ssh/revoked"),
    (NONE, "accept-new", None),
    (f"{NONE}\nStrictHostKeyChecking yes", "accept-new", UNKNOWN),
    (f"{NONE}\nStrictHostKeyChecking no", "yes", UNKNOWN),
    (NONE, "ask", UNKNOWN),
    (NONE, "no", None),
    (NONE, None, UNKNOWN),
]


@pytest.mark.parametrize(("text", "data", "reason"), CONFIGURED)
def test_what_is_configured_holds_and_a_key_that_is_accepted_as_new_is_stored(
    served: Served, tmp_path: Path, text: str, data: str | None, reason: str | None
) -> None:
    (tmp_path / "a").write_text(f"elsewhere {served.other}\n{served.name} {served.ed25519}\n")
    (tmp_path / "b").write_text(f"elsewhere {served.other}\n")
    (tmp_path / "c").write_text(f"gpu2 {served.ed25519}\n{served.name} {served.other}\n")
    same = f"Host *\nPort {served.port}\nHostName 127.0.0.1\n{text.format(tmp_path)}\n"
    said = refusal(served, "behind", f"{same}GlobalKnownHostsFile none\n", data)
    assert said is None if reason is None else reason in (said or ""), said
    assert (tmp_path / "new").exists() == (NONE in text and reason is None and data != "no")


HOPS = [
    # what is known of the jump host, its ~/.ssh/config, what the refusal says
    ("{name} {ed25519}", "", None),
    ("{name} {other}", "", "is not the one in"),
    ("", "", "no key of [127.0.0.1]"),
    ("", "StrictHostKeyChecking accept-new", None),
]


@pytest.mark.parametrize(("hop", "configured", "reason"), HOPS)
def test_a_jump_host_is_judged_by_its_own_files_and_nobody_is_asked(
    served: Served,
    tmp_path: Path,
    hop: str,
    configured: str,
    reason: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("builtins.input", lambda text="": pytest.fail(f"it asked: {text}"))
    known, behind = written(served, hop, tmp_path), tmp_path / "behind"
    behind.write_text(f"{served.name} {served.ed25519}\n")
    text = config(served, known, "hop") + f"HostName 127.0.0.1\n{configured}\n"
    text += config(served, behind, "behind") + "HostName 127.0.0.1\nProxyJump hop\n"
    text += f"Host *\nUser somebody\nIdentityFile {served.client}\n"
    said = refusal(served, "behind", text, "yes")
    assert said is None if reason is None else reason in (said or ""), said
