"""How long `fedstein --help` takes beside `python -c "import typer"`, in turns, as a ratio of CPU and of wall time."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time

COMMANDS = {
    "python, nothing": [sys.executable, "-c", "pass"],
    "python, import typer": [sys.executable, "-c", "import typer"],
    "fedstein --version": [sys.executable, "-m", "fedstein", "--version"],
    "fedstein --help": [sys.executable, "-m", "fedstein", "--help"],
    "fedstein train --nonsense": [sys.executable, "-m", "fedstein", "train", "--nonsense"],
    "python, import fedstein": [sys.executable, "-c", "import fedstein"],
    "python, import fedstein.api": [sys.executable, "-c", "import fedstein.api"],
}


def once(words: list[str]) -> tuple[float, float]:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(times: int = 15) -> None:
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(times):
        for name, words in COMMANDS.items():
            taken[name].append(once(words))
    base = [statistics.median(part) for part in zip(*taken["python, import typer"], strict=True)]
    print("| | wall, ms | CPU, ms | wall, x import typer | CPU, x import typer |\n|---|---|---|---|---|")
    for name, pairs in taken.items():
        wall, cpu = (statistics.median(part) for part in zip(*pairs, strict=True))
        print(f"| {name} | {1e3 * wall:.0f} | {1e3 * cpu:.0f} | {wall / base[0]:.2f} | {cpu / base[1]:.2f} |")


if __name__ == "__main__":
    main()
