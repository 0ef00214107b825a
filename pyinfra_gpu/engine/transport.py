"""SSH: host keys as `ssh` judges them, and connections that end in time.

All that knows paramiko is here. pyinfra makes its clients by the name `SSHClient`, also for the
hosts of a ProxyJump, and has no argument for how their keys are judged: `install`, which the
command line calls, has that name mean ours. Nothing is changed by an import.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import re
import shlex
import socket
import subprocess
import time
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import paramiko
from pyinfra.api.exceptions import ConnectError, PyinfraError
from pyinfra.connectors import ssh as pyinfra_ssh
from pyinfra.connectors import sshuserclient
from pyinfra.connectors.sshuserclient import client as pyinfra_client

from pyinfra_gpu.engine.deadlines import within
from pyinfra_gpu.text import shortened

DEAD_PEER_S = 20  # without an acknowledgement, after which a connection is given up
KEEPALIVE_S = 5  # between packets that let an idle wait notice a dead peer too
LOGIN_S = 60.0  # to the end of the login, with a touch of a hardware key
_BEFORE_LOGIN = 1 << 17  # bytes that a peer may send until then; keys and banners come to a tenth
_READS = 16  # in a row, after which other hosts have their turn
_LONGEST = 500  # characters of why there is no connection
_USER_FILES = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
_SYSTEM_FILES = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
_FOUND = re.compile(r"# Host .* found: line (\d+) ?(CA|REVOKED|)")
_connect = pyinfra_ssh.SSHConnector.connect


class HostKeyError(paramiko.SSHException):
    """A host key that is not accepted: one sentence that names the file, the line, the remedy."""


class _Line(NamedTuple):
    """A line of a known_hosts file; its marker is "", "CA" or "REVOKED"."""

    place: str
    marker: str
    key: tuple[str, str]


class HostKeys(paramiko.MissingHostKeyPolicy):
    """Judges the key of one host; paramiko itself is told of no key at all.

    What is accepted `ssh` accepts with the same files. It is stricter where a line names a
    certificate authority or a revoked key.
    """

    def __init__(
        self, name: str, port: int, config: Mapping[str, Any], file: str | None, strict: str | None
    ) -> None:
        """Read what is known of a host. Raises HostKeyError.

        + config: what ~/.ssh/config says of the host
        + file: a known_hosts file in the place of the configured ones
        + strict: as StrictHostKeyChecking; None: as configured. A configured "yes" always holds
        """
        if revoked := config.get("revokedhostkeys"):
            raise HostKeyError(
                f"RevokedHostKeys {revoked} is configured, and such files are not read here: take"
                " those keys as `@revoked * KEY` into known_hosts"
            )
        configured = str(config.get("stricthostkeychecking", "ask"))
        self._unknown = "yes" if configured == "yes" else strict or configured
        self._user = _files(shlex.quote(file) if file else config.get("userknownhostsfile"))
        files = [*self._user, *_files(config.get("globalknownhostsfile"), _SYSTEM_FILES)]
        self._name = config.get("hostkeyalias") or (name if port == 22 else f"[{name}]:{port}")
        self._all = [line for file in files for line in _lines_about(self._name, file)]
        self.known = [line for line in self._all if not line.marker]

    def missing_host_key(self, client: Any, hostname: str, key: paramiko.PKey) -> None:
        """Accept a host's key, or raise HostKeyError."""
        name, mine = self._name, (key.get_name(), key.get_base64())
        digest = base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")
        shows = f"the {mine[0]} key that {name} shows (SHA256:{digest})"
        if place := next((x.place for x in self._all if x[1:] == ("REVOKED", mine)), None):
            raise HostKeyError(
                f"{shows} is revoked by {place}: give the host a new one, or take that line out"
            )
        if mine in [line.key for line in self.known]:
            return
        if self.known:
            other = next((line for line in self.known if line.key[0] == mine[0]), self.known[0])
            raise HostKeyError(
                f"{shows} is not the one in {other.place}, so somebody may be listening in: compare"
                " it on the host's console"
                " (`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub`); if it is right,"
                f" `ssh-keygen -R '{name}' -f {other.place.rpartition(' line ')[0]}`"
            )
        if authority := next((line.place for line in self._all if line.marker == "CA"), None):
            raise HostKeyError(
                f"{authority} knows {name} by a certificate authority alone, and certificates of"
                " hosts are not read here: add a line with the host's own key"
            )
        if self._unknown in ("ask", "yes"):
            raise HostKeyError(
                f"no key of {name} is known, and unknown hosts are not accepted: log in there"
                " once by `ssh`, and compare the key it shows with the one on the host's console"
            )
        file = client._host_keys_filename = self._user[0] if self._user else None
        if file:
            file.parent.mkdir(mode=0o700, exist_ok=True)
        if file and file.is_file() and file.read_bytes()[-1:] not in (b"", b"\n"):
            with file.open("a", encoding="ascii") as opened:  # a key has a line of its own
                opened.write("\n")
        policy = pyinfra_client.get_missing_host_key_policy(self._unknown)  # type: ignore[no-untyped-call]
        policy.missing_host_key(client, name, key)


