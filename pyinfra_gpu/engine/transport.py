"""SSH: host keys as `ssh` judges them, connections that end in time, commands beside pyinfra's.

All that knows paramiko is here. pyinfra makes its clients by the name `SSHClient`, also for the
hosts of a ProxyJump, and has no argument for how their keys are judged: `install`, which the
command line calls, has that name mean ours. Nothing is changed by an import.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gevent  # type: ignore[import-untyped]  # it has none; pyinfra's own event loop
import paramiko
from gevent.event import Event  # type: ignore[import-untyped]
from pyinfra import logger
from pyinfra.api.exceptions import ConnectError, PyinfraError
from pyinfra.connectors import ssh as pyinfra_ssh
from pyinfra.connectors import sshuserclient
from pyinfra.connectors.local import LocalConnector
from pyinfra.connectors.sshuserclient import client as pyinfra_client

from pyinfra_gpu import whole_file
from pyinfra_gpu.text import one_line as shown
from pyinfra_gpu.text import shortened, without_escapes

DEAD_PEER_S = 20
"""Seconds without an acknowledgement after which a connection is given up."""

KEEPALIVE_S = 5
"""Seconds between keepalive packets, so that an idle wait notices a dead peer too."""

GREETING_S = 10
"""Seconds to a host's greeting, as many as pyinfra has for a connection by itself."""

LOGIN_S = 60
"""Seconds from the first byte to the end of the login, with a touch of a hardware key."""

_BEFORE_LOGIN = 1 << 17
"""Bytes that a peer may send before the login is done; keys and banners come to a tenth."""

_UNREAD = 16 << 20
"""Bytes of one channel that nobody has read yet; a peer that keeps to its window sends 2 MiB."""

_READS = 16  # in a row, after which others have their turn
_CHUNK = 32768
_LONGEST_LINE = 1 << 20  # bytes
_LINE = 128  # bytes that a line costs beyond its text
SETTLE_S = 10.0
"""Without a byte, after a command has ended: then something else holds its output."""
_LONGEST = 500  # characters of why there is no connection
_NO_BANNER = "Error reading SSH protocol banner"
_USER_FILES = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
_SYSTEM_FILES = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
_FOUND = re.compile(r"# Host .* found: line (\d+) ?(CA|REVOKED|)")
_ASKED_S = 20
_connect = pyinfra_ssh.SSHConnector.connect


# --- connections


class _Socket:
    """The socket of one connection: fair to the other hosts, and patient only for a while.

    As long as a peer sends, a socket of gevent's hands out what is there and lets nobody else run.
    """

    def __init__(self, sock: Any) -> None:
        self._inner = sock
        self.transport: paramiko.Transport | None = None
        self._began = time.monotonic()
        self._received = self._reads = 0

    def recv(self, size: int) -> bytes:
        """Return what has come.

        Raises SSHException where there is no login, and has been time and room enough for one:
        paramiko's thread would stumble over an OSError without a number.
        """
        self._reads += 1
        if not self._reads % _READS:
            time.sleep(0)
        if self._received >= 0 and self.transport is not None:
            if self.transport.is_authenticated():
                self._received = -1
            elif self._received > _BEFORE_LOGIN:
                sent = f"it sent more than {_BEFORE_LOGIN >> 10} KiB before the login"
                raise paramiko.SSHException(sent)
            elif time.monotonic() - self._began > LOGIN_S:
                raise paramiko.SSHException(f"it did not come to a login within {LOGIN_S} s")
        data = bytes(self._inner.recv(size))
        if self._received >= 0:
            self._received += len(data)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _fed(channel: Any, message: Any) -> None:
    """Take in data of a channel, as long as somebody reads it."""
    channel._feed(message)
    _require_reader(channel)


def _fed_extended(channel: Any, message: Any) -> None:
    channel._feed_extended(message)
    _require_reader(channel)


