"""The lab's file server, started by its path in the lab's network: server.py FOLDER ADDRESS."""

from __future__ import annotations

import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

PORT = 8077


class Files(SimpleHTTPRequestHandler):
    """Serves files and keeps connections open, which apt and pip make use of."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True


if __name__ == "__main__":
    folder, address = sys.argv[1:]
    with ThreadingHTTPServer((address, PORT), partial(Files, directory=folder)) as server:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        server.serve_forever()