def _files(value: str | None, default: str = _USER_FILES) -> list[Path]:
    value = value or default
    if "%" in value:
        raise HostKeyError(
            f"known_hosts is configured as {value}, and % is not expanded here: name the"
            " file in `ssh_known_hosts_file`"
        )
    return [Path(word).expanduser() for word in shlex.split(value) if word.lower() != "none"]


def _lines_about(name: str, file: Path) -> list[_Line]:
    """Return what OpenSSH's own reader finds: it knows hashes, patterns, ports and markers."""
    if not file.is_file():
        return []
    asked = ["ssh-keygen", "-F", name, "-f", str(file)]
    try:
        done = subprocess.run(asked, capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostKeyError(f"`ssh-keygen -F` cannot be asked ({error}): install it") from error
    if done.returncode not in (0, 1):
        said = shortened(done.stderr.decode("utf-8", "replace"), _LONGEST)
        raise HostKeyError(f"{file} cannot be read ({said}), so no host key is accepted")
    found: list[_Line] = []
    rows = iter(done.stdout.decode("latin-1").split("\n"))
    for row in rows:
        if match := _FOUND.match(row):
            # The line itself, whose names and key may be damaged or missing.
            words = next(rows, "").split()[bool(match[2]) :]
            kind, blob = [*words, "", "", ""][1:3]
            found.append(_Line(f"{file} line {match[1]}", match[2], (kind, blob)))
    return found


class _Socket:
    """The socket of one connection, fair to the other hosts and bounded before the login.

    As long as a peer sends, a socket of gevent's hands out what is there and lets nobody else run.
    """

    def __init__(self, sock: Any) -> None:
        self._inner = sock
        self._received = self._reads = 0
        self.transport: paramiko.Transport | None = None

    def recv(self, size: int) -> bytes:
        """Return what has come.

        Raises SSHException where that is too much: paramiko's thread would stumble over an OSError
        without a number.
        """
        self._reads += 1
        if not self._reads % _READS:
            time.sleep(0)
        data = bytes(self._inner.recv(size))
        if self.transport is None or not self.transport.is_authenticated():
            self._received += len(data)
            if self._received > _BEFORE_LOGIN:
                sent = f"it sent more than {_BEFORE_LOGIN >> 10} KiB before the login"
                raise paramiko.SSHException(sent)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def make_transport(sock: Any, kinds: Collection[str] = (), **kwargs: Any) -> paramiko.Transport:
    """Build the SSH transport for one connection, with the socket underneath tuned.

    + sock: what paramiko connected: a TCP socket, a ``paramiko.Channel`` when the host is reached
      through a ProxyJump, or a ``paramiko.ProxyCommand``
    + kinds: of host keys that are known, and asked for first: the host may have others
    + kwargs: paramiko's own transport arguments, passed on unchanged

    paramiko leaves Nagle's algorithm on, which with delayed ACKs costs about 40 ms a command, and
    waits for ever on a peer that vanished without a word.
    """
    if isinstance(sock, socket.socket) and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux only, see tcp(7); in milliseconds
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_PEER_S * 1000)
    fair = _Socket(sock)
    transport = fair.transport = paramiko.Transport(fair, **kwargs)  # type: ignore[arg-type]
    transport.set_keepalive(KEEPALIVE_S)
    options = transport.get_security_options()
    plain = [each for each in options.key_types if each != "ssh-rsa"]  # SHA-1, as for ssh
    signed = {*kinds, *(["rsa-sha2-512", "rsa-sha2-256"] if "ssh-rsa" in kinds else [])}
    options.key_types = tuple(sorted(plain, key=lambda each: each not in signed))
    return transport


