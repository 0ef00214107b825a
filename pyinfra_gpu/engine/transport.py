"""SSH: host keys as `ssh` judges them, connections that end in time, channels for programs.

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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import paramiko
from gevent.subprocess import PIPE, STDOUT, Popen  # type: ignore[import-untyped]  # it has none
from pyinfra import logger
from pyinfra.api.exceptions import ConnectError, PyinfraError
from pyinfra.connectors import ssh as pyinfra_ssh
from pyinfra.connectors import sshuserclient
from pyinfra.connectors.local import LocalConnector
from pyinfra.connectors.sshuserclient import client as pyinfra_client

from pyinfra_gpu import whole_file
from pyinfra_gpu.engine.deadlines import within
from pyinfra_gpu.text import one_line as shown
from pyinfra_gpu.text import shortened

DEAD_PEER_S = 20
"""Seconds without an acknowledgement after which a connection is given up."""

KEEPALIVE_S = 5
"""Seconds between keepalive packets, so that an idle wait notices a dead peer too."""

LOGIN_S = 60.0
"""Seconds to the end of the login, with a touch of a hardware key."""

_BEFORE_LOGIN = 1 << 17
"""Bytes that a peer may send before the login is done; keys and banners come to a tenth."""

_READS = 16  # in a row, after which other hosts have their turn
_LONGEST = 500  # characters of why there is no connection
_NO_BANNER = "Error reading SSH protocol banner"
_USER_FILES = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
_SYSTEM_FILES = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
_FOUND = re.compile(r"# Host .* found: line (\d+) ?(CA|REVOKED|)")
_ASKED_S = 20
_connect = pyinfra_ssh.SSHConnector.connect


# --- host keys


class HostKeyError(paramiko.SSHException):
    """A host key that is not accepted: one sentence that names the file, the line, the remedy."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of known_hosts that `ssh-keygen` found to be about a name.

    + marker: "", "CA" or "REVOKED"; key: its kind and its bytes in base64
    """

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
        user = shlex.quote(file) if file else config.get("userknownhostsfile", _USER_FILES)
        self._user = _files(user)
        files = (*self._user, *_files(config.get("globalknownhostsfile", _SYSTEM_FILES)))
        self._hashed = config.get("hashknownhosts") == "yes"
        names = (name,) if port == 22 else (f"[{name}]:{port}", name)
        names = (config["hostkeyalias"],) if "hostkeyalias" in config else names
        self._name = names[0]
        self._lines = [_known(each, files) for each in names]

    def kinds(self) -> set[str]:
        """Return the kinds of key that are known of the host."""
        return {line.key[0] for line in self._lines[0] if not line.marker}

    def missing_host_key(self, client: object, hostname: str, key: paramiko.PKey) -> None:
        """Accept a host's key, or raise HostKeyError."""
        name, mine = self._name, (key.get_name(), key.get_base64())
        digest = base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")
        shows = f"the {mine[0]} key that {name} shows (SHA256:{digest})"
        every = [line for lines in self._lines for line in lines]
        for line in every:
            if line.marker == "REVOKED" and line.key == mine:
                raise HostKeyError(
                    f"{shows} is revoked by {line.place}: give the host a new one, or take that"
                    " line out"
                )
        known = [line for line in self._lines[0] if not line.marker]
        # A key by the name alone counts, as for ssh, where none is known by name and port.
        if mine in [line.key for line in known or every if not line.marker]:
            return
        if known:
            place = next((line.place for line in known if line.key[0] == mine[0]), known[0].place)
            raise HostKeyError(
                f"{shows} is not the one in {place}, so somebody may be listening in: compare it on"
                " the host's console (`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub`); if it is"
                f" right, `ssh-keygen -R '{name}' -f {place.rpartition(' line ')[0]}`"
            )
        if authority := next((line.place for line in every if line.marker == "CA"), None):
            raise HostKeyError(
                f"{authority} knows {name} by a certificate authority alone, and certificates of"
                " hosts are not read here: add a line with the host's own key"
            )
        if self._unknown == "accept-new" and self._user:
            self._store(self._user[0], mine)
            logger.warning(f"{name} was not known: its key is stored in {self._user[0]}")
        elif self._unknown in ("accept-new", "no", "off"):
            logger.warning(f"{name} is not known: {shows} and is not checked")
        else:
            raise HostKeyError(
                f"no key of {name} is known, and unknown hosts are not accepted: log in there"
                " once by `ssh`, and compare the key it shows with the one on the host's console"
            )

    def _store(self, file: Path, key: tuple[str, str]) -> None:
        """Add the key on a line of its own; one that is not kept would be accepted each time."""
        name = paramiko.HostKeys.hash_host(self._name) if self._hashed else self._name
        before = _content(file)
        begin = "\n" if before and not before.endswith(b"\n") else ""
        try:
            file.parent.mkdir(mode=0o700, exist_ok=True)
            file.touch(mode=0o600)
            with file.open("a", encoding="ascii") as opened:
                opened.write(f"{begin}{name} {key[0]} {key[1]}\n")
        except OSError as error:
            raise HostKeyError(
                f"the key of {name} cannot be stored in {file} ({error.strerror}), so it is not"
                " accepted: make that a file that you may write"
            ) from error


