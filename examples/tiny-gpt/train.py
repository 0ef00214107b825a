"""Train a tiny GPT on a text file.

Alone with `python train.py`, or as several processes, each with its own GPU or CPU core, with
`torchrun --standalone --nproc-per-node 2 train.py`.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import checkpoints
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

    def place(self) -> str:
        """Return where in the data this is; `go_to` goes on from there."""
        return json.dumps(self._random.bit_generator.state)

    def go_to(self, place: str) -> None:
        """Draw from here on what would have been drawn after `place` was returned."""
        self._random.bit_generator.state = json.loads(place)

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
    parser.add_argument("--checkpoints", type=Path, help="where to save on the way")
    parser.add_argument("--save-every", type=int, default=0, metavar="N", help="steps; 0 = never")
    parser.add_argument(
        "--resume", default="none", help="auto = from the newest of --checkpoints, none, or its folder"
    )
    parser.add_argument("--sample", type=int, default=0, help="characters to write at the end")
    options = parser.parse_args()
    if options.checkpoints is None and (options.save_every or options.resume == "auto"):
        parser.error("--save-every and --resume auto need --checkpoints DIR")
    return options


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


@dataclass
class Training:
    """All that a run is made of, and that a checkpoint must hold."""

    model: TinyGpt
    optimizer: torch.optim.Optimizer
    text: Text
    rank: int
    world_size: int
    step: int = 0

    def save(self, directory: Path) -> None:
        """Write a checkpoint, of which all ranks write their part."""
        folder = checkpoints.folder_of(directory, self.step)
        if self.rank == 0:
            shared = {
                "config": asdict(self.model.config),
                "characters": self.text.characters,
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "step": self.step,
            }
            checkpoints.save(folder / "model.pt", shared)
        own = {"random": torch.get_rng_state(), "place": self.text.place()}
        checkpoints.save(folder / f"rank{self.rank}.pt", own)
        if dist.is_initialized():
            dist.barrier()  # nobody says "complete" before all have written
        if self.rank == 0:
            checkpoints.mark_complete(folder, self.step, self.world_size)
            print(f"checkpoint {folder}", flush=True)

    def resume(self, folder: Path) -> None:
        """Go on from a checkpoint: on CPUs with the very numbers that an uncut run would have."""
        shared, own = checkpoints.load(folder, self.rank, self.world_size)
        if shared["characters"] != self.text.characters:
            raise SystemExit(f"{folder} was trained on another text: give the same --text")
        self.model.load_state_dict(shared["model"])
        self.optimizer.load_state_dict(shared["optimizer"])
        self.step = shared["step"]
        self.text.go_to(own["place"])
        torch.set_rng_state(own["random"])
        if self.rank == 0:
            print(f"resumed from {folder} at step {self.step}", flush=True)


def begin(options: argparse.Namespace, device: torch.device, rank: int, world: int) -> Training:
    """Return a new run, or the one that was cut off, where it is to go on."""
    torch.manual_seed(options.seed)  # the same weights everywhere
    text = Text(options.text, Config.context, seed=options.seed + rank)  # other data everywhere
    model = TinyGpt(Config(vocabulary=len(text.characters))).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    training = Training(model, optimizer, text, rank, world)
    if options.resume == "auto":
        folder = checkpoints.newest(options.checkpoints)
    else:
        folder = None if options.resume == "none" else Path(options.resume)
    if folder:
        training.resume(folder)
    return training


def train(options: argparse.Namespace, device: torch.device, it: Training) -> None:
    """Train, print the loss as it falls, and have rank 0 save the result."""
    parallel = DistributedDataParallel(it.model) if it.world_size > 1 else it.model
    began = printed = time.monotonic()
    seen = 0  # tokens since the line before
    while it.step < options.steps:
        it.step += 1
        tokens, targets = it.text.batch(options.batch_size, device)
        loss = functional.cross_entropy(parallel(tokens).flatten(0, 1), targets.flatten())
        it.optimizer.zero_grad()
        loss.backward()
        it.optimizer.step()
        seen += targets.numel() * it.world_size
        if it.step == 1 or it.step % 10 == 0 or it.step == options.steps:
            mean, now = mean_over_ranks(loss), time.monotonic()
            if it.rank == 0:
                at = f"step {it.step:5d}/{options.steps}  loss {mean:.4f}"
                rate = f"{seen / (now - printed):,.0f} tokens/s"
                print(f"{at}  {rate:>16}  {now - began:7.2f} s", flush=True)
            printed, seen = now, 0
        if options.save_every and it.step % options.save_every == 0:
            it.save(options.checkpoints)
    if it.rank == 0:
        finish(options, it.model, it.text)


def finish(options: argparse.Namespace, model: TinyGpt, text: Text) -> None:
    """Save what is needed to load the model again; write a sample if one was asked for."""
    content = {
        "config": asdict(model.config),
        "characters": text.characters,
        "model": model.state_dict(),
    }
    checkpoints.save(options.checkpoint, content)
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
    train(options, device, begin(options, device, rank, world_size))
    if world_size > 1:
        # Leave together and with nothing in flight, or gloo now and then aborts a process.
        dist.barrier()
        gc.collect()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