class Client(pyinfra_client.SSHClient):
    """pyinfra's client, which accepts the keys of hosts and of jump hosts as `ssh` does."""

    _file: str | None = None

    def connect(  # type: ignore[override]
        self, hostname: str, _pyinfra_ssh_known_hosts_file: str | None = None, **kwargs: Any
    ) -> None:
        """Connect; for jump hosts pyinfra calls this itself, and tells nothing but the name."""
        self._file = _pyinfra_ssh_known_hosts_file
        super().connect(hostname, **kwargs)  # type: ignore[no-untyped-call]

    def exec_command(self, command: str, *args: Any, **kwargs: Any) -> tuple[Any, Any, Any]:
        """Begin what pyinfra runs by itself, such as its helper for a password of sudo's."""
        return super().exec_command(one_line(command), *args, **kwargs)

    def parse_config(
        self,
        hostname: str,
        initial_cfg: Any = None,
        ssh_config_file: Any = None,
        strict_host_key_checking: str | None = None,
    ) -> tuple[Any, ...]:
        """Return what pyinfra reads, with our policy in the place of its reader of known_hosts."""
        address, config, forward, _, _, *rest = super().parse_config(  # type: ignore[no-untyped-call]
            hostname, initial_cfg, ssh_config_file, strict_host_key_checking
        )
        read = pyinfra_client.get_ssh_config(ssh_config_file)
        policy = HostKeys(
            address.lower(),
            int((initial_cfg or {}).get("port") or config["port"]),
            read.lookup(hostname) if read else {},
            self._file,
            strict_host_key_checking,
        )
        kinds = {line.key[0] for line in policy.known}
        config["transport_factory"] = partial(make_transport, kinds=kinds)
        return address, config, forward, policy, (), *rest


_WRAPPED = re.compile(r"(?:Could not connect|SSH error) \((?:\[Errno \S+\] )?(.*)\)", re.DOTALL)


def _connect_or_say_why(connector: pyinfra_ssh.SSHConnector) -> None:
    """Connect as pyinfra does, within LOGIN_S.

    Raises ConnectError, whatever goes wrong, with one line that a terminal can show: an exception
    that pyinfra does not reckon with would end the run of all hosts.
    """
    try:
        with within(LOGIN_S, "it did not come to a login"):
            _connect(connector)
    except Exception as error:
        drop(connector)
        known = isinstance(error, PyinfraError | TimeoutError)
        why = str(error) if known else f"{type(error).__name__}: {error}"
        if why.startswith("Authentication error"):
            why += "; `ssh HOST` by hand says whether user and key are right"
        why = _WRAPPED.sub(r"\1", why).replace("EOF error ()", "it hung up before the login")
        raise ConnectError(f"could not be reached: {shortened(why, _LONGEST)}") from None


def install() -> None:
    """Have this process's SSH connections be of our kind; a second time changes nothing.

    paramiko keeps its tracebacks to itself: who wants those gets them by ``--debug-all``.
    """
    for module in (pyinfra_ssh, pyinfra_client, sshuserclient):
        module.SSHClient = Client  # type: ignore[attr-defined]
    pyinfra_ssh.SSHConnector.connect = _connect_or_say_why  # type: ignore[assignment,method-assign]
    logging.getLogger("paramiko").addHandler(logging.NullHandler())


def transport_of(connector: object) -> paramiko.Transport | None:
    """Return the connection of a pyinfra connector; None without SSH, and where there was none."""
    client = getattr(connector, "client", None)
    return client.get_transport() if isinstance(client, paramiko.SSHClient) else None


def drop(connector: object) -> None:
    """End a connector's connection without a farewell, and without waiting."""
    if transport := transport_of(connector):
        transport.sock.close()


# What csh and its kind, and fish, read otherwise than a POSIX shell between single quotes.
_ODD = str.maketrans({each: f"\\0{ord(each):03o}" for each in "\n\\'!"})


def one_line(command: str) -> str:
    """Return a command of the POSIX shell such that any login shell has `sh` run it.

    csh and tcsh know no line break between quotes, where all of our programs have some, and look
    for `!` there; fish reads backslashes. What is plain stays as it is, for whoever reads a log.
    """
    if not set(command) & {"\n", "!"}:
        return command
    return f"""sh -c 'eval "$(printf %b "$1")"' sh '{command.translate(_ODD)}'"""
