"""Kill training runs with SIGKILL again and again, resume them, and compare with runs that were left alone.

    python tests/runs/kills.py --kills 50                 at random moments
    python tests/runs/kills.py --kills 50 --processes     the same, each start a new `fedstein` process
    python tests/runs/kills.py --writes                   before, in and after every single write of a run
    python tests/runs/kills.py --forget                   the same, of an erasure

Particles, agents' files, metrics and result must be the same, byte for byte. Without `--processes` each start is a
fork of this process, which has everything imported: a hundred times as many kills a second.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

from fedstein.cli.main import main

SETTINGS = [
    "data.name=digits", "data.agents=4", "data.examples=60", "model.hidden=[8]", "method.particles=3",
    "method.factor=linear", "method.local_steps=2", "uplink.budget=1d", "uplink.feedback=true",
    "uplink.record_frames=true", "recording.checkpoint_every=3", "evaluation.every=4", "threads=1",
]  # fmt: skip


def command(run: Path, rounds: int, seed: int) -> list[str]:
    """Train if there is nothing yet, otherwise resume."""
    if (run / "config.toml").exists():
        return ["resume", str(run), "--json"]
    shutil.rmtree(run, ignore_errors=True)  # killed before the run folder was one
    settings = [*SETTINGS, f"rounds={rounds}", f"seed={seed}"]
    return ["train", "--out", str(run), "--json", *(part for setting in settings for part in ("--set", setting))]


def call(arguments: list[str]) -> int:
    sys.argv = ["fedstein", *arguments]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def kept(run: Path) -> dict[str, str]:
    """All that must be the same in the end, by name."""
    files = {
        str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in run.rglob("*")
        if path.suffix in (".safetensors", ".frame", ".toml") or path.name in ("metrics.jsonl", "lineage.json")
    }
    result = json.loads((run / "result.json").read_text())
    left = sorted(path.name for path in run.rglob("*.part"))
    return files | {"result": str({k: v for k, v in result.items() if k not in ("run", "seconds")}), "left": str(left)}


def same(run: Path, reference: Path) -> None:
    one, other = kept(run), kept(reference)
    unlike = [name for name in one.keys() | other.keys() if one.get(name) != other.get(name)]
    assert not unlike, f"{run}: not as if it had been left alone: {unlike}"


def start(arguments: list[str], processes: bool) -> int:
    if processes:
        return subprocess.Popen(
            [sys.executable, "-m", "fedstein", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ).pid
    child = os.fork()
    if child == 0:
        os._exit(call(arguments))
    return child


def at_random_moments(folder: Path, kills: int, rounds: int, processes: bool) -> None:
    chance = random.Random(0)
    done, runs, resumed_from = 0, 0, set()
    importing = 0.0
    if processes:
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", "import fedstein.api, fedstein.cli.main"], check=True)
        importing = time.monotonic() - began
    while done < kills:
        runs += 1
        run, reference = folder / f"run-{runs}", folder / f"reference-{runs}"
        began = time.monotonic()
        assert call(command(reference, rounds, runs)) == 0
        alone = time.monotonic() - began
        while True:
            child = start(command(run, rounds, runs), processes)
            end = time.monotonic() + chance.uniform(0.9 * importing, importing + alone / 3)
            while (gone := os.waitpid(child, os.WNOHANG)) == (0, 0) and (time.monotonic() < end or done >= kills):
                time.sleep(0.001)
            if gone != (0, 0):
                assert gone[1] == 0, f"a start ended with {gone[1]}"
                break
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            done += 1
            saved = sorted((run / "checkpoints").glob("*.json")) if run.exists() else []
            resumed_from.add((runs, saved[-1].stem if saved else "nothing"))
        same(run, reference)
    print(f"{done} kills in {runs} runs, resumed from {len(resumed_from)} different places: all as if left alone")


def at_every_write(folder: Path, rounds: int, forget: bool, step: int = 1) -> None:
    """The n-th system call that changes the folder kills the process, just before or halfway, for every n."""
    trained, work, reference = folder / "trained", folder / "work", folder / "reference"
    if forget:
        assert call(command(trained, rounds, 1)) == 0

    def reset() -> None:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        if forget:
            shutil.copytree(trained, work / "parent")

    def arguments() -> list[str]:
        if forget:  # the same command does it, goes on with it, and finds it done
            options = ["--agents", "1", "--by", "agent", "--rounds", "2", "--repair", "3"]
            return ["forget", str(work / "parent"), *options, "--out", str(work / "run"), "--json"]
        return command(work / "run", rounds, 1)

    def killed(point: int, halfway: bool) -> int:
        child = os.fork()
        if child == 0:
            _kill_myself(point, halfway)
            os._exit(call(arguments()))
        return os.waitpid(child, 0)[1]

    reset()
    assert call(arguments()) == 0
    shutil.move(work, reference)
    points = 0
    for halfway in (False, True):
        for point in range(1, 1000, step):
            reset()
            status = killed(point, halfway)
            if status == 0:
                break
            assert os.WIFSIGNALED(status), f"point {point}: ended with {status}"
            points += 1
            killed(point, halfway)  # and once more in the middle of the resumed run, at the same point of its own
            assert call(arguments()) == 0, f"point {point} cannot be resumed"
            same(work / "run", reference / "run")
            if forget:
                same(work / "parent", reference / "parent")
                assert call(arguments()) == 0
                same(work / "run", reference / "run")
                gone = [path for path in work.rglob("agent-1") if path.is_dir()]
                assert not gone, f"point {point}: {gone} were not purged"
    print(f"{points} points of writing, killed at each and again when resumed: all as if left alone")


def _kill_myself(point: int, halfway: bool) -> None:
    left = point

    def counted(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: object, **options: object) -> object:
            nonlocal left
            left -= 1
            if left == 0:
                if halfway and name == "write":
                    file, content = arguments
                    real(file, content[: len(content) // 2])  # type: ignore[index]
                elif halfway:
                    real(*arguments, **options)
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        setattr(os, name, call)

    for name in ("write", "fsync", "replace", "truncate", "unlink", "rmdir", "mkdir"):
        counted(name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--rounds", type=int, help="of each run: 150, 600 with --processes, 7 with --writes")
    parser.add_argument("--processes", action="store_true")
    parser.add_argument("--writes", action="store_true")
    parser.add_argument("--forget", action="store_true")
    parser.add_argument("--step", type=int, default=1, help="take only every so many writes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.kills:
            rounds = options.rounds or (600 if options.processes else 150)
            at_random_moments(Path(folder), options.kills, rounds, options.processes)
        if options.writes or options.forget:
            at_every_write(Path(folder), options.rounds or 7, options.forget, options.step)
