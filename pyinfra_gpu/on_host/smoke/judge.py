"""The checks: what each needs from the ranks, what it expects, and how it decides.

Pure functions of the facts that the ranks wrote down; no rank has a say in its own case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import exactness
from .options import REHEARSAL_CPU
from .plan import VOCABULARY
from .torch_location import TorchLocation

Facts = Mapping[int, Mapping[str, Any]]
"""Rank -> fact name -> value, in the order of the ranks."""

LOSS_TOLERANCE = 0.2
DROP_TOLERANCE = 0.1
BF16_TOLERANCE = 1e-2
"""Of a loss; bfloat16 has three significant digits, and a mean over 512 tokens most of them."""


@dataclass(frozen=True)
class Expected:
    """What the launcher knows before any rank runs."""

    ranks: int
    allreduce_mib: int
    torch: TorchLocation
    removed: Sequence[str]
    mode: str = REHEARSAL_CPU
    devices: int = 1
    """How many devices are tried one by one before the ranks run."""
    gpus: int = 0
    """How many GPUs the caller declares."""
    gpu_host: Mapping[str, Any] | None = None
    """What is known of the GPUs before torch is imported; None where none is used."""
    compile: bool = True
    """Whether programs on this host are meant to use torch.compile."""


@dataclass(frozen=True)
class Finding:
    """The outcome of one check. `rank` is the rank to look at, None if not one in particular."""

    ok: bool
    measured: Any
    expected: Any
    detail: str = ""
    rank: int | None = None
    status: str | None = None
    """In place of pass or fail: warn or skip, and the run goes on; or unknown, with `ok` false."""


@dataclass(frozen=True)
class Check:
    """A check that can be decided as soon as every participant has recorded the facts it needs.

    The participants of S4 are the ranks; of S1 to S3 one process a device; of S0 and S5 the
    launcher alone, as number 0. An id begins with the stage's.
    """

    id: str
    needs: tuple[str, ...]
    decide: Callable[[Facts, Expected], Finding]
    each: bool = False
    """Whether a failure shows on one rank's facts alone, when the other ranks have none."""


def _environment(facts: Facts, _: Expected) -> Finding:
    for rank, fact in facts.items():
        if left := fact["environment"]:
            detail = f"rank {rank} was started with {', '.join(left)} set"
            return Finding(False, left, [], detail, rank)
    return Finding(True, [], [])


def _located(facts: Facts, _: Expected) -> Finding:
    """Decide before any other process starts what `import torch` would find."""
    location = facts[0]["torch_location"]
    wanted = f"{location['packages']}/torch"
    if location["found"] is None:
        detail = f"{location['python']} finds no torch, expected it in {location['packages']}"
        return Finding(False, None, wanted, detail)
    if location["found"] != wanted:
        blame = ", remove PYTHONPATH" if location["by_pythonpath"] else ""
        detail = f"import torch would take {location['found']}, expected {wanted}{blame}"
        return Finding(False, location["found"], wanted, detail)
    return Finding(True, wanted, wanted, f"torch {location['version']}")


def _torch(noun: str) -> Callable[[Facts, Expected], Finding]:
    def decide(facts: Facts, expected: Expected) -> Finding:
        wanted = {"torch": expected.torch.version, "torch_path": expected.torch.found}
        for number, fact in facts.items():
            path = fact["identity"]["torch_path"].rpartition("/")[0]
            measured = {"torch": fact["identity"]["torch"], "torch_path": path}
            if measured != wanted:
                detail = f"{noun} {number} imported torch {measured['torch']} from {path}"
                return Finding(False, measured, wanted, detail, number)
        return Finding(True, wanted, wanted, f"torch {expected.torch.version}")

    return decide


def _identity(facts: Facts, expected: Expected) -> Finding:
    identities = {rank: fact["identity"] for rank, fact in facts.items()}
    host = next(iter(identities.values()))["host"]
    for rank, identity in identities.items():
        measured = {key: identity[key] for key in ("rank", "world_size", "host")}
        wanted = {"rank": rank, "world_size": expected.ranks, "host": host}
        if measured != wanted:
            detail = f"rank {rank} reports {_pairs(measured)}; expected {_pairs(wanted)}"
            return Finding(False, measured, wanted, detail, rank)
    pids = [identity["pid"] for identity in identities.values()]
    if len(set(pids)) != len(pids):
        return Finding(False, pids, "one process a rank", "two ranks are the same process")
    devices = [identity["device"] for identity in identities.values()]
    return Finding(True, pids, "one process a rank", f"{len(pids)} ranks, {devices[0]}")


