"""Connects as pyinfra does, and prints two options of the TCP connection to the jump host.

python connect_through_jump_host.py NAME: of the user's ssh config, with a ProxyJump
"""

import sys

from gevent import monkey

monkey.patch_all()

import socket  # noqa: E402 - as gevent has patched it

from pyinfra.connectors.sshuserclient import SSHClient  # noqa: E402

from pyinfra_gpu.engine.transport import install  # noqa: E402

install()
client = SSHClient()
client.connect(
    sys.argv[1],
    _pyinfra_ssh_strict_host_key_checking="yes",
)
carrier = client.get_transport().sock.get_transport().sock
for option in (socket.TCP_NODELAY, socket.TCP_USER_TIMEOUT):
    print(carrier.getsockopt(socket.IPPROTO_TCP, option))
