"""As the owner of a prefix: exchanges paths for links, and back, as fast as it can, until ended.

    python3 swap.py PATH=TARGET...

Says at its end how often each path led elsewhere; 0 is one that its user may not exchange. The
links stay behind, as PATH.link-NUMBER.
"""

import ctypes
import json
import os
import signal
import sys
from pathlib import Path

LIBC = ctypes.CDLL(None)
HERE, EXCHANGE = -100, 2
ended = []


def exchange(one, other):
    """Give two names to each other's files, at once; tell whether that could be done."""
    return LIBC.renameat2(HERE, one.encode(), HERE, other.encode(), EXCHANGE) == 0


def swap(path, link, aside):
    """Let PATH lead elsewhere, then be itself, then be missing, then be itself again."""
    if not exchange(path, link):
        return 0
    exchange(path, link)
    try:
        Path(path).rename(aside)
        Path(aside).rename(path)
    except OSError:  # somebody else made something there meanwhile
        pass
    return 1


def main():
    """Swap in turn what can be swapped; leave each path as itself."""
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    paths = dict(word.split("=") for word in sys.argv[1:])
    names = [(path, f"{path}.link-{os.getpid()}", f"{path}.aside") for path in paths]
    counts = dict.fromkeys(paths, 0)
    while not ended:
        for path, link, aside in names:
            if not os.path.lexists(link):
                try:
                    Path(link).symlink_to(paths[path])
                except OSError:  # nothing of the user's, or not there at the moment
                    continue
            counts[path] += swap(path, link, aside)
    for path, link, _ in names:
        if os.path.lexists(link) and not Path(link).is_symlink():
            exchange(path, link)
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    main()