def _pairs(value: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {item}" for key, item in value.items())


def _store_address(facts: Facts, _: Expected) -> Finding:
    for rank, fact in facts.items():
        store = fact["store"]
        measured = [store["class"], store["host"], store["port"]]
        wanted = ["TCPStore", store["master_addr"], store["master_port"]]
        if measured != wanted:
            detail = f"rank {rank} uses {measured}, its environment says {wanted}"
            return Finding(False, measured, wanted, detail, rank)
    return Finding(True, measured, wanted, f"{wanted[1]}:{wanted[2]}")


def _store_libuv(facts: Facts, _: Expected) -> Finding:
    wanted = ["pt_tcpstore_uv"]
    for rank, fact in facts.items():
        store = fact["store"]
        if store["server_pid"] is None:
            detail = f"rank {rank} found no process that listens on port {store['master_port']}"
            return Finding(False, [], wanted, detail, rank)
        threads = store["server_threads"]
        if set(threads) != set(wanted):
            named = ", ".join(threads) or "none"
            role = "torchrun" if store["server_pid"] == store["agent_pid"] else "a rank"
            detail = (
                f"the store is served by {role} (pid {store['server_pid']}), "
                f"whose store threads are: {named}"
            )
            return Finding(False, threads, wanted, detail, rank)
    return Finding(True, threads, wanted, "served by torchrun" if _by_agent(facts) else "")


def _by_agent(facts: Facts) -> bool:
    stores = [fact["store"] for fact in facts.values()]
    return all(store["server_pid"] == store["agent_pid"] for store in stores)


def _all_reduce(kind: str) -> Callable[[Facts, Expected], Finding]:
    def decide(facts: Facts, expected: Expected) -> Finding:
        item = exactness.item_size(kind)
        sizes = exactness.sizes(expected.allreduce_mib)
        wanted = [[size, size // item, 0] for size in sizes for _ in range(exactness.REPEATS)]
        for rank, fact in facts.items():
            runs = fact[f"allreduce_{kind}"]["runs"]
            for number, run in enumerate(runs):
                if run["wrong"]:
                    repeat = number % exactness.REPEATS + 1
                    what = f"{exactness.size_name(run['size'])} {kind}, repeat {repeat}"
                    return _wrong_elements(rank, run, what)
            measured = [[run["size"], run["elements"], run["wrong"]] for run in runs]
            if measured != wanted:
                detail = f"rank {rank} did not compare every element of every size"
                return Finding(False, measured, wanted, detail, rank)
        return Finding(True, _summary(sizes, 0), _summary(sizes, 0), _sizes_text(sizes))

    return decide


def _summary(sizes: Sequence[int], wrong: int) -> dict[str, Any]:
    return {"bytes": list(sizes), "repeats": exactness.REPEATS, "wrong_elements": wrong}


def _sizes_text(sizes: Sequence[int]) -> str:
    first, last = exactness.size_name(sizes[0]), exactness.size_name(max(sizes))
    return f"{first} to {last}, {exactness.REPEATS} times"


def _collective(name: str) -> Callable[[Facts, Expected], Finding]:
    def decide(facts: Facts, _: Expected) -> Finding:
        for rank, fact in facts.items():
            if fact[name]["wrong"]:
                return _wrong_elements(rank, fact[name], name)
            if not fact[name]["elements"]:
                return Finding(False, 0, "elements compared", f"rank {rank} compared none", rank)
        zero = {"wrong_elements": 0}
        return Finding(True, zero, zero, f"{fact[name]['elements']} elements")

    return decide


def _wrong_elements(rank: int, run: Mapping[str, Any], what: str) -> Finding:
    index, measured, wanted = run["first"]
    detail = (
        f"{what}: rank {rank} has {run['wrong']} of {run['elements']} elements wrong, "
        f"the first is element {index}: {measured!r} in place of {wanted!r}"
    )
    return Finding(False, {"wrong_elements": run["wrong"]}, {"wrong_elements": 0}, detail, rank)


def _finite(facts: Facts, _: Expected) -> Finding:
    for rank, fact in facts.items():
        step = fact["step"]
        counts = {
            "gradients": fact["gradients"]["non_finite"],
            "parameters": step["non_finite"],
            "losses": sum(not math.isfinite(step[name]) for name in ("loss_before", "loss_after")),
        }
        if any(counts.values()):
            detail = f"rank {rank} has infinite or undefined numbers: {_pairs(counts)}"
            return Finding(False, counts, dict.fromkeys(counts, 0), detail, rank)
    return Finding(True, counts, dict.fromkeys(counts, 0))


def _equal_digests(fact_name: str, what: str) -> Callable[[Facts, Expected], Finding]:
    def decide(facts: Facts, _: Expected) -> Finding:
        digests = [fact[fact_name]["sha256"] for fact in facts.values()]
        same = len(set(digests)) == 1
        detail = "" if same else f"the ranks' {what} are not the same bytes"
        return Finding(same, digests, "equal on all ranks", detail)

    return decide


def _local_gradients(facts: Facts, _: Expected) -> Finding:
    digests = [fact["gradients"]["local_sha256"] for fact in facts.values()]
    for rank, fact in facts.items():
        if fact["gradients"]["gathered_sha256"] != digests:
            detail = f"rank {rank} did not receive the other ranks' local gradients unchanged"
            return Finding(False, fact["gradients"]["gathered_sha256"], digests, detail, rank)
    differ = len(set(digests)) == len(digests)
    detail = "" if differ else "two ranks have the same local gradient, so they had the same data"
    return Finding(differ, digests, "different on every rank", detail)


def _mean_gradient(facts: Facts, expected: Expected) -> Finding:
    exact = expected.ranks == 2
    for rank, fact in facts.items():
        gradients = fact["gradients"]
        if gradients["averaged"] != gradients["elements"]:
            missing = gradients["elements"] - gradients["averaged"]
            detail = f"rank {rank} left {missing} gradient elements out of the averaging"
            if gradients["averaged"] == 0:
                detail = f"rank {rank} exchanged no gradient at all: each rank trained by itself"
            return Finding(False, gradients["averaged"], gradients["elements"], detail, rank)
        if gradients["wrong"]:
            index, measured, wanted = gradients["first"]
            detail = (
                f"rank {rank}: {gradients['wrong']} of {gradients['elements']} averaged gradient "
                f"elements are not the mean, the first is {index}: {measured!r}, not {wanted!r}"
            )
            return Finding(False, {"wrong_elements": gradients["wrong"]}, 0, detail, rank)
    how = "bit for bit" if exact else "within rounding (more than two ranks have no fixed order)"
    zero = {"wrong_elements": 0, "compared": "bits" if exact else "rounding bound"}
    return Finding(True, zero, zero, how)


def _initial_loss(facts: Facts, _: Expected) -> Finding:
    wanted = math.log(VOCABULARY)
    losses = {rank: fact["step"]["loss_before"] for rank, fact in facts.items()}
    for rank, loss in losses.items():
        if not abs(loss - wanted) <= LOSS_TOLERANCE:
            detail = f"rank {rank} starts at loss {loss:.4f}, untrained it must be {wanted:.4f}"
            return Finding(False, loss, wanted, f"{detail} +- {LOSS_TOLERANCE}", rank)
    return Finding(True, list(losses.values()), wanted, f"{loss:.3f}, ln V = {wanted:.3f}")


@dataclass(frozen=True)
class LossDrop:
    """The loss over all ranks' data before and after the step, and the drop it should show."""

    before: float
    after: float
    predicted: float

    @property
    def ratio(self) -> float:
        """Return measured drop / predicted drop; not a number where nothing was predicted."""
        return (self.before - self.after) / self.predicted if self.predicted else math.nan


def loss_drop(facts: Facts) -> LossDrop:
    """Return the global mean losses and lr * |g|^2 of the averaged gradient."""
    steps = [fact["step"] for fact in facts.values()]
    gradients = [fact["gradients"] for fact in facts.values()]
    return LossDrop(
        before=sum(step["loss_before"] for step in steps) / len(steps),
        after=sum(step["loss_after"] for step in steps) / len(steps),
        predicted=steps[0]["lr"] * gradients[0]["norm_squared"],
    )


def _loss_drop(facts: Facts, _: Expected) -> Finding:
    drop = loss_drop(facts)
    low, high = 1 - DROP_TOLERANCE, 1 + DROP_TOLERANCE
    ok = low <= drop.ratio <= high
    text = f"measured/predicted = {drop.ratio:.4f}"
    detail = text if ok else f"the loss fell by {drop.before - drop.after:.6f}, {text}"
    return Finding(ok, drop.ratio, [low, high], detail)


def _compiled_step(facts: Facts, _: Expected) -> Finding:
    wanted = {"relative_difference": BF16_TOLERANCE}
    for rank, fact in facts.items():
        step = fact["compiled_step"]
        if not step["compiled"]:
            return Finding(True, None, None, "nothing is compiled here", status="skip")
        if step["missing"] or step["non_finite"]:
            counts = {"without a gradient": step["missing"], "not finite": step["non_finite"]}
            detail = f"rank {rank}, compiled: {_pairs(counts)}"
            return Finding(False, counts, dict.fromkeys(counts, 0), detail, rank)
        apart = abs(step["loss"] - step["eager_loss"]) / abs(step["eager_loss"])
        measured = {"relative_difference": apart}
        if not apart <= BF16_TOLERANCE:
            losses = f"{step['loss']:.4f}, in eager mode {step['eager_loss']:.4f}"
            detail = f"rank {rank}: the compiled bfloat16 step has loss {losses}"
            return Finding(False, measured, wanted, detail, rank)
    return Finding(True, measured, wanted, f"bf16, {apart:.1e} from eager")


def _ended(facts: Facts, _: Expected) -> Finding:
    ended = facts[0]["ended"]
    if ended["code"] or ended["unfinished"]:
        detail = f"exit code {ended['code']}, not finished: {ended['unfinished']}"
        return Finding(False, ended["code"], 0, detail)
    return Finding(True, 0, 0, "exit code 0")


SINGLE_CHECKS: tuple[Check, ...] = (
    Check("S1.torch", ("torch_location",), _located),
    Check("S1.import", ("identity",), _torch("process"), each=True),
)
SINGLE_FINISHED = Check("S3.finished", ("ended",), _ended)
ALL_REDUCES = ("S4.allreduce_exact", "S4.allreduce_exact_bf16")
FINISHED = Check("S4.finished", ("ended",), _ended)
CHECKS: tuple[Check, ...] = (
    Check("S4.environment", ("environment",), _environment, each=True),
    Check("S4.torch", ("identity",), _torch("rank"), each=True),
    Check("S4.identity", ("identity",), _identity, each=True),
    Check("S4.store_address", ("store",), _store_address, each=True),
    Check("S4.store_libuv", ("store",), _store_libuv, each=True),
    Check("S4.allreduce_exact", ("allreduce_float32",), _all_reduce("float32"), each=True),
    Check("S4.allreduce_exact_bf16", ("allreduce_bfloat16",), _all_reduce("bfloat16"), each=True),
    Check("S4.broadcast", ("broadcast",), _collective("broadcast"), each=True),
    Check("S4.all_gather", ("all_gather",), _collective("all_gather"), each=True),
    Check("S4.reduce_scatter", ("reduce_scatter",), _collective("reduce_scatter"), each=True),
    Check("S4.send_recv", ("send_recv",), _collective("send_recv"), each=True),
    Check(
        "S4.params_initial",
        ("parameters_before",),
        _equal_digests("parameters_before", "parameters before the step"),
    ),
    Check("S4.grad_local_differs", ("gradients",), _local_gradients),
    Check("S4.grad_bitwise", ("gradients",), _mean_gradient),
    Check("S4.grad_equal", ("gradients",), _equal_digests("gradients", "averaged gradients")),
    Check("S4.finite", ("gradients", "step"), _finite, each=True),
    Check("S4.loss_initial", ("step",), _initial_loss, each=True),
    Check("S4.loss_drop", ("gradients", "step"), _loss_drop),
    Check(
        "S4.params_equal",
        ("parameters_after",),
        _equal_digests("parameters_after", "parameters after the step"),
    ),
    Check("S4.compiled_step", ("compiled_step",), _compiled_step, each=True),
)
