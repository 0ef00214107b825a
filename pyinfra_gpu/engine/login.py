"""A connection that does not come about is that host's failure, in one sentence.

pyinfra 3.10 takes the exceptions that paramiko promises for that, and any other for its own: one
host that answers with bytes which paramiko cannot read would end the run of all. What it does take
it prints as it came, which may be what a stranger sent.
"""

from __future__ import annotations

import logging
from pathlib import Path

from pyinfra.api.exceptions import ConnectError, PyinfraError
from pyinfra.connectors import ssh as pyinfra_ssh

from pyinfra_gpu import whole_file
from pyinfra_gpu.text import one_line, shortened

_LONGEST = 500  # characters
_HUNG_UP = "EOF error ()"
_connect = pyinfra_ssh.SSHConnector.connect


def _connect_or_say_why(connector: pyinfra_ssh.SSHConnector) -> None:
    """Connect as pyinfra does.

    Raises ConnectError, whatever goes wrong, with one line that a terminal can show.
    """
    try:
        _refuse_pipe(connector.data["ssh_config_file"] or "~/.ssh/config")
        _connect(connector)
    except PyinfraError as error:
        text = str(error).replace(_HUNG_UP, "Could not connect (it hung up before the login)")
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
    else:
        return
    if not text.endswith(")"):  # as pyinfra words it where it knows the exception
        text = f"Could not connect ({text})"
    raise ConnectError(shortened(one_line(text), _LONGEST))


def _refuse_pipe(config: str) -> None:
    """Raise ConnectError for a configuration of ssh's that pyinfra would wait for, for ever."""
    if whole_file.is_none(Path(config).expanduser()):
        raise ConnectError(f"Could not connect ({config} is no regular file: correct it)")


def install() -> None:
    """Have pyinfra's SSH hosts fail alone, and paramiko keep its tracebacks to itself.

    Who wants those gets them by pyinfra's ``--debug-all``.
    """
    pyinfra_ssh.SSHConnector.connect = _connect_or_say_why  # type: ignore[assignment,method-assign]
    logging.getLogger("paramiko").addHandler(logging.NullHandler())
