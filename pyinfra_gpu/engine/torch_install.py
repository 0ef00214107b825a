"""How uv fills the environment: with a release, a nightly, what was built, or its fallback."""

from __future__ import annotations

import json
from collections.abc import Sequence
from urllib.parse import urlsplit

from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from pyinfra_gpu.engine import deadlines, journal, wheels
from pyinfra_gpu.engine.converge import Commands, refuse
from pyinfra_gpu.engine.declared import declared
from pyinfra_gpu.engine.look import last_of
from pyinfra_gpu.engine.meeting import executing
from pyinfra_gpu.engine.privilege import as_owner
from pyinfra_gpu.engine.steps import failed, quoted, step
from pyinfra_gpu.engine.write import File, write
from pyinfra_gpu.facts.pytorch_build import Wheel
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.spec.model import PytorchSpec
from pyinfra_gpu.stages.pytorch import findings
from pyinfra_gpu.stages.pytorch.lock import lock_of, no_lock, platform_of
from pyinfra_gpu.stages.pytorch_build import findings as pytorch_build

STAGE = findings.STAGE


def install(spec: HostSpec, record: Record, wrong: str, damaged: Sequence[str]) -> Commands:
    """Install torch, from where it is declared to come, by the lock where there is one.

    + wrong: what is wrong with the torch that is there, in a few words; empty where nothing is
    + damaged: names of other distributions, which are installed again as they are
    """
    torch, files, lock = spec.pytorch, list[str](), lock_of(spec, record)
    what, wanted = f"install torch {torch.full_version}", [torch.requirement]
    if lock is None and torch.lock == "required":  # for a Python that was not known before
        yield refuse(STAGE, no_lock(spec, platform_of(spec, record)).sentence(spec.host))
        return
    if torch.source != "wheel" and wrong:
        yield FunctionCommand(bring, (spec, record, files), {})
        if executing() and not files:
            what, lock = f"install the fallback torch {torch.full_fallback}", None
            wanted = [*torch.fallback_from]
            wrong = "" if findings.has_fallback(spec, record) else wrong
            if not wrong and not damaged:
                return
    again = [*(["torch"] if wrong and findings.is_there(record) else []), *damaged]
    if lock is not None:
        file = File(path=new_lock(spec), content=lock.requirements.encode())
        yield write(STAGE, file, as_owner(spec, record))
        there = record.torch.distributions != {}  # without torch too, from a run that was cut off
        command, what = locked_install(spec, there=there), f"{what} by {lock.path}"
    else:
        what = what if wrong else f"reinstall {', '.join(damaged)}"
        words = [*(files or wanted)] if wrong else ["--no-deps"]
        words += [word for name in again for word in ("--reinstall-package", name)]
        words += findings.requirements(record, damaged)
        after = quoted("rm", "-f", spec.paths.torch_lock)
        if torch.building is not None and files:
            after = f"{after} && {_noted(spec, record)}"
            command = marked(spec, install_command(spec, *words), after=after)
            command = f"{_as_proven(spec, record)} && {{ {command}; }}"
        else:
            command = marked(spec, install_command(spec, *words), after=after)
    if record.torch.installing is True:
        # Another run may have been at work when we looked, and have finished meanwhile.
        command = f"[ ! -e {quoted(installing_mark(spec))} ] || {{ {command}; }}"
    yield long_step(spec, record, f"{what} ({wrong})" if wrong else what, command)


def _noted(spec: HostSpec, record: Record) -> str:
    """Return the command that notes which build is installed."""
    ingredients = pytorch_build.ingredients(spec, record)
    note = {"fingerprint": pytorch_build.fingerprint(spec, record), "ingredients": ingredients}
    path = f"{spec.paths.venv}/.pyinfra-gpu-build.json"
    return f"printf %s {quoted(json.dumps(note))} >{quoted(path)}"


def _as_proven(spec: HostSpec, record: Record) -> str:
    """Return the command that fails where a wheel that was built here is not what was proven.

    Its note goes then, and the next run builds it again from the compiler's cache.
    """
    wheel, build = record.build.wheel, spec.paths.build
    if not isinstance(wheel, Wheel) or not pytorch_build.has_wheel(spec, record):
        return "true"
    path = f"{build}/wheels/{wheel.file}"
    check = f"echo {quoted(f'{wheel.sha256}  {path}')} | sha256sum --check --status"
    why = f"the built wheel {path} was damaged since it was proven: run again, and it is made again"
    gone = quoted("rm", "-f", "--", f"{build}/wheel.json")
    return f"{{ {check} || {{ {gone}; echo {quoted(why)} >&2; false; }}; }}"


def bring(state: State, host: Host, spec: HostSpec, record: Record, came: list[str]) -> bool:
    """Have the files of a nightly, or the wheel of a build, on the host; fail the host otherwise.

    + came: is given the files' paths there; empty where a declared fallback takes their place
    """
    torch, folder, run_as = spec.pytorch, f"{spec.paths.build}/wheels", as_owner(spec, record)
    name = f"{host.name}: torch {torch.full_version}"
    try:
        if torch.building is None:
            files = _nightly(spec, record)
        elif pytorch_build.has_wheel(spec, record):
            assert isinstance(record.build.wheel, Wheel)  # noqa: S101 - for mypy
            came.append(f"{folder}/{record.build.wheel.file}")
            return True
        else:
            files = _built(state, spec, record)
        for path, sha256 in files.items():
            host.log(f"bring {path.name} ...")
            wheels.send(state, host, run_as, folder, path, sha256)
            came.append(f"{folder}/{path.name}")
    except wheels.WheelError as error:
        return given_up(host, STAGE, spec, f"{name} {error}")
    except OSError as error:
        return failed(host, STAGE, f"{name} could not be transferred: {error}: run again")
    return True


