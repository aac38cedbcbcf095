"""One SVGD step on the same work, ours beside its peers: MLP 784-100-10, random images, EMA-AdaGrad.

All columns are measured in one interleaved run, so that a noisy machine is noisy for everybody. Usage:

    python benchmarks/svgd_step.py            # the table
    python benchmarks/svgd_step.py --grow     # how time grows with N_p, d and batch
    python benchmarks/svgd_step.py --memory   # peak memory of our step, in units of the particles
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch

from fedstein.inference import RBF, EmaAdaGrad, add_log_kde_score, direction
from fedstein.models import DenseStack, TorchModule
from fedstein.models.dense import has_bf16_units

SIZES = [784, 100, 10]
LAMBDA = 0.55
Step = Callable[[], object]


def work(n: int, batch: int, sizes: list[int] = SIZES) -> tuple[DenseStack, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    model = DenseStack(sizes)
    x = torch.rand(batch, sizes[0], generator=generator)
    y = torch.randint(0, sizes[-1], (batch,), generator=generator)
    return model, model.draw(n, generator), x, y


def ours(n: int, batch: int, kde: bool = False, precision: str = "float32", sizes: list[int] = SIZES) -> Step:
    model, particles, x, y = work(n, batch, sizes)
    if precision == "bf16":
        model = DenseStack(sizes, precision="bf16")
    old, score, phi = particles.clone(), torch.empty_like(particles), torch.empty_like(particles)
    move, kernel = EmaAdaGrad(1e-3).start(), RBF()

    def step() -> None:
        model.loss_gradient(particles, x, y, scale=-1.0, out=score)
        if kde:
            add_log_kde_score(score, particles, old, LAMBDA)
        move(particles, direction(particles, score, kernel, out=phi))

    return step


def torch_func(n: int, batch: int) -> Step:
    """Our own general path, for modules that are no dense stack."""
    _, particles, x, y = work(n, batch)
    layers = torch.nn.Sequential(torch.nn.Linear(784, 100), torch.nn.ReLU(), torch.nn.Linear(100, 10))
    model, move, kernel = TorchModule(layers), EmaAdaGrad(1e-3).start(), RBF()

    def step() -> None:
        score = model.loss_gradient(particles, x, y, scale=-1.0)
        move(particles, direction(particles, score, kernel))

    return step


def blackjax_svgd(n: int, batch: int) -> Step:
    """BlackJAX's svgd, jitted, with RMSprop of optax (the nearest to EMA-AdaGrad) and its median rule."""
    import blackjax
    import jax
    import jax.numpy as jnp
    import optax

    _, particles, x, y = work(n, batch)
    jx, jy = jnp.asarray(x.numpy()), jnp.asarray(y.numpy())

    def log_density(theta: jax.Array) -> jax.Array:
        w1, b1 = theta[:78400].reshape(100, 784), theta[78400:78500]
        w2, b2 = theta[78500:79500].reshape(10, 100), theta[79500:]
        logits = jax.nn.relu(jx @ w1.T + b1) @ w2.T + b2
        return -optax.softmax_cross_entropy_with_integer_labels(logits, jy).mean()

    algorithm = blackjax.svgd(jax.grad(log_density), optax.rmsprop(1e-3))
    state = algorithm.init(jnp.asarray(particles.numpy()))
    jitted = jax.jit(algorithm.step)

    def step() -> None:
        nonlocal state
        state = jitted(state)
        state.particles.block_until_ready()

    return step