def _files(value: str) -> tuple[Path, ...]:
    if "%" in value:
        raise HostKeyError(
            f"known_hosts is configured as {value}, and % is not expanded here: name the"
            " file in `ssh_known_hosts_file`"
        )
    words = (word for word in shlex.split(value) if word.lower() != "none")
    return tuple(Path(word).expanduser() for word in words)


def _known(name: str, files: tuple[Path, ...]) -> list[_Line]:
    """Return the lines about a name, by OpenSSH's own reader: hashes, patterns, ports, markers."""
    found: list[_Line] = []
    for file in files:
        if not _content(file):
            continue
        asked = ["ssh-keygen", "-F", name, "-f", str(file)]
        try:
            done = subprocess.run(asked, capture_output=True, timeout=_ASKED_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HostKeyError(f"`ssh-keygen -F` cannot be asked ({error}): install it") from error
        rows = iter(done.stdout.decode("latin-1").split("\n"))
        for row in rows:
            if match := _FOUND.match(row):
                # The line itself, whose names and key may be damaged or missing.
                words = next(rows, "").split()
                words = words[1:] if match[2] else words
                kind, blob = [*words, "", "", ""][1:3]
                found.append(_Line(f"{file} line {match[1]}", match[2], (kind, blob)))
    return found


def _content(file: Path) -> bytes:
    try:
        return whole_file.read(file)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as error:
        raise HostKeyError(
            f"{file} cannot be read ({error.strerror}), so no host key is accepted: make it a file"
            " that you may read"
        ) from error


# --- connections


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
    rsa = "ssh-rsa" in kinds
    known = [each for each in plain if each in kinds or (rsa and each.startswith("rsa-sha2-"))]
    options.key_types = tuple(dict.fromkeys([*known, *plain]))
    return transport


class Client(pyinfra_client.SSHClient):
    """pyinfra's client, which accepts the keys of hosts and of jump hosts as `ssh` does."""

    _file: str | None = None

    def connect(  # type: ignore[override]
        self, hostname: str, _pyinfra_ssh_known_hosts_file: str | None = None, **kwargs: Any
    ) -> None:
        """Connect; for jump hosts pyinfra calls this itself, and tells nothing but the name."""
        self._file = _pyinfra_ssh_known_hosts_file
        try:
            super().connect(hostname, **kwargs)  # type: ignore[no-untyped-call]
        except HostKeyError:
            self.close()
            raise

    def parse_config(
        self,
        hostname: str,
        initial_cfg: Any = None,
        ssh_config_file: Any = None,
        strict_host_key_checking: str | None = None,
    ) -> tuple[Any, ...]:
        """Return what pyinfra reads, with our policy in the place of its reader of known_hosts.

        Nor is a key among them that is a pipe, at which paramiko would wait for ever.
        """
        address, config, forward, _, _, *rest = super().parse_config(  # type: ignore[no-untyped-call]
            hostname, initial_cfg, ssh_config_file, strict_host_key_checking
        )
        if keys := config.get("key_filename"):
            names = [keys] if isinstance(keys, str) else keys
            kept = [name for name in names if not whole_file.is_none(Path(name).expanduser())]
            config["key_filename"] = kept
        read = pyinfra_client.get_ssh_config(ssh_config_file)
        policy = HostKeys(
            address.lower(),
            int((initial_cfg or {}).get("port") or config["port"]),
            read.lookup(hostname) if read else {},
            self._file,
            strict_host_key_checking,
        )
        config["transport_factory"] = partial(make_transport, kinds=policy.kinds())
        return address, config, forward, policy, (), *rest


def _connect_or_say_why(connector: pyinfra_ssh.SSHConnector) -> None:
    """Connect as pyinfra does, within LOGIN_S.

    Raises ConnectError, whatever goes wrong, with one line that a terminal can show: an exception
    that pyinfra does not reckon with would end the run of all hosts.
    """
    config = Path(connector.data["ssh_config_file"] or "~/.ssh/config").expanduser()
    try:
        if whole_file.is_none(config):
            raise ConnectError(f"Could not connect ({config} is no regular file: correct it)")
        with within(LOGIN_S, "it did not come to a login"):
            _connect(connector)
    except (PyinfraError, TimeoutError) as error:
        drop(connector)
        text = str(error).replace("EOF error ()", "it hung up before the login")
        text = text.replace(_NO_BANNER, "no greeting of an SSH server came: ").replace(": )", ")")
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
    else:
        return
    if not text.endswith(")"):  # as pyinfra words it where it knows the exception
        text = f"Could not connect ({text})"
    raise ConnectError(shortened(shown(text), _LONGEST))


def install() -> None:
    """Have this process's SSH connections be of our kind; a second time changes nothing.

    paramiko keeps its tracebacks to itself: who wants those gets them by ``--debug-all``.
    """
    for module in (pyinfra_ssh, pyinfra_client, sshuserclient):
        module.SSHClient = Client  # type: ignore[attr-defined]
    pyinfra_ssh.SSHConnector.connect = _connect_or_say_why  # type: ignore[assignment,method-assign]
    logging.getLogger("paramiko").addHandler(logging.NullHandler())


def is_alive(connector: object) -> bool:
    """Tell whether a pyinfra connector's connection still stands; one without SSH always does.

    When a connection dies under a command, pyinfra reports the command as failed, like any other.
    """
    client = getattr(connector, "client", None)
    if not isinstance(client, paramiko.SSHClient):
        return True
    transport = client.get_transport()
    return transport is not None and transport.is_active()


def has_channels(connector: object) -> bool:
    """Tell whether `begin` works with a pyinfra connector: by SSH, or on this machine."""
    return isinstance(connector, pyinfra_ssh.SSHConnector | LocalConnector)


def drop(connector: object) -> None:
    """End a connector's connection without a farewell, and without waiting."""
    client = getattr(connector, "client", None)
    transport = client.get_transport() if isinstance(client, paramiko.SSHClient) else None
    if transport is not None:
        transport.sock.close()


# --- programs

_DECODED = 'eval "$(printf %b "$1")"'
# What csh and its kind, and fish, read otherwise than a POSIX shell between single quotes.
_ODD = str.maketrans({each: f"\\0{ord(each):03o}" for each in "\n\\'!"})


def one_line(command: str) -> str:
    """Return a command of the POSIX shell such that any login shell has `sh` run it.

    csh and tcsh know no line break between quotes, where all of our programs have some, and look
    for `!` there; fish reads backslashes. What is plain stays as it is, for whoever reads a log.
    """
    if not set(command) & {"\n", "!"}:
        return command
    return f"sh -c '{_DECODED}' sh '{command.translate(_ODD)}'"


class Channel(Protocol):
    """A program that was begun, on a host or here: what we use of paramiko's channel."""

    @property
    def closed(self) -> bool:
        """Whether nothing can be said to it any more."""

    def recv(self, nbytes: int) -> bytes:
        """Return what it has printed by now, at its end b""."""

    def recv_stderr(self, nbytes: int) -> bytes:
        """Return the same of its errors."""

    def sendall(self, s: bytes) -> None:
        """Write to its standard input."""

    def shutdown_write(self) -> None:
        """End its standard input."""

    def recv_exit_status(self) -> int:
        """Return how it ended, when it has."""

    def close(self) -> None:
        """End it."""


class _Here:
    """A program on this machine, with the calls of a channel."""

    def __init__(self, text: str, *, as_one: bool) -> None:
        errors = STDOUT if as_one else PIPE
        pipes = {"stdin": PIPE, "stdout": PIPE, "stderr": errors, "bufsize": 0}
        self._process = Popen(text, shell=True, **pipes)  # noqa: S604 - as pyinfra's connector does

    @property
    def closed(self) -> bool:
        return self._process.poll() is not None

    def recv(self, nbytes: int) -> bytes:
        return bytes(self._process.stdout.read(nbytes))

    def recv_stderr(self, nbytes: int) -> bytes:
        return bytes(self._process.stderr.read(nbytes))

    def sendall(self, s: bytes) -> None:
        left = memoryview(s)
        while left:
            left = left[self._process.stdin.write(left) :]

    def shutdown_write(self) -> None:
        self._process.stdin.close()

    def recv_exit_status(self) -> int:
        return int(self._process.wait())

    def close(self) -> None:
        if not self.closed:
            self._process.kill()
        for each in (self._process.stdin, self._process.stdout, self._process.stderr):
            if each is not None:
                each.close()


def begin(
    connector: object, text: str, *, pty: bool = False, as_one: bool = False
) -> Channel | None:
    """Begin a program; None for a connector that is neither SSH nor this machine.

    + text: as a shell takes it, with sudo and all
    + as_one: what it prints as errors comes with the rest

    As long as the peer likes: whoever calls this has a deadline. Raises OSError where the
    connection is gone.
    """
    if isinstance(connector, LocalConnector):
        return _Here(text, as_one=as_one)
    client = getattr(connector, "client", None)
    if not isinstance(client, paramiko.SSHClient):
        return None
    transport = client.get_transport()
    if transport is None or not transport.is_active():
        raise OSError("the connection is gone")
    try:
        channel = transport.open_session()
        channel.set_combine_stderr(as_one)
        if pty:
            channel.get_pty()
        channel.exec_command(one_line(text))
    except Exception as error:  # whatever paramiko stumbled over in what the peer sent
        raise OSError(f"the host runs no command ({error or 'it hung up'})") from error
    return channel
