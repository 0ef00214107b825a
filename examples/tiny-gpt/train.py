"""Train a tiny GPT on a text file.

Alone with `python train.py`, or as several processes, each with its own GPU or CPU core, with
`torchrun --standalone --nproc-per-node 2 train.py`.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from model import Config, TinyGpt

HERE = Path(__file__).parent


class Text:
    """A text as numbers, from which random windows are drawn."""

    def __init__(self, path: Path, context: int, seed: int) -> None:
        text = path.read_text(encoding="utf-8")
        self.characters = "".join(sorted(set(text)))
        if len(text) <= context + 1:
            raise SystemExit(f"{path} has {len(text)} characters, needs more than {context + 1}")
        number = {character: index for index, character in enumerate(self.characters)}
        self._numbers = np.array([number[character] for character in text], dtype=np.int64)
        self._context = context
        self._random = np.random.default_rng(seed)

    def batch(self, size: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Return `size` windows and, as their targets, the same windows one character on."""
        starts = self._random.integers(len(self._numbers) - self._context - 1, size=size)
        windows = self._numbers[starts[:, None] + np.arange(self._context + 1)]
        tokens = torch.from_numpy(windows).to(device)
        return tokens[:, :-1], tokens[:, 1:]

    def encode(self, text: str) -> torch.Tensor:
        """Return `text` as a batch of one."""
        return torch.tensor([[self.characters.index(character) for character in text]])

    def decode(self, tokens: torch.Tensor) -> str:
        """Return the text that the numbers stand for."""
        return "".join(self.characters[number] for number in tokens.tolist())


def parse() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description="Train a character-level GPT.")
    parser.add_argument("--text", type=Path, default=HERE / "lighthouse.txt")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=16, help="windows per process and step")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkpoint", type=Path, default=HERE / "tiny-gpt.pt")
    parser.add_argument("--sample", type=int, default=0, help="characters to write at the end")
    return parser.parse_args()


def choose_device(wanted: str) -> torch.device:
    """Return this process's device: with several processes, each has a GPU of its own."""
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def mean_over_ranks(value: torch.Tensor) -> float:
    """Return the mean of a scalar over all processes."""
    value = value.detach().clone()
    if dist.is_initialized():
        dist.all_reduce(value)
        value /= dist.get_world_size()
    return value.item()


def save(path: Path, content: Mapping[str, object]) -> None:
    """Write a checkpoint so that `path` never holds half of one, even if we are killed here."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def train(options: argparse.Namespace, device: torch.device, rank: int, world_size: int) -> None:
    """Train, print the loss as it falls, and have rank 0 save the result."""
    torch.manual_seed(options.seed)  # the same weights everywhere
    text = Text(options.text, Config.context, seed=options.seed + rank)  # other data everywhere
    model = TinyGpt(Config(vocabulary=len(text.characters))).to(device)
    parallel = DistributedDataParallel(model) if world_size > 1 else model
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=options.lr)
    began = time.monotonic()
    for step in range(1, options.steps + 1):
        tokens, targets = text.batch(options.batch_size, device)
        loss = functional.cross_entropy(parallel(tokens).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 1 or step % 10 == 0 or step == options.steps:
            mean, seconds = mean_over_ranks(loss), time.monotonic() - began
            if rank == 0:
                print(f"step {step:5d}  loss {mean:.4f}  {seconds:7.2f} s", flush=True)
    if rank == 0:
        finish(options, model, text)


def finish(options: argparse.Namespace, model: TinyGpt, text: Text) -> None:
    """Save what is needed to load the model again; write a sample if one was asked for."""
    content = {
        "config": asdict(model.config),
        "characters": text.characters,
        "model": model.state_dict(),
    }
    save(options.checkpoint, content)
    print(f"saved {options.checkpoint}")
    if options.sample:
        start = text.encode("\n").to(next(model.parameters()).device)
        print(text.decode(model.continue_text(start, options.sample)[0]))


def main() -> None:
    """Train in this process, alone or as one of several started by torchrun."""
    options = parse()
    device = choose_device(options.device)
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if world_size > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    if rank == 0:
        print(f"torch {torch.__version__}, {world_size} process(es) on {device.type}")
    train(options, device, rank, world_size)
    if world_size > 1:
        # Leave together and with nothing in flight, or gloo now and then aborts a process.
        dist.barrier()
        gc.collect()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