def _require_reader(channel: Any) -> None:
    if len(channel.in_buffer) + len(channel.in_stderr_buffer) > _UNREAD:
        raise paramiko.SSHException("it sends more than it may")  # which ends the connection


class _Transport(paramiko.Transport):
    """A connection whose peer is held to SSH's rules, and to the window that it was given."""

    _channel_handler_table = {  # noqa: RUF012 - paramiko's own form
        **paramiko.Transport._channel_handler_table,  # type: ignore[attr-defined]
        paramiko.common.MSG_CHANNEL_DATA: _fed,
        paramiko.common.MSG_CHANNEL_EXTENDED_DATA: _fed_extended,
    }

    def get_exception(self) -> Exception | None:
        """Return why it ended: always an exception that users of paramiko reckon with.

        paramiko hands on what its parsers stumbled over as it is, UnicodeDecodeError for one.
        """
        error: Exception | None = super().get_exception()
        if isinstance(error, paramiko.SSHException) and str(error).startswith(_NO_BANNER):
            why = str(error).removeprefix(_NO_BANNER)
            why = why or "it hung up"
            return paramiko.SSHException(f"no greeting of an SSH server came: {why}")
        if error is None or isinstance(error, paramiko.SSHException | OSError | EOFError):
            return error
        kind = type(error).__name__
        return paramiko.SSHException(f"it does not keep to the rules of SSH ({kind}: {error})")


def make_transport(sock: Any, **kwargs: Any) -> paramiko.Transport:
    """Build the SSH transport for one connection, with the socket underneath tuned.

    + sock: what paramiko connected: a TCP socket, a ``paramiko.Channel`` when the host is reached
      through a ProxyJump, or a ``paramiko.ProxyCommand``
    + kwargs: paramiko's own transport arguments, passed on unchanged

    paramiko leaves Nagle's algorithm on, which with delayed ACKs costs about 40 ms a command, and
    waits for ever on a peer that vanished without a word. Raises OSError where a host says nothing.
    """
    if isinstance(sock, socket.socket) and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux only, see tcp(7); in milliseconds
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_PEER_S * 1000)
        _await_greeting(sock)
    fair = _Socket(sock)
    transport = _Transport(fair, **kwargs)  # type: ignore[arg-type]
    fair.transport = transport
    transport.set_keepalive(KEEPALIVE_S)
    return transport


def _await_greeting(sock: socket.socket) -> None:
    """Wait for the first byte: an SSH server speaks first. Raises OSError where none comes."""
    before = sock.gettimeout()
    sock.settimeout(GREETING_S)
    try:
        sock.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        raise OSError(f"it said nothing for {GREETING_S} s") from None
    finally:
        sock.settimeout(before)


CONNECT_KWARGS: dict[str, Any] = {"transport_factory": make_transport}
"""What group_data and inventories hand to pyinfra as ``ssh_paramiko_connect_kwargs``."""


# --- host keys


class HostKeyError(Exception):
    """A host key that is not accepted: one sentence that names the file, the line, the remedy."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of known_hosts that `ssh-keygen` found to be about a name.

    + marker: "", "CA" or "REVOKED"; key: its kind and its bytes in base64
    """

    place: str
    marker: str
    key: tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Trust:
    """What a user's configuration and a host's data say of one host's key.

    + user, system: known_hosts files; new keys go into the first of the user's
    + unknown: what becomes of a host that no line is about: "yes" and "ask" refuse it, "accept-new"
      stores its key, "no" accepts it each time anew
    """

    user: tuple[Path, ...]
    system: tuple[Path, ...]
    alias: str | None
    unknown: str
    hashed: bool