def public_dsvgd(n: int, batch: int, by_column: bool) -> Step:
    """The public DSVGD code's way of working, in a rendition of our own.

    Float64; a gradient for each particle; the KDEs of q and t_k, underflow included, by autograd; distances
    by pdist. The published code also adds one term of the repulsion column by column in Python
    (`by_column`); without that it is the same work, vectorised.
    """
    import numpy as np
    from scipy.spatial.distance import pdist, squareform

    _, start, x32, y = work(n, batch)
    particles, x = start.double(), x32.double()
    old, local = particles.clone(), particles + 0.01 * torch.randn(particles.shape, dtype=torch.float64)
    memory: list[torch.Tensor] = []

    def log_likelihood(theta: torch.Tensor) -> torch.Tensor:
        w1, b1 = theta[:78400].view(784, 100), theta[78400:78500]
        w2, b2 = theta[78500:79500].view(100, 10), theta[79500:]
        return -torch.nn.functional.cross_entropy(torch.relu(x @ w1 + b1) @ w2 + b2, y)

    def log_kde(theta: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
        distances = (theta**2).sum(1)[:, None] + (points**2).sum(1) - 2 * theta @ points.T
        return torch.log(torch.exp(-distances / LAMBDA).sum(1) + 1e-10)

    def step() -> None:
        gradients = []
        for theta in particles:
            leaf = theta.clone().requires_grad_(True)
            gradients.append(torch.autograd.grad(log_likelihood(leaf), leaf)[0])
        leaves = particles.clone().requires_grad_(True)
        ratio = (log_kde(leaves, old) - log_kde(leaves, local)).sum()
        score = torch.stack(gradients) + torch.autograd.grad(ratio, leaves)[0]
        theta = particles.numpy()
        distances = squareform(pdist(theta)) ** 2
        h = np.median(distances) / np.log(n + 1)
        values = np.exp(-distances / h)
        repulsion, total = -values @ theta, values.sum(1)
        if by_column:
            for column in range(theta.shape[1]):
                repulsion[:, column] += theta[:, column] * total
        else:
            repulsion += theta * total[:, None]
        phi = (torch.from_numpy(values) @ score + torch.from_numpy(repulsion * 2 / h)) / n
        if not memory:
            memory.append(phi**2)
        memory[0] = 0.9 * memory[0] + 0.1 * phi**2
        particles.add_(1e-3 / (1e-6 + memory[0].sqrt()) * phi)

    return step


def gemm_peak(n: int, batch: int) -> Step:
    """The two wide products of a step and nothing else, one call each: sgemm's own limit on these shapes."""
    a, x, c = torch.rand(n * 100, 784), torch.rand(batch, 784), torch.rand(n * 100, batch)
    out1, out2 = torch.empty(n * 100, batch), torch.empty(n * 100, 784)

    def step() -> None:
        torch.mm(a, x.T, out=out1)
        torch.mm(c, x, out=out2)

    return step


def interleave(steps: dict[str, Step], seconds: float) -> dict[str, float]:
    """Median seconds of each, taking turns of a few steps.

    Before a turn we wait for the threads of whoever was before to go to sleep (BLAS libraries leave them spinning), and
    the first step is not counted.
    """
    times: dict[str, list[float]] = {name: [] for name in steps}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, times.values())) < 6:
        for name, step in steps.items():
            time.sleep(0.2)
            step()
            turn = time.perf_counter() + 0.1
            while True:
                began = time.perf_counter()
                step()
                times[name].append(time.perf_counter() - began)
                if time.perf_counter() > turn:
                    break
    return {name: statistics.median(values) for name, values in times.items()}


def flops(n: int, batch: int) -> float:
    """Of the dense layers' products: forward, and backward to the weights and the hidden layer."""
    return 2.0 * n * batch * (2 * 784 * 100 + 3 * 100 * 10)


def svgd_flops(n: int) -> float:
    """Of the Gram matrix and the product of the kernel with the scores."""
    return 2.0 * 2 * n * n * 79510


