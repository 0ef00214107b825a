"""The lab's file server: wheels, Debian packages and the training repository over HTTP.

Run as a program (`python server.py FOLDER ADDRESS`) in the lab's network namespace. It uses
the standard library alone and is started by its path, so that it needs no installed package.
"""

from __future__ import annotations

import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

PORT = 8077


class Files(SimpleHTTPRequestHandler):
    """Serves files and keeps connections open, which apt and pip make use of."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True


def main() -> int:
    """Serve until ended."""
    folder, address = sys.argv[1:]
    with ThreadingHTTPServer((address, PORT), partial(Files, directory=folder)) as server:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        server.serve_forever()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
