"""pyinfra's SSH client, which accepts the keys of hosts and of jump hosts as `ssh` does.

They are judged by `known_hosts`. For that pyinfra has no argument, and least of all for the hosts
of a ProxyJump: its connector makes its client by the name `SSHClient`. `install` has that name
mean ours.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
from pyinfra import logger
from pyinfra.connectors import ssh as pyinfra_ssh
from pyinfra.connectors import sshuserclient
from pyinfra.connectors.sshuserclient import client as pyinfra_client

from pyinfra_gpu import whole_file
from pyinfra_gpu.engine import host_certificate, known_hosts
from pyinfra_gpu.engine.connection import make_transport
from pyinfra_gpu.engine.host_certificate import Certificate
from pyinfra_gpu.engine.known_hosts import HostKeyError, Key, Names, Unknown

# Where `ssh` looks if nothing else is configured.
_USER_FILES = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
_SYSTEM_FILES = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")


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
        """Return what pyinfra reads, without files for its own reader of known_hosts.

        Nor is a key among them that is a pipe, at which paramiko would wait for ever.
        """
        read = super().parse_config(*arguments, **named)  # type: ignore[no-untyped-call]
        hostname, config, forward, policy, _, *rest = read
        if keys := config.get("key_filename"):
            names = [keys] if isinstance(keys, str) else keys
            kept = [name for name in names if not whole_file.is_none(Path(name).expanduser())]
            config["key_filename"] = kept
        return hostname, config, forward, policy, (), *rest


def install() -> None:
    """Have pyinfra make its SSH clients of our kind."""
    for module in (pyinfra_ssh, pyinfra_client, sshuserclient):
        module.SSHClient = Client  # type: ignore[attr-defined]
