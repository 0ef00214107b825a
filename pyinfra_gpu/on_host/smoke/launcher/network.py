"""Who can connect to what a test listens at: limited as far as can be had, and found out by trying.

torchrun's stores listen on every address of a host and take what anybody sends them; no option of
its binds them elsewhere (torch 2.13: `--standalone`, `--rdzv-endpoint` and `--local-addr` all leave
them at `*`). So the limit is around the processes. A test of one host runs in a network namespace
with nothing but a loopback interface. Root makes that before this program starts, where there is
root; else this program makes one, which many machines allow anybody. A step across hosts runs where
systemd lets the addresses of its hosts pass alone, and only root can have that.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
from pathlib import Path

from ..judge.listens import ANYONE, GROUP, ITSELF, Listens
from ..options import REHEARSAL_CPU

ALLOWED_LOOPBACK = ("127.0.0.0/9", "::1")
"""What may pass beside the group's addresses; not all of 127.0.0.0/8, so that the limit shows."""
_KEPT_OUT = "127.128.0.1"
_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
"""Addresses that nobody has (RFC 5737, RFC 3849); asking for the way there sends nothing."""
_NVIDIA_UVM = Path("/dev/nvidia-uvm")
_TRY_S = 0.5
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000  # linux/sched.h
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914  # linux/sockios.h
_IFF_UP = 1  # linux/if.h
_REQUEST = "16sh14x"  # struct ifreq, as far as the two ask for it
_LIBC = ctypes.CDLL(None, use_errno=True)


def alone(mode: str) -> Listens:
    """Leave every network but a loopback interface of this process's own, where that is possible.

    + mode: of the test; what CUDA needs to be started must stay possible

    Call it before anything is started, while this process has one thread. Never raises: a machine
    on which this cannot be had is no worse for training.
    """
    if only_loopback():
        return Listens(ITSELF, "in a network namespace without any other interface")
    try:
        why = _tried(mode)
        if why is None:
            _leave(mode)
    except OSError as error:
        why = error.strerror or str(error)
    if why is None and only_loopback():
        return Listens(ITSELF, "in a network namespace of its own")
    return Listens(ANYONE, f"a network namespace of its own is not possible here: {why}")


def of_group() -> Listens:
    """Tell whether only chosen addresses can connect to this process, by connecting from another.

    The other is one of this machine's own that is not among the allowed (`ALLOWED_LOOPBACK`).
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if not _connects("127.0.0.1", port):
            return Listens(ANYONE, "whether there is a limit could not be tried")
        if _connects(_KEPT_OUT, port):
            return Listens(ANYONE, "systemd has set no address limit, which takes root and BPF")
    return Listens(GROUP, "systemd lets the addresses of its hosts pass alone")


def only_loopback() -> bool:
    """Tell whether no interface but the loopback one is up, and no way leads elsewhere."""
    others = [name for _, name in socket.if_nameindex() if name != "lo"]
    return not any(map(_is_up, others)) and not any(_leads(*each) for each in _ELSEWHERE)


def _tried(mode: str) -> str | None:
    """Try in a process of its own; return why it is not possible, None where it is.

    Some machines let anybody have the namespace and then no right in it, so that what is in there
    has no loopback interface: from that there is no way back.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _leave(mode)
            os.write(writing, b"" if only_loopback() else b"other interfaces are up in it")
        except OSError as error:
            os.write(writing, (error.strerror or str(error)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        why = told.read(200).decode(errors="replace")
    os.waitpid(child, 0)
    return why or None


def _leave(mode: str) -> None:
    """Enter a network namespace of this process's own, with its loopback interface up."""
    try:
        _unshare(_CLONE_NEWNET)
    except PermissionError:
        # In a namespace of users no setuid program works, and CUDA may need NVIDIA's to make this.
        if mode != REHEARSAL_CPU and not _NVIDIA_UVM.exists():
            raise FileNotFoundError(errno.ENOENT, f"{_NVIDIA_UVM} is to be made first") from None
        user, group = os.geteuid(), os.getegid()
        _unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack(_REQUEST, b"lo", _IFF_UP))


def _unshare(flags: int) -> None:
    if _LIBC.unshare(flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"unshare: {os.strerror(number)}")


def _is_up(interface: str) -> bool:
    request = struct.pack(_REQUEST, interface.encode()[:15], 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request)
        except OSError:  # it is gone by now
            return False
    return bool(struct.unpack(_REQUEST, answer)[1] & _IFF_UP)


def _leads(family: int, address: str) -> bool:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as any_socket:
            any_socket.connect((address, 9))
    except OSError:
        return False
    return True


def _connects(source: str, port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), _TRY_S, (source, 0)).close()
    except OSError:
        return False
    return True