def _nightly(spec: HostSpec, record: Record) -> wheels.Kept:
    """Return the files of the declared nightly. Raises WheelError, and OSError."""
    if (platform := platform_of(spec, record)) is None:
        raise wheels.WheelError("is for a Python whose version is not known")
    return wheels.nightly(spec.pytorch.full_version, platform, index_options(spec.pytorch))


def _built(state: State, spec: HostSpec, record: Record) -> wheels.Kept:
    """Return the wheel of the declared build, from the cache or from a host of this run that has
    it. Raises WheelError, and OSError.
    """
    mine = pytorch_build.fingerprint(spec, record)
    if found := wheels.cached(mine):
        return found
    for other in state.inventory:
        there, its = last_of(other), declared(other)
        wheel = there and there.build.wheel
        if there and isinstance(wheel, Wheel) and wheel.fingerprint == mine:
            return wheels.fetch(state, other, as_owner(its, there), its.paths.build, wheel)
    raise wheels.WheelError("was built by no host of this run: run this for one that builds it too,"
                            " or remove pytorch_builder")  # fmt: skip


def given_up(host: Host, stage: str, spec: HostSpec, sentence: str) -> bool:
    """Fail the host; where data declares a fallback, say that instead, and go on with it."""
    fallback = spec.pytorch.full_fallback
    if fallback is None:
        return failed(host, stage, sentence)
    said = f"{sentence}; its fallback, torch {fallback}, takes its place"
    journal.warn(stage, said)
    host.log(said)
    return True


# --- command lines


def install_command(spec: HostSpec, *requirements: str) -> list[str]:
    """Return uv's command line for installing into the virtual environment.

    uv leaves bytecode to the first import, and every process that may not write into the
    environment then compiles torch's modules anew: `import torch` takes 8 s of a processor, not 3.
    """
    paths = spec.paths
    words = (paths.uv, "pip", "install", "--no-config", "--cache-dir", paths.cache)
    return [*words, "--python", paths.python, *sources(spec), "--compile-bytecode", *requirements]


def locked_install(spec: HostSpec, *, there: bool) -> str:
    """Return the shell command that installs what a lock on the host names.

    + there: whether something is installed, and perhaps without its digest having been asked: then
      all of it is installed anew
    """
    wanted = ["--require-hashes", "--no-deps", "--only-binary", ":all:"]
    wanted += ["--requirement", new_lock(spec), *(["--reinstall"] if there else [])]
    wanted += ["--find-links", f"{spec.paths.build}/wheels"] if spec.pytorch.nightly else []
    noted = quoted("mv", "-f", "-T", new_lock(spec), spec.paths.torch_lock)
    return marked(spec, install_command(spec, *wanted), after=noted)


def new_lock(spec: HostSpec) -> str:
    """Return the path of the lock that is being installed; it gets its name when it is."""
    return f"{spec.paths.torch_lock}.new"


def marked(spec: HostSpec, install: list[str], *, after: str = "true") -> str:
    """Return the shell command: mark, install, unmark.

    + after: a shell command between the installation and the end of it

    The mark stays when the command is cut off, whatever cut it off, and tells the next run that
    files may be missing although their names are there. uv fetches all, and compares digests,
    before it touches the environment: where it failed before that, no mark stays.
    """
    mark = quoted(installing_mark(spec))
    packages = quoted(f"{spec.paths.venv}/lib", f"{spec.paths.venv}/bin")
    untouched = f'[ "$new" ] && [ ! "$(find {packages} -newer {mark} -print -quit)" ]'
    begun = f"{{ new=; [ -e {mark} ] || new=1; touch {mark}; }}"
    installed = f"{{ {quoted(*install)} || {{ {untouched} && rm {mark}; false; }}; }}"
    return f"{begun} && {installed} && {after} && sync -f {mark} && rm {mark}"


def installing_mark(spec: HostSpec) -> str:
    """Return the path of the file that is there while packages are being installed."""
    return f"{spec.paths.venv}/.pyinfra-gpu-installing"


def constraint(spec: HostSpec, record: Record) -> list[str]:
    """Return the options that hold what the lock names to its version and digest; none without.

    A fallback is another torch than the lock is for.
    """
    locked = lock_of(spec, record) is not None and not findings.has_fallback(spec, record)
    return ["--constraint", spec.paths.torch_lock] if locked else []


def sources(spec: HostSpec) -> list[str]:
    """Return where a host's packages come from, as options that pip and uv spell alike."""
    wheels = spec.pytorch.wheels
    return (
        ["--no-index", *_options("--find-links", wheels)] if wheels else index_options(spec.pytorch)
    )


def index_options(torch: PytorchSpec) -> list[str]:
    """Return the declared indexes, as options that pip and uv spell alike."""
    extra = _options("--extra-index-url", torch.extra_index_url)
    return [*_options("--index-url", torch.index_url), *extra]


def _options(option: str, url: str | None) -> list[str]:
    """Return an option, with what pip needs to read plain http, which only data can ask for."""
    if not url:
        return []
    host = urlsplit(url).netloc
    return [option, url, *(["--trusted-host", host] if url.startswith("http:") else [])]


def long_step(spec: HostSpec, record: Record, what: str, command: str) -> PyinfraCommand:
    """Return a step of the owner's that may fetch gigabytes.

    + what: what it does, in a few words for the screen
    """
    return step(
        STAGE,
        what,
        command,
        run_as=as_owner(spec, record),
        seconds=deadlines.INSTALL,
        lock=spec.paths.lock,
        stream=spec.accelerator == "nvidia",  # gigabytes: show that it is alive
    )
