"""uv's command lines: from which places it installs what, and how a cut-off run is told.

What is installed into an environment is wheels, from an index, a folder or by a lock.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from pyinfra_gpu.drift.pytorch import has_fallback
from pyinfra_gpu.drift.pytorch_lock import lock_of
from pyinfra_gpu.engine.steps import quoted
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host import program
from pyinfra_gpu.spec import HostSpec


def install_command(spec: HostSpec, *requirements: str) -> list[str]:
    """Return uv's command line for installing into the virtual environment.

    uv leaves bytecode to the first import, and every process that may not write into the
    environment then compiles torch's modules anew: `import torch` takes 8 s of a processor, not 3.
    """
    paths = spec.paths
    words = (paths.uv, "pip", "install", "--no-config", "--cache-dir", paths.cache)
    return [*words, "--python", paths.python, *sources(spec), "--compile-bytecode", *requirements]


def locked_install(spec: HostSpec, *, there: bool, folder: str | None = None) -> str:
    """Return the shell command that installs what a lock on the host names.

    + there: whether something is installed, and perhaps without its digest having been asked: then
      all of it is installed anew
    + folder: on the host, in which some of it lies

    All of it is fetched and compared first, so that another digest leaves the environment as it is.
    """
    wanted = ["--require-hashes", "--no-deps", "--only-binary", ":all:"]
    wanted += ["--requirement", new_lock(spec)]
    wanted += ["--find-links", folder] if folder else []
    install = install_command(spec, *wanted)
    fetched = f"{spec.paths.cache}/pyinfra-gpu-fetched"
    fetch = program("pytorch/fetch.sh", fetched, *install)
    noted = quoted("mv", "-f", "-T", new_lock(spec), spec.paths.torch_lock)
    install += ["--reinstall"] if there else []
    return f"{fetch} && {marked(spec, install, after=noted)}"


def new_lock(spec: HostSpec) -> str:
    """Return the path of the lock that is being installed; it gets its name when it is."""
    return f"{spec.paths.torch_lock}.new"


def marked(spec: HostSpec, install: list[str], *, after: str = "true") -> str:
    """Return the shell command: resolve, mark, install, unmark.

    + after: a shell command between the installation and the end of it

    What cannot be resolved (a version the index does not have) has touched nothing, and leaves
    no mark.
    """
    mark = quoted(installing_mark(spec))
    resolve = quoted(*install, "--quiet", "--dry-run")
    done = f"{after} && sync -f {mark} && rm {mark}"
    return f"{resolve} && touch {mark} && {quoted(*install)} && {done}"


def installing_mark(spec: HostSpec) -> str:
    """Return the path of the file that is there while packages are being installed."""
    return f"{spec.paths.venv}/.pyinfra-gpu-installing"


def constraint(spec: HostSpec, record: Record) -> list[str]:
    """Return the options that hold what the lock names to its version and digest; none without.

    A fallback is another torch than the lock is for.
    """
    locked = lock_of(spec, record) is not None and not has_fallback(spec, record)
    return ["--constraint", spec.paths.torch_lock] if locked else []


def sources(spec: HostSpec) -> list[str]:
    """Return where a host's packages come from, as options that pip and uv spell alike."""
    wheels = spec.pytorch.wheels
    return ["--no-index", *_options("--find-links", wheels)] if wheels else index_options(spec)


def index_options(spec: HostSpec) -> list[str]:
    """Return the declared indexes, as options that pip and uv spell alike."""
    torch = spec.pytorch
    extra = _options("--extra-index-url", torch.extra_index_url)
    return [*_options("--index-url", torch.index_url), *extra]


def _options(option: str, url: str | None) -> list[str]:
    """Return an option, with what pip needs to read plain http, which only data can ask for."""
    if not url:
        return []
    host = urlsplit(url).netloc
    return [option, url, *(["--trusted-host", host] if url.startswith("http:") else [])]


def folder(spec: HostSpec) -> str:
    """Return the folder on the host that packages come from; empty where it is none."""
    wheels = spec.pytorch.wheels or ""
    return wheels if wheels.startswith("/") else ""
