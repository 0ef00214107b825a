"""The lab's file server: wheels, Debian packages and the training repository over HTTP.

Run as a program (`python server.py FOLDER ADDRESS PORT`) in the lab's network namespace. It uses
the standard library alone and is started by its path, so that it needs no installed package.
"""

from __future__ import annotations

import sys
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO

PORT = 8077
CLOSED = ".closed"  # a folder with a file of this name is out of service


class Files(SimpleHTTPRequestHandler):
    """Serves files and keeps connections open, which apt and pip make use of."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def send_head(self) -> BinaryIO | None:
        """Answer with the head of what was asked for; out of service where its folder is closed."""
        path = Path(self.translate_path(self.path))
        if (path / CLOSED).exists() or (path.parent / CLOSED).exists():
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE)
            return None
        return super().send_head()


def main() -> int:
    """Serve until ended."""
    folder, address, port = sys.argv[1:]
    handler = partial(Files, directory=folder)
    with ThreadingHTTPServer((address, int(port)), handler) as server:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        server.serve_forever()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