def _trust(config: Mapping[str, Any], file: str | None, strictness: str | None) -> _Trust:
    """+ config: the user's configuration of the host; file, strictness: from the host's data.

    pyinfra's own default is "accept-new"; of a jump host data say nothing.
    """
    if revoked := config.get("revokedhostkeys"):
        raise HostKeyError(
            f"RevokedHostKeys {revoked} is configured, and such files are not read here: take"
            " those keys as `@revoked * KEY` into known_hosts"
        )
    configured = _strictness(config.get("stricthostkeychecking"))
    unknown = configured if strictness is None else _strictness(strictness)
    return _Trust(
        user=_files(f'"{file}"' if file else config.get("userknownhostsfile", _USER_FILES)),
        system=_files(config.get("globalknownhostsfile", _SYSTEM_FILES)),
        alias=config.get("hostkeyalias"),
        unknown="yes" if configured == "yes" else unknown,
        hashed=config.get("hashknownhosts") == "yes",
    )


def _strictness(value: object) -> str:
    words = {"true": "yes", "off": "no", "false": "no", "none": "ask"}
    word = words.get(said := str(value).strip().lower(), said)
    return word if word in ("ask", "accept-new", "no") else "yes"  # what is no word permits nothing


def _files(value: str) -> tuple[Path, ...]:
    if "%" in value:
        raise HostKeyError(
            f"known_hosts is configured as {value}, and % is not expanded here: name the"
            " file in `ssh_known_hosts_file`"
        )
    words = (quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|(\S+)', value))
    return tuple(Path(word).expanduser() for word in words if word.lower() != "none")


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


class _Policy(paramiko.MissingHostKeyPolicy):
    """Judges the key of every host: paramiko itself is told of no key at all.

    What is accepted `ssh` accepts with the same files. It is stricter where a line names a
    certificate authority or a revoked key.
    """

    def __init__(self, names: tuple[str, ...], trust: _Trust) -> None:
        self._names, self._trust = names, trust
        self._lines = [_known(name, (*trust.user, *trust.system)) for name in names]

    def kinds(self) -> set[str]:
        """Return the kinds of key that are known of the host."""
        return {line.key[0] for line in self._lines[0] if not line.marker}

    def missing_host_key(self, client: object, hostname: str, key: paramiko.PKey) -> None:
        """Accept a host's key, or raise HostKeyError."""
        name, mine = self._names[0], (key.get_name(), key.get_base64())
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
        plain = known or [line for line in every if not line.marker]
        if any(line.key == mine for line in plain):
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
        if self._trust.unknown in ("yes", "ask"):
            raise HostKeyError(
                f"no key of {name} is known, and unknown hosts are not accepted: log in there"
                " once by `ssh`, and compare the key it shows with the one on the host's console"
            )
        if self._trust.unknown == "accept-new" and self._trust.user:
            self._store(self._trust.user[0], mine)
            logger.warning(f"{name} was not known: its key is stored in {self._trust.user[0]}")
        else:
            logger.warning(f"{name} is not known: {shows} and is not checked")

    def _store(self, file: Path, key: tuple[str, str]) -> None:
        """Add the key on a line of its own; one that is not kept would be accepted each time."""
        name = self._names[0]
        hidden = paramiko.HostKeys.hash_host(name) if self._trust.hashed else name
        before = _content(file)
        line = f"{hidden} {key[0]} {key[1]}\n"
        text = line if not before or before.endswith(b"\n") else f"\n{line}"
        try:
            file.parent.mkdir(mode=0o700, exist_ok=True)
            handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(handle, "ab") as opened:
                opened.write(text.encode())
        except OSError as error:
            raise HostKeyError(
                f"the key of {name} cannot be stored in {file} ({error.strerror}), so it is not"
                " accepted: make that a file that you may write"
            ) from error


class _Judging(paramiko.SSHClient):
    """Stands between pyinfra's client and paramiko's: here the address is known at last."""

    trust: _Trust

    def connect(self, hostname: str, port: int | str = 22, **kwargs: Any) -> Any:  # type: ignore[override]
        """Connect, with host keys judged by us; `kwargs` are paramiko's."""
        name, make = hostname.lower(), kwargs.pop("transport_factory", None) or make_transport
        names = (name,) if int(port) == 22 else (f"[{name}]:{port}", name)
        names = (self.trust.alias,) if self.trust.alias else names

        def factory(sock: Any, **about: Any) -> paramiko.Transport:
            transport: paramiko.Transport = make(sock, **about)
            options, kinds = transport.get_security_options(), policy.kinds()
            plain = [each for each in options.key_types if each != "ssh-rsa"]  # SHA-1, as for ssh
            known = {each for each in plain if each in kinds}
            known |= {each for each in plain if each[:9] == "rsa-sha2-" and "ssh-rsa" in kinds}
            # A key of a kind that is known is asked for first: the host may have others.
            options.key_types = tuple(sorted(plain, key=lambda each: each not in known))
            return transport

        try:
            policy = _Policy(names, self.trust)
            self.set_missing_host_key_policy(policy)
            return super().connect(hostname, int(port), transport_factory=factory, **kwargs)
        except HostKeyError as error:
            self.close()
            raise paramiko.SSHException(str(error)) from error


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


def _connect_or_say_why(connector: pyinfra_ssh.SSHConnector) -> None:
    """Connect as pyinfra does.

    Raises ConnectError, whatever goes wrong, with one line that a terminal can show: an exception
    that pyinfra does not reckon with would end the run of all hosts.
    """
    config = Path(connector.data["ssh_config_file"] or "~/.ssh/config").expanduser()
    try:
        if whole_file.is_none(config):
            raise ConnectError(f"Could not connect ({config} is no regular file: correct it)")
        _connect(connector)
    except PyinfraError as error:
        text = str(error).replace("EOF error ()", "it hung up before the login")
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


# --- commands

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


def is_alive(connector: object) -> bool:
    """Tell whether a pyinfra connector's connection still stands; one without SSH always does.

    When a connection dies under a command, pyinfra reports the command as failed, like any other.
    """
    client = client_of(connector)
    if client is None:
        return True
    transport = client.get_transport()
    return transport is not None and transport.is_active()


def client_of(connector: object) -> paramiko.SSHClient | None:
    """Return a pyinfra connector's SSH client; None where it has none."""
    client = getattr(connector, "client", None)
    return client if isinstance(client, paramiko.SSHClient) else None


def drop(connector: object) -> None:
    """End a connector's connection without a farewell, and without waiting."""
    client = client_of(connector)
    transport = client.get_transport() if client else None
    if transport is not None:
        transport.sock.close()


def _begun(
    client: paramiko.SSHClient, text: str, *, pty: bool = False, as_one: bool = False
) -> paramiko.Channel:
    """Return the channel of a command that was begun.

    + as_one: what it prints as errors comes with the rest
    """
    transport = client.get_transport()
    if transport is None or not transport.is_active():
        raise OSError("the connection is gone")
    try:
        channel = transport.open_session()
        channel.set_combine_stderr(as_one)
        if pty:
            channel.get_pty()
        channel.exec_command(one_line(text))
    except (paramiko.SSHException, EOFError) as error:
        raise OSError(f"the host runs no command ({error or 'it hung up'})") from error
    return channel


class Bound:
    """What one command may print, and what is known of it while it runs.

    + most: bytes
    + last: a line of its standard output after which nothing matters any more; None: all of it does
    """

    def __init__(self, most: int, last: str | None = None) -> None:
        self.left = most
        self.last = last
        self.whole = Event()
        self.exceeded = False
        self.channel: paramiko.Channel | None = None


class _Output:
    """What a command prints on one of its channels, as lines that do nothing to a terminal."""

    def __init__(self, channel: paramiko.Channel, bound: Bound, *, errors: bool = False) -> None:
        self.channel = channel
        self._receive = channel.recv_stderr if errors else channel.recv
        self._bound = bound

    def __iter__(self) -> Iterator[str]:
        bound, rest = self._bound, b""
        while chunk := self._chunk():
            bound.left -= len(chunk) + _LINE * chunk.count(b"\n")
            if bound.left < 0:
                bound.exceeded = True
                gevent.spawn(self.channel.get_transport().sock.close)
                return
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > _LONGEST_LINE:
                lines, rest = [*lines, rest], b""
            yield from map(self._line, lines)
        if rest:
            yield self._line(rest)

    def _chunk(self) -> bytes:
        try:
            return self._receive(_CHUNK)
        except (OSError, EOFError):
            return b""

    def _line(self, line: bytes) -> str:
        text = without_escapes(line.decode("utf-8", "backslashreplace"))
        if text == self._bound.last:
            self._bound.whole.set()
        return text


class _Input:
    """A command's standard input; what has ended, or does not want to know, is no error."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel

    def write(self, data: bytes) -> None:
        """Send all of it."""
        self._tried(lambda: self._channel.sendall(data))

    def close(self) -> None:
        """End it."""
        self._tried(self._channel.shutdown_write)

    def _tried(self, sent: Callable[[], object]) -> None:
        try:
            sent()
        except OSError:
            if not self._channel.closed:
                raise


def run(
    client: paramiko.SSHClient, text: str, bound: Bound, *, pty: bool = False
) -> tuple[_Input, _Output, _Output]:
    """Begin a command as paramiko's `exec_command` does; what comes is bounded, and harmless.

    As long as the peer likes: whoever calls this has a deadline. Raises OSError where the
    connection is gone.
    """
    channel = bound.channel = _begun(client, text, pty=pty)
    gevent.spawn(_settle, channel, bound)
    return _Input(channel), _Output(channel, bound), _Output(channel, bound, errors=True)


def _settle(channel: paramiko.Channel, bound: Bound) -> None:
    """Close the channel of a command that has ended, when no more comes of what it printed.

    A program that it left behind may hold its output open for ever. sshd tells of the end before it
    has sent all; with 100 hosts on two cores the rest came more than a second later.
    """
    channel.recv_exit_status()
    left = bound.left + 1
    while bound.left < left and not channel.closed:
        left = bound.left
        if bound.whole.wait(SETTLE_S):
            break
    with suppress(OSError, EOFError, paramiko.SSHException):
        channel.close()


class LastingCommand:
    """A program that works on a host beside the others, for as long as the connection stands.

    To begin it, and to end it, may take as long as the peer likes; see `wire.start`.
    """

    def __init__(self, end: paramiko.Channel | socket.socket) -> None:
        self._end = end
        self._rest = b""
        self.stands = True

    def line(self, seconds: float) -> str | None:
        """Return the next line that it prints, "" after so many seconds; None where it ended.

        Lines with nothing on them are passed over.
        """
        self._end.settimeout(seconds)
        while b"\n" not in self._rest:
            try:
                more = self._end.recv(_LONGEST_LINE)
            except TimeoutError:
                return ""
            except (OSError, EOFError):
                more = b""
            self._rest = (self._rest + more).lstrip(b"\r\n")
            if not more or len(self._rest) > _LONGEST_LINE:
                self.close()
                return None
        line, _, rest = self._rest.partition(b"\n")
        self._rest = rest.lstrip(b"\r\n")
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
        with suppress(OSError, EOFError, paramiko.SSHException):
            self._end.close()


def start(connector: object, command: str) -> LastingCommand | None:
    """Start a program on a host beside the commands that pyinfra runs one after the other.

    + command: as a shell takes it, with sudo and all

    None for a connector that is neither SSH nor this machine. Raises OSError where the connection
    is gone. As long as the peer likes: `wire.start` gives it up in time.
    """
    client = client_of(connector)
    if client is not None:
        return LastingCommand(_begun(client, command, as_one=True))
    if not isinstance(connector, LocalConnector):
        return None
    ours, theirs = socket.socketpair()
    with theirs:
        handle = theirs.fileno()
        os.set_blocking(handle, True)  # gevent's sockets are not, and the program would see that
        subprocess.Popen(  # noqa: S602 (as pyinfra's own connector runs commands)
            command, shell=True, stdin=handle, stdout=handle, stderr=subprocess.STDOUT
        )
    return LastingCommand(ours)
