"""The only file that knows paramiko: SSH that is quick, notices a dead network, and judges keys.

paramiko leaves Nagle's algorithm on, and together with delayed ACKs that costs about 40 ms for
each command. It also waits for ever on a peer that vanished without a word. Both are cured on the
socket, which pyinfra lets inventory data hand us through paramiko's ``transport_factory``.

Host keys are judged by `known_hosts`. For that pyinfra has no such argument, and least of all for
the hosts of a ProxyJump: its connector makes its client by the name `SSHClient`, and with this
module that name means ours.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import paramiko
from pyinfra import logger
from pyinfra.connectors import ssh as pyinfra_ssh
from pyinfra.connectors import sshuserclient
from pyinfra.connectors.local import LocalConnector
from pyinfra.connectors.sshuserclient import client as pyinfra_client

from pyinfra_gpu.engine import host_certificate, known_hosts
from pyinfra_gpu.engine.host_certificate import Certificate
from pyinfra_gpu.engine.known_hosts import HostKeyError, Key, Names, Unknown

DEAD_PEER_S = 20
"""Seconds without an acknowledgement after which a connection is given up."""

KEEPALIVE_S = 5
"""Seconds between keepalive packets, so that an idle wait notices a dead peer too."""

_MOST = 65536  # bytes of a line
# Where `ssh` looks if nothing else is configured.
_USER_FILES = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
_SYSTEM_FILES = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")


def make_transport(sock: Any, **kwargs: Any) -> paramiko.Transport:
    """Build the SSH transport for one connection, with the socket underneath tuned.

    + sock: what paramiko connected: a TCP socket, a ``paramiko.Channel`` when the host is reached
      through a ProxyJump, or a ``paramiko.ProxyCommand``
    + kwargs: paramiko's own transport arguments, passed on unchanged
    """
    _tune(sock)
    transport = paramiko.Transport(sock, **kwargs)
    transport.set_keepalive(KEEPALIVE_S)
    return transport


def _tune(sock: object) -> None:
    """Switch Nagle off and bound the time without an acknowledgement, where this is TCP."""
    if not isinstance(sock, socket.socket) or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux only, see tcp(7); in milliseconds
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_PEER_S * 1000)


def is_alive(connector: object) -> bool:
    """Tell whether a pyinfra connector's connection still stands; one without SSH always does.

    When a connection dies under a command, pyinfra reports the command as failed, like any other.
    """
    client = getattr(connector, "client", None)
    if not isinstance(client, paramiko.SSHClient):
        return True
    transport = client.get_transport()
    return transport is not None and transport.is_active()


class Wire:
    """A program that works on a host beside the others, for as long as the connection stands."""

    def __init__(self, end: paramiko.Channel | socket.socket) -> None:
        self._end = end
        self._rest = b""
        self.stands = True

    def line(self, seconds: float) -> str | None:
        """Return the next line that it prints, "" after so many seconds; None where it ended."""
        self._end.settimeout(seconds)
        while b"\n" not in self._rest:
            try:
                more = self._end.recv(_MOST)
            except TimeoutError:
                return ""
            except (OSError, EOFError):
                more = b""
            self._rest += more
            if not more or len(self._rest) > _MOST:
                self.close()
                return None
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace")

    def say(self, data: bytes) -> bool:
        """Write to its standard input; return whether it is still there."""
        try:
            self._end.settimeout(DEAD_PEER_S)
            self._end.sendall(data)
        except (OSError, EOFError):
            self.close()
        return self.stands and not getattr(self._end, "closed", False)

    def close(self) -> None:
        """End it: its standard input is at its end."""
        self.stands = False
        self._end.close()


def start(connector: object, command: str) -> Wire | None:
    """Start a program on a host beside the commands that pyinfra runs one after the other.

    + command: as a shell takes it, with sudo and all

    None for a connector that is neither SSH nor this machine. Raises OSError or EOFError where the
    connection is lost.
    """
    client = getattr(connector, "client", None)
    if isinstance(client, paramiko.SSHClient):
        transport = client.get_transport()
        if transport is None:
            raise ConnectionError("the connection is closed")
        try:
            channel = transport.open_session(timeout=DEAD_PEER_S)
            channel.set_combine_stderr(True)
            channel.exec_command(command)
        except paramiko.SSHException as error:
            raise ConnectionError(str(error)) from error
        return Wire(channel)
    if not isinstance(connector, LocalConnector):
        return None
    ours, theirs = socket.socketpair()
    with theirs:
        handle = theirs.fileno()
        os.set_blocking(handle, True)  # gevent's sockets are not, and the program would see that
        subprocess.Popen(  # noqa: S602 (as pyinfra's own connector runs commands)
            command, shell=True, stdin=handle, stdout=handle, stderr=subprocess.STDOUT
        )
    return Wire(ours)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Trust:
    """What a user's configuration and a host's data say of one host's key.

    + user, system: known_hosts files; new keys go into the first of the user's
    """

    user: tuple[str, ...]
    system: tuple[str, ...]
    alias: str | None
    unknown: Unknown
    hashed: bool


def _trust(config: Mapping[str, Any], file: str | None, strictness: str | None) -> _Trust:
    """+ config: the user's configuration of the host; file, strictness: from the host's data."""
    revoked = _listed(config.get("revokedhostkeys"), ())
    if revoked:
        raise HostKeyError(
            f"RevokedHostKeys {revoked[0]} is configured, and such files are not read here: take"
            " those keys as `@revoked * KEY` into known_hosts"
        )
    return _Trust(
        user=(file,) if file else _files(config.get("userknownhostsfile"), _USER_FILES),
        system=_files(config.get("globalknownhostsfile"), _SYSTEM_FILES),
        alias=config.get("hostkeyalias"),
        unknown=known_hosts.unknown_hosts(strictness, config.get("stricthostkeychecking")),
        hashed=config.get("hashknownhosts") == "yes",
    )


def _listed(value: str | None, default: tuple[str, ...]) -> tuple[str, ...]:
    if value is None:
        return default
    words = (quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|(\S+)', value))
    return tuple(word for word in words if word.lower() != "none")


def _files(value: str | None, default: tuple[str, ...]) -> tuple[str, ...]:
    files = _listed(value, default)
    if any("%" in name for name in files):
        raise HostKeyError(
            f"known_hosts is configured as {' '.join(files)}, and % is not expanded here: name the"
            " file in `ssh_known_hosts_file`"
        )
    return files


class _Policy(paramiko.MissingHostKeyPolicy):
    """Judges the key of every host: paramiko itself is told of no key at all."""

    def __init__(self, lines: list[known_hosts.Line], names: Names, trust: _Trust) -> None:
        self._lines, self._names, self._trust = lines, names, trust

    def missing_host_key(self, client: object, hostname: str, key: paramiko.PKey) -> None:
        shown = Key(key.get_name(), key.asbytes())
        fault = self._fault(key, shown)
        if fault is None:
            return
        if known_hosts.judge(self._lines, self._names, shown, self._trust.unknown, fault):
            return
        name, files = self._names.shown, self._trust.user
        if self._trust.unknown is Unknown.STORED and files:
            known_hosts.store(files[0], self._names, shown, hashed=self._trust.hashed)
            logger.warning(f"{name} was not known: its key is stored in {files[0]}")
        else:
            logger.warning(f"{name} is not known: its key {shown.fingerprint} is not checked")

    def _fault(self, key: paramiko.PKey, shown: Key) -> str | None:
        """Say what is wrong with the host's certificate; None where it holds."""
        blob = getattr(key.public_blob, "key_blob", None)
        certificate = host_certificate.read(blob) if blob else None
        if certificate is None:
            return "it is damaged" if blob else "there is none"
        authority = Key(*certificate.authority)
        known_hosts.refuse_revoked(self._lines, self._names, shown, authority)
        if authority not in known_hosts.authorities(self._lines, self._names):
            return "another authority has signed it"
        if not _is_signed(certificate):
            return "its signature is not right"
        return certificate.fault(self._names.all[-1], time.time())


