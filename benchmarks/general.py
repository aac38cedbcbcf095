"""Gradients of any module: both ways of the general path beside a plain PyTorch loop over as many networks.

The plain loop is forward, loss and backward of N networks of their own; its gradients are left in `.grad`. All are
measured in one interleaved run, so that a noisy machine is noisy for everybody, by CPU time and by the clock. Usage:

    python benchmarks/general.py                # the table
    python benchmarks/general.py --threads 2    # with another number of threads
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedstein.models import TorchModule

PARTICLES, BATCH = 5, 100
Step = Callable[[], object]


class Recurrent(nn.Module):
    """The rows of an image, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.GRU(28, 64, batch_first=True)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rows(x[:, 0])[0][:, -1])


class Transformer(nn.Module):
    """An encoder of token ids."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(500, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.tokens(x)).mean(1))


def cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(8, 32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1568, 16), nn.ReLU(), nn.Linear(16, 10)),
    )


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))


def plain(module: nn.Module, x: Tensor, y: Tensor) -> Step:
    networks = [copy.deepcopy(module) for _ in range(PARTICLES)]

    def step() -> None:
        for network in networks:
            network.zero_grad()
            nn.functional.cross_entropy(network(x), y).backward()

    return step


def plain_outputs(module: nn.Module, x: Tensor) -> Step:
    networks = [copy.deepcopy(module).eval() for _ in range(PARTICLES)]

    def step() -> None:
        with torch.no_grad():
            for network in networks:
                network(x).log_softmax(1)

    return step


def ours(model: TorchModule, x: Tensor, y: Tensor) -> Step:
    particles = model.draw(PARTICLES, torch.Generator().manual_seed(0))
    out = torch.empty_like(particles)
    return lambda: model.loss_gradient(particles, x, y, out=out)


def our_outputs(model: TorchModule, x: Tensor) -> Step:
    particles = model.draw(PARTICLES, torch.Generator().manual_seed(0))
    return lambda: model.outputs(particles, x)


def interleave(steps: dict[str, Step], seconds: float) -> dict[str, tuple[float, float]]:
    """Median seconds of each, of CPU and by the clock, taking turns; the first is not counted."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, times.values())) < 10:
        for name, step in steps.items():
            cpu, clock = time.process_time(), time.perf_counter()
            step()
            times[name].append((time.process_time() - cpu, time.perf_counter() - clock))
    return {
        name: (statistics.median(cpu for cpu, _ in pairs), statistics.median(clock for _, clock in pairs))
        for name, pairs in times.items()
    }


def row(name: str, module: nn.Module, x: Tensor, y: Tensor, seconds: float) -> str:
    models = {way: TorchModule(module, way=way) for way in ("loop", "vmap")}
    steps = {"plain": plain(module, x, y), "loop": ours(models["loop"], x, y)}
    outputs = {"plain": plain_outputs(module, x), "loop": our_outputs(models["loop"], x)}
    try:
        ours(models["vmap"], x, y)()
        our_outputs(models["vmap"], x)()
        steps["vmap"] = ours(models["vmap"], x, y)
    except RuntimeError:
        pass  # vmap cannot go through it
    chosen = TorchModule(module, way="auto")
    ours(chosen, x, y)()
    taken, evaluated = interleave(steps, seconds), interleave(outputs, seconds / 2)

    def ratio(of: dict[str, tuple[float, float]], way: str) -> str:
        cpu, clock = (mine / his for mine, his in zip(of[way], of["plain"], strict=True))
        return f"{cpu:.2f} x ({clock:.2f})"

    vmapped = ratio(taken, "vmap") if "vmap" in steps else "fails"
    return (
        f"| {name} | {models['loop'].dim:,} | {taken['plain'][0] * 1e3:.1f} ms | {ratio(taken, 'loop')} | {vmapped} | "
        f"{chosen.way} | {ratio(evaluated, 'loop')} |"
    )


def table(seconds: float, threads: int) -> None:
    torch.set_num_threads(threads)
    print(f"torch {torch.__version__}, {threads} threads, {torch.backends.cpu.get_cpu_capability()}\n")
    torch.manual_seed(0)
    images, tokens = torch.rand(BATCH, 1, 28, 28), torch.randint(0, 500, (BATCH, 32))
    labels = torch.randint(0, 10, (BATCH,))
    print("| module | parameters | plain loop | loop | vmap | auto takes | outputs by loop |")
    print("|---|---|---|---|---|---|---|")
    for name, module, x in (
        ("CNN, 2 convolutions", cnn(), images),
        ("GRU", Recurrent(), images),
        ("transformer, 2 layers", Transformer(), tokens),
        ("MLP 784-100-10", mlp(), images),
    ):
        print(row(name, module, x, labels, seconds), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of measuring for each row")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*performance drop")  # vmap falls back to a loop of its own
        table(options.seconds, options.threads)
