"""S4 broken in every way we know, in real runs: each breakage has the right check and sentence."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.on_host.smoke_runs import FAILED, Run, broken, broken_compiled, broken_preloaded

pytestmark = pytest.mark.torch

_ALL_REDUCE = "    dist.all_reduce(tensor)\n"
_HOOK = "return default_hooks.allreduce_hook(group, bucket)"
_STEP = "        torch.optim.SGD(model.parameters(), lr=lr).step()\n"
_DDP = "nn.parallel.DistributedDataParallel"
_MODEL = "SmallGpt().to(device)"
_FINISHED = "    journal.finished()\n"
_REPLICATE = "        model, gradients = _replicate(rank, device)\n"
_INIT = '            dist.init_process_group("gloo", timeout='
_SLEEP = "__import__('time').sleep(10**6)"
_PATIENT_RERUN = ("launcher/hang.py", "_EACH_S = 15", "_EACH_S = 50")  # a busy machine takes longer

PLANS = {
    "a rank sleeps for ever": broken(  # first, because others run while it waits
        "S4.allreduce_exact_bf16",
        (
            "rank 1 was still at 'allreduce_bfloat16' after",
            "(S4's deadline)",
            "a small all-reduce alone passes here",
        ),
        "ranks/collectives.py",
        '            value["runs"] = all_reduce_sizes',
        f"            if rank == 1 and kind == 'bfloat16': {_SLEEP}\n"
        '            value["runs"] = all_reduce_sizes',
        *_PATIENT_RERUN,
        deadline=120,
    ),
    "a rank hangs before the group is there": broken_preloaded(
        "S4.store_address",
        ("all ranks were still at 'init' after", "none of 2 tries with other settings passes"),
        "ranks/worker.py",
        _INIT,
        f"            if rank == 1: {_SLEEP}\n{_INIT}",
        *_PATIENT_RERUN,
        deadline=90,
    ),
    "a rank skips one all-reduce": broken_preloaded(
        "S4.allreduce_exact",
        "elements wrong",
        "ranks/collectives.py",
        _ALL_REDUCE,
        f"    if rank == 0 or elements != 1024 or repeat != 1:\n    {_ALL_REDUCE}",
    ),
    "one bit of one element of 64 MiB is wrong": broken_preloaded(
        "S4.allreduce_exact",
        ("64 MiB float32", "rank 1 has 1 of 16777216 elements wrong", "element 12345678"),
        "ranks/collectives.py",
        _ALL_REDUCE,
        f"{_ALL_REDUCE}    if rank == 1 and elements == 2**24 and tensor.dtype == torch.float32:\n"
        "        tensor.view(torch.int32)[12345678] ^= 1\n",
        allreduce_mib=64,
    ),
    "one bit is wrong in bfloat16": broken_preloaded(
        "S4.allreduce_exact_bf16",
        ("1 MiB bfloat16, repeat 1: rank 0 has 1 of 524288", "element 99"),
        "ranks/collectives.py",
        _ALL_REDUCE,
        f"{_ALL_REDUCE}    if rank == 0 and elements == 2**19 and tensor.dtype == torch.bfloat16:\n"
        "        tensor.view(torch.int16)[99] ^= 1\n",
    ),
    "an all-reduce returns the result of the one before": broken_preloaded(
        "S4.allreduce_exact",
        "4 KiB float32, repeat 2",
        "ranks/collectives.py",
        _ALL_REDUCE,
        f"{_ALL_REDUCE}    if elements == 1024 and repeat == 1:\n"
        "        tensor.copy_(values.of_sum(0, elements))\n",
    ),
    "an all-reduce swaps two chunks": broken_preloaded(
        "S4.allreduce_exact",
        "1 MiB float32, repeat 1",
        "ranks/collectives.py",
        _ALL_REDUCE,
        f"{_ALL_REDUCE}    if elements == 2**18:\n"
        "        tensor.copy_(torch.cat([tensor[2**17:], tensor[:2**17]]))\n",
    ),
    "a broadcast has the wrong source": broken_preloaded(
        "S4.broadcast",
        ("broadcast: rank", "-1.0 in place of"),
        *("ranks/collectives.py", "dist.broadcast(piece, source)", "dist.broadcast(piece, 0)"),
    ),
    "an all-gather mixes up the ranks": broken_preloaded(
        "S4.all_gather",
        ("all_gather: rank", "has 524288 of 524288 elements wrong"),
        *(
            "ranks/collectives.py",
            "dist.all_gather(pieces, mine)",
            "dist.all_gather(pieces[::-1], mine)",
        ),
    ),
    "a reduce-scatter gives each rank another's share": broken_preloaded(
        "S4.reduce_scatter",
        ("reduce_scatter: rank", "has 262144 of 262144 elements wrong"),
        "ranks/collectives.py",
        "dist.reduce_scatter(mine, given)",
        "dist.reduce_scatter(mine, given[::-1])",
    ),
    "what is received is not what was sent": broken_preloaded(
        "S4.send_recv",
        ("send_recv: rank", "elements wrong"),
        "ranks/collectives.py",
        "        dist.send(mine, target)\n        dist.recv(received, source)\n",
        "        dist.send(mine.flip(0), target)\n        dist.recv(received, source)\n",
    ),
    "an object comes as another type": broken_preloaded(
        "S4.object_list",
        ("rank 1 received", "'betas': [0.9, 0.95]", "in place of", "'betas': (0.9, 0.95)"),
        "ranks/object_list.py",
        '        value["held"]',
        "        if it.rank == 1: held[0]['betas'] = list(held[0]['betas'])\n"
        '        value["held"]',
    ),
    "both ranks have the same data": broken_preloaded(
        "S4.grad_local_differs",
        "same data",
        *("ranks/training_step.py", "manual_seed(2000 + rank)", "manual_seed(2000)"),
    ),
    "the ranks begin with other parameters": broken_preloaded(
        "S4.params_initial",
        "parameters before the step are not the same",
        *("ranks/training_step.py", f"{_DDP}({_MODEL})", f"{_DDP}({_MODEL}, init_sync=False)"),
    ),
    "a parameter is left out of synchronisation": broken_preloaded(
        "S4.grad_bitwise",
        "left 1048576 gradient elements out",
        *("ranks/training_step.py", "manual_seed(1000 + rank)", "manual_seed(1000)"),
        "ranks/training_step.py",
        f"{_DDP}({_MODEL})",
        f"{_MODEL}\n    {_DDP}."
        "_set_params_and_buffers_to_ignore_for_model(model, ['head.weight'])\n"
        f"    model = {_DDP}(model)",
    ),
    "no gradient is exchanged": broken_preloaded(
        "S4.grad_bitwise",
        "exchanged no gradient at all",
        "ranks/training_step.py",
        "        loss_before = model(tokens, targets)\n        loss_before.backward()\n",
        "        with model.no_sync():\n            loss_before = model(tokens, targets)\n"
        "            loss_before.backward()\n",
    ),
    "a parameter differs after the step": broken_preloaded(
        "S4.params_equal",
        "parameters after the step are not the same",
        "ranks/training_step.py",
        _STEP,
        f"{_STEP}        with torch.no_grad():\n"
        "            model.module.norm.weight[3] *= 1 + rank * 1e-6\n",
    ),
    "gradients are summed in place of averaged": broken_preloaded(
        "S4.grad_bitwise",
        "are not the mean",
        "ranks/training_step.py",
        _HOOK,
        "work = dist.all_reduce(bucket.buffer(), async_op=True)\n"
        "        return work.get_future().then(lambda done: done.value()[0])",
    ),
    "the optimizer's step is twice as long": broken_preloaded(
        "S4.loss_drop",
        "measured/predicted = 1.9",
        *("ranks/training_step.py", "(model.parameters(), lr=lr)", "(model.parameters(), lr=2*lr)"),
    ),
    "a loss is not a number": broken_preloaded(
        "S4.finite",
        ("has infinite or undefined numbers", "losses 1"),
        *("ranks/training_step.py", "loss_after=loss_after.item()", "loss_after=float('nan')"),
    ),
    "the model does not begin untrained": broken_preloaded(
        "S4.loss_initial",
        "untrained it must be 9.0109",
        *("ranks/model.py", "std=0.02", "std=0.2"),
    ),
    "the compiled step computes something else": broken_compiled(
        "S4.compiled_step",
        "the compiled bfloat16 step has loss",
        *(
            "ranks/compiled_step.py",
            "loss = compiled(tokens, targets)",
            "loss = 1.1 * model(tokens, targets)",
        ),
        *("ranks/compiled_step.py", "torch.compile(model, fullgraph=True)", "model"),
    ),
    "the store is served without libuv": broken_preloaded(
        "S4.store_libuv",
        ("served by a rank", "pt_tcpstore"),
        environment={"USE_LIBUV": "0", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
    ),
    "a rank is killed": broken_preloaded(
        "S4.params_initial",
        ("rank 1 (pid", "was ended by signal 9 (SIGKILL) at 'parameters_before'"),
        "ranks/training_step.py",
        _REPLICATE,
        "        import os\n        if rank == 1: os.kill(os.getpid(), 9)\n" + _REPLICATE,
    ),
    "a rank crashes": broken_preloaded(
        "S4.params_initial",
        ("rank 0 (pid", "was ended by signal 11 (SIGSEGV) at 'parameters_before'"),
        "ranks/training_step.py",
        _REPLICATE,
        "        import ctypes\n        if rank == 0: ctypes.string_at(0)\n" + _REPLICATE,
    ),
    "a rank raises": broken_preloaded(
        "S4.params_initial",
        ("rank 1 (pid", "raised at 'parameters_before': MemoryError: too much"),
        "ranks/training_step.py",
        _REPLICATE,
        "        if rank == 1: raise MemoryError('too much')\n" + _REPLICATE,
    ),
    "a rank exits with 0 too early": broken_preloaded(
        "S4.send_recv",
        ("rank 1 (pid", "ended without an error at 'send_recv', before its work was done"),
        "ranks/collectives.py",
        "        dist.recv(received, source)\n        dist.send(mine, target)\n",
        "        import os\n        os._exit(0)\n",
    ),
    "there is one rank too many": broken_preloaded(
        "S4.identity",
        ("world_size 3", "expected", "world_size 2"),
        *(
            "launcher/site.py",
            '("--nproc-per-node", ranks,',
            '("--nproc-per-node", str(self.ranks + 1),',
        ),
    ),
    "a stray variable reaches the ranks": broken_preloaded(
        "S4.environment",
        "NCCL_P2P_DISABLE",
        *("environment.py", "{**kept,", "{**kept, 'NCCL_P2P_DISABLE': '1',"),
    ),
    "a rank imports another torch": broken_preloaded(
        "S4.torch",
        "rank 1 imported torch 1.0",
        "ranks/worker.py",
        "    identity |= {",
        "    if rank == 1: identity['torch'] = '1.0'\n    identity |= {",
    ),
    "a process outlives the test": broken(
        "S5.leftovers",
        "left processes",
        "ranks/worker.py",
        _FINISHED,
        f"{_FINISHED}    import subprocess\n"
        "    subprocess.Popen(['sleep', '1000'], start_new_session=True)\n",
    ),
    "a rank aborts on its way out": broken_preloaded(
        "S4.finished",
        "was ended by signal 6 (SIGABRT) after its work was done",
        *("ranks/worker.py", _FINISHED, f"{_FINISHED}    os.abort()\n"),
    ),
}


@pytest.mark.parametrize("plan", PLANS)
def test_this_is_noticed_and_is_no_pass(plan: str, runs: Callable[[str], Run]) -> None:
    run, wanted = runs(plan), PLANS[plan]
    failed = run.verdict["failed"]
    assert failed is not None, run.output
    assert (failed["id"], run.code, run.passed) == (wanted.check, FAILED, False), run.output
    assert run.verdict["status"] == "fail"
    assert run.status(wanted.check) == "fail"
    for words in wanted.words:
        assert words in failed["sentence"]


@pytest.mark.parametrize("plan", ["a rank sleeps for ever"])
def test_a_hang_leaves_the_stack_of_the_rank(plan: str, runs: Callable[[str], Run]) -> None:
    run = runs(plan)
    tail = run.verdict["failed"]["tail"]
    assert any("collectives.py" in line and "in measure" in line for line in tail)
    assert [rerun["result"] for rerun in run.verdict["reruns"]] == ["passed"]
    assert run.verdict["deadline_extra_s"] == 60
    stacks = [entry for entry in run.evidence() if entry["source"] == "stage"]
    assert any(entry["rank"] == 1 and "in measure" in entry["text"] for entry in stacks)


@pytest.mark.parametrize("plan", ["a rank raises"])
def test_the_evidence_begins_with_the_rank_that_failed_first(
    plan: str, runs: Callable[[str], Run]
) -> None:
    entries = runs(plan).evidence()
    assert (entries[0]["source"], entries[0]["rank"]) == ("rank", 1)
    assert "MemoryError: too much" in entries[0]["text"]
    assert {"rank", "torchrun", "stage"} <= {entry["source"] for entry in entries}
    assert any("Root Cause" in entry["text"] for entry in entries if entry["source"] == "torchrun")


@pytest.mark.parametrize("plan", ["a rank is killed"])
def test_a_failure_on_the_ranks_leaves_the_stages_before_it_passed(
    plan: str, runs: Callable[[str], Run]
) -> None:
    stages = {stage["id"]: stage["status"] for stage in runs(plan).verdict["stages"]}
    # S3: this run's user has switched torch.compile off
    assert stages == {
        "S0": "pass",
        "S1": "pass",
        "S2": "pass",
        "S3": "warn",
        "S4": "fail",
        "S5": stages["S5"],
    }
    assert stages["S5"] in ("pass", "warn")