def _is_signed(certificate: Certificate) -> bool:
    kind, blob = certificate.authority
    try:
        signature = paramiko.Message(certificate.signature)
        if signature.get_text() == "ssh-rsa":  # SHA-1, which `ssh` does not take for certificates
            return False
        signature.rewind()
        authority = paramiko.PKey.from_type_string(kind, blob)
        return bool(authority.verify_ssh_sig(certificate.signed, signature))
    except Exception:  # whatever paramiko makes of bytes that a stranger sent
        return False


class _Judging(paramiko.SSHClient):
    """Stands between pyinfra's client and paramiko's: here the address is known at last."""

    trust: _Trust

    def connect(self, hostname: str, port: int | str = 22, **kwargs: Any) -> Any:  # type: ignore[override]
        """Connect, with host keys judged by us; `kwargs` are paramiko's."""
        names = known_hosts.names_of(hostname, int(port), self.trust.alias)
        make = kwargs.pop("transport_factory", None) or make_transport

        def factory(sock: Any, **about: Any) -> paramiko.Transport:
            transport: paramiko.Transport = make(sock, **about)
            certified = bool(known_hosts.authorities(lines, names))
            _ask_first_for(transport, known_hosts.kinds(lines, names), certified)
            return transport

        try:
            lines = known_hosts.read((*self.trust.user, *self.trust.system))
            self.set_missing_host_key_policy(_Policy(lines, names, self.trust))
            return super().connect(hostname, int(port), transport_factory=factory, **kwargs)
        except HostKeyError as error:
            self.close()
            raise paramiko.SSHException(str(error)) from error


