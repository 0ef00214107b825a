"""Try to connect to ports of a host:  python3 connect.py ADDRESS PORT...

Prints one JSON object: port -> "connected", or what went wrong.
"""

import json
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

PATIENCE_S = 1.5


def tried(port: str) -> str:
    try:
        socket.create_connection((sys.argv[1], int(port)), timeout=PATIENCE_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return "connected"


with ThreadPoolExecutor() as pool:
    print(json.dumps(dict(zip(sys.argv[2:], pool.map(tried, sys.argv[2:]), strict=True))))