def table(seconds: float) -> None:
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}")
    square = torch.rand(2048, 2048)
    out = torch.empty_like(square)
    peak = 2 * 2048**3 / interleave({"square": lambda: torch.mm(square, square, out=out)}, 1.0)["square"]
    print(f"bf16 matrix units: {'yes' if has_bf16_units() else 'none on this CPU, so no row for them'}")
    print(f"sgemm on 2048 x 2048: {peak / 1e9:.0f} GFLOP/s\n")
    cases = [(10, 100), (10, 600), (40, 100), (40, 600)]
    rows: dict[str, list[str]] = {}
    for n, batch in cases:
        steps: dict[str, Step] = {
            "fedstein": ours(n, batch),
            "fedstein + log-KDE term": ours(n, batch, kde=True),
            "fedstein, any module (torch.func)": torch_func(n, batch),
            "BlackJAX svgd, jitted": blackjax_svgd(n, batch),
            "public DSVGD code's way": public_dsvgd(n, batch, by_column=True),
            "the same, vectorised": public_dsvgd(n, batch, by_column=False),
            "sgemm of the dense layers only": gemm_peak(n, batch),
        }
        if has_bf16_units():
            steps["fedstein, bf16 products"] = ours(n, batch, precision="bf16")
        seconds_of = interleave(steps, seconds)
        base = seconds_of["fedstein"]
        for name, value in seconds_of.items():
            text = f"{value * 1e3:.1f} ms" if name == "fedstein" else f"{value / base:.2f} x"
            rows.setdefault(name, []).append(text)
        rate = (flops(n, batch) + svgd_flops(n)) / base
        shape_peak = flops(n, batch) / seconds_of["sgemm of the dense layers only"]
        rows.setdefault("share of sgemm on squares", []).append(f"{rate / peak:.0%}")
        rows.setdefault("share of sgemm on the layers' shapes", []).append(f"{rate / shape_peak:.0%}")
    print_table(["", *(f"{n} particles, batch {b}" for n, b in cases)], rows)


def print_table(header: list[str], rows: dict[str, list[str]]) -> None:
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for name, cells in rows.items():
        print("| " + " | ".join([name, *cells]) + " |")


def grow(seconds: float) -> None:
    counts = [2, 5, 10, 20, 40, 80, 160]
    seconds_of = interleave({str(n): ours(n, 100) for n in counts}, seconds * 4)
    print("\nTime of a step as N_p grows (784-100-10, batch 100), and per particle:\n")
    print_table(
        ["N_p", *map(str, counts)],
        {
            "ms": [f"{seconds_of[str(n)] * 1e3:.1f}" for n in counts],
            "ms / particle": [f"{seconds_of[str(n)] * 1e3 / n:.2f}" for n in counts],
        },
    )
    widths = [25, 50, 100, 200, 400, 800]
    seconds_of = interleave({str(w): ours(10, 100, sizes=[784, w, 10]) for w in widths}, seconds * 2)
    dims = {w: DenseStack([784, w, 10]).dim for w in widths}
    print("\nas d grows (10 particles, batch 100):\n")
    print_table(
        ["d", *(f"{dims[w]:,}" for w in widths)],
        {
            "ms": [f"{seconds_of[str(w)] * 1e3:.1f}" for w in widths],
            "ns / (particle, parameter)": [f"{seconds_of[str(w)] * 1e9 / dims[w] / 10:.2f}" for w in widths],
        },
    )
    batches = [10, 50, 100, 300, 600, 1200]
    seconds_of = interleave({str(b): ours(10, b) for b in batches}, seconds * 2)
    print("\nas the batch grows (10 particles, 784-100-10):\n")
    print_table(
        ["batch", *map(str, batches)],
        {
            "ms": [f"{seconds_of[str(b)] * 1e3:.1f}" for b in batches],
            "us / (particle, example)": [f"{seconds_of[str(b)] * 1e6 / b / 10:.2f}" for b in batches],
        },
    )


def memory(n: int) -> None:
    """In a fresh process: how far the peak rises above the particles' own size while stepping."""
    torch.set_num_threads(2)
    ours(2, 100)()  # libraries and thread pools are loaded before we look
    step = ours(n, 100, kde=True)
    size = n * 79510 * 4 / 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - 4 * size  # it holds particles, old, score, phi
    for _ in range(5):
        step()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{n} particles: peak memory {max(peak - before, 0) / size:.1f} times the particles themselves")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of measuring for each column")
    parser.add_argument("--grow", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--memory-of", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        memory(options.memory_of)
    elif options.memory:
        for count in (10, 40, 160):
            subprocess.run([sys.executable, __file__, "--memory-of", str(count)], check=True)
    elif options.grow:
        grow(options.seconds)
    else:
        table(options.seconds)