def _ask_first_for(transport: paramiko.Transport, kinds: tuple[str, ...], certified: bool) -> None:
    """Have a host show a key of a kind that is known of it, if it has one; before, a certificate.

    + certified: whether an authority is known for it
    """
    options = transport.get_security_options()
    plain = [each for each in options.key_types if each != "ssh-rsa"]  # SHA-1; `ssh` does so, too
    known = [
        each
        for each in plain
        if each in kinds or (each.startswith("rsa-sha2-") and "ssh-rsa" in kinds)
    ]
    signed = [f"{each}{host_certificate.ENDING}" for each in plain] if certified else []
    options.key_types = tuple(dict.fromkeys([*signed, *known, *plain]))


class Client(pyinfra_client.SSHClient, _Judging):
    """pyinfra's client, which accepts the keys of hosts and of jump hosts as `ssh` does."""

    def connect(  # type: ignore[override]
        self,
        hostname: str,
        _pyinfra_ssh_config_file: str | None = None,
        _pyinfra_ssh_known_hosts_file: str | None = None,
        _pyinfra_ssh_strict_host_key_checking: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Connect; for jump hosts pyinfra calls this itself, and tells nothing but the name."""
        config = pyinfra_client.get_ssh_config(_pyinfra_ssh_config_file)
        try:
            self.trust = _trust(
                config.lookup(hostname) if config else {},
                _pyinfra_ssh_known_hosts_file,
                _pyinfra_ssh_strict_host_key_checking,
            )
        except HostKeyError as error:
            raise paramiko.SSHException(str(error)) from error
        super().connect(  # type: ignore[no-untyped-call]
            hostname, _pyinfra_ssh_config_file=_pyinfra_ssh_config_file, **kwargs
        )

    def parse_config(self, *arguments: Any, **named: Any) -> tuple[Any, ...]:
        """Return what pyinfra reads, without files for its own reader of known_hosts."""
        read = super().parse_config(*arguments, **named)  # type: ignore[no-untyped-call]
        hostname, config, forward, policy, _, *rest = read
        return hostname, config, forward, policy, (), *rest


for module in (pyinfra_ssh, pyinfra_client, sshuserclient):
    module.SSHClient = Client  # type: ignore[attr-defined]

CONNECT_KWARGS: dict[str, Any] = {"transport_factory": make_transport}
"""For inventories and group_data: ``ssh_paramiko_connect_kwargs = CONNECT_KWARGS``."""
