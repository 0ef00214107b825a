"""A catalogue of a few made-up failures, so that the matcher's rules are tested apart from data."""

from __future__ import annotations

from pyinfra_gpu.diagnosis.catalogue import read_catalogue
from pyinfra_gpu.diagnosis.matcher import diagnose
from pyinfra_gpu.on_host.diagnosis.entries import Catalogue
from pyinfra_gpu.on_host.diagnosis.log import Source
from pyinfra_gpu.on_host.diagnosis.matcher import Diagnosis

TEXTS = {
    "driver": """
DRV-01:
  kind: root
  patterns: ['NVRM: Xid \\(PCI:[0-9a-f:.]{4,16}\\): (?P<xid>\\d{1,3})']
  samples: ["NVRM: Xid (PCI:0000:01:00): 79, pid=1"]
  cause: "Xid <xid> is not known"
  fix: ["look up <xid>"]
  source: made up
  explains: [cuda]
  case_group: xid
  cases:
    - {values: ["79"], kind: root, cause: "the card is gone", fix: ["power off"]}
    - {values: ["13"], kind: evidence, cause: "a program's mistake", fix: ["debug it"]}
""",
    "cuda": """
CUDA-01:
  kind: root
  patterns: ['unsupported display driver']
  samples: ["Error 803: system has unsupported display driver"]
  cause: libcuda does not fit
  fix: ["compare `ldconfig -p` with the module"]
  source: made up
  explains: [CUDA-09]
  cases:
    - {facts: {compat_on_path: yes}, kind: root, cause: compat is on the path, fix: ["remove it"]}
    - {facts: {library_differs: yes}, kind: root, cause: the module is old, fix: ["reboot"]}
CUDA-02:
  kind: root
  patterns: ['CUDA out of memory\\. Tried to allocate (?P<size>[\\d.]{1,8} [KMG]iB)']
  samples: ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."]
  cause: "no room for <size>"
  fix: ["halve the batch"]
  source: made up
CUDA-09:
  kind: root
  patterns: ['No CUDA GPUs are available']
  samples: ["RuntimeError: No CUDA GPUs are available"]
  cause: none is seen
  fix: ["run `nvidia-smi -L`"]
  source: made up
  cases:
    - seen: 'vfio-pci holds (?P<card>[\\w:.]{4,16})'
      seen_in: "vfio-pci holds 01:00.0"
      kind: root
      cause: "<card> is another's"
      fix: ["give it back"]
CUDA-10:
  kind: expected
  patterns: ['MXFP4 scaling only supported']
  samples: ["RuntimeError: MXFP4 scaling only supported in CUDA for B200"]
  cause: not on this GPU
  fix: ["use NVFP4"]
  source: made up
""",
    "store": """
STORE-01:
  kind: root
  patterns: ['Address already in use']
  samples: ["RuntimeError: The server socket has failed to bind. Address already in use"]
  cause: the port is taken
  fix: ["use `torchrun --standalone`"]
  source: made up
STORE-08:
  kind: wrapper
  patterns: ['multiprocessing\\.errors\\.ChildFailedError']
  samples: ["torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"]
  cause: a rank failed
  fix: ["see its log"]
  source: made up
STORE-09:
  kind: root
  weak: yes
  patterns: ['exitcode {1,3}: -9 \\(pid']
  samples: ["  exitcode  : -9 (pid: 31087)  (SIGKILL)"]
  cause: the rank was killed
  fix: ["read `dmesg -T`"]
  source: made up
STORE-10:
  kind: secondary
  patterns: ['exitcode {1,3}: -15 \\(pid']
  samples: ["  exitcode  : -15 (pid: 31088)  (SIGTERM)"]
  cause: torchrun ended it
  fix: ["see the other rank"]
  source: made up
""",
    "nccl": """
NCCL-01:
  kind: root
  patterns: ['Call to posix_fallocate failed : No space left on device']
  samples: ["NCCL WARN Call to posix_fallocate failed : No space left on device"]
  cause: shared memory is full
  fix: ["`docker run --shm-size=8g IMAGE`"]
  source: made up
  explains: [NCCL-02]
NCCL-02:
  kind: root
  weak: yes
  patterns: ['unhandled system error']
  samples: ["torch.distributed.DistBackendError: NCCL error, unhandled system error"]
  cause: a system call failed
  fix: ["set `NCCL_DEBUG=INFO`"]
  source: made up
NCCL-03:
  kind: secondary
  patterns: ['remote process exited']
  samples: ["ncclRemoteError: remote process exited or there was a network error"]
  cause: the peer is gone
  fix: ["see the other rank"]
  source: made up
""",
    "host": """
HOST-01:
  kind: root
  patterns: ['No space left on device']
  samples: ["OSError: [Errno 28] No space left on device"]
  cause: a disk is full
  fix: ["run `df -h`"]
  source: made up
HOST-02:
  kind: root
  patterns: ['Out of memory: Killed process (?P<pid>\\d{1,9})']
  samples: ["Out of memory: Killed process 4242 (python)"]
  cause: memory ran out
  fix: ["fewer workers than `ps -p <pid>` has"]
  source: made up
  explains: [STORE-09]
""",
}
KNOWN: Catalogue = read_catalogue(TEXTS)


def explained(*logs: str | Source, **more: object) -> Diagnosis:
    """What the logs mean by the small catalogue."""
    sources = [log if isinstance(log, Source) else Source(log) for log in logs]
    return diagnose(sources, known=KNOWN, **more)  # type: ignore[arg-type]


def roots(*logs: str | Source) -> list[str]:
    """The ids of the causes that are named."""
    return [finding.id for finding in explained(*logs).findings if finding.kind == "root"]


def traceback(message: str, *, prefix: str = "") -> str:
    """A Python traceback that ends in this message."""
    lines = [
        "Traceback (most recent call last):",
        '  File "/home/ada/train.py", line 12, in <module>',
        "    main()",
        '  File "/home/ada/train.py", line 7, in main',
        "    loss = step(batch)",
        *message.split("\n"),
    ]
    return "".join(f"{prefix}{line}\n" for line in lines)


def summary(rank: int, code: int, *, others: dict[int, int] | None = None) -> str:
    """What torchrun prints at the end: this rank failed first, the others with these codes."""
    line = "=" * 60
    text = traceback("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ")
    text += f"{line}\ntrain.py FAILED\n{'-' * 60}\nFailures:\n"
    for other, other_code in (others or {}).items():
        text += _item(other, other_code, 59)
    text += f"{'-' * 60}\nRoot Cause (first observed failure):\n"
    return text + _item(rank, code, 12) + line + "\n"


def _item(rank: int, code: int, second: int) -> str:
    return (
        f"[{rank}]:\n  time      : 2026-11-21_12:00:{second:02}\n  host      : ws1\n"
        f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: {4000 + rank})\n"
        "  error_file: <N/A>\n"
        "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n"
    )
