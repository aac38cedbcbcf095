"""Draw the way of one chain among unlike agents: where it goes, its turn means, and what predicts.

python docs/figures/way.py             under a minute; keeps the numbers in way.json
python docs/figures/way.py --draw      again from there
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from torch import Tensor

from fedstein.posterior import Posterior, members
from fedstein.runs.training import fit
from fedstein.runs.verbs import prepare
from fedstein.settings import choose_config
from fedstein.store.lineage import Lineage

HERE = Path(__file__).parent
# Steps that stay as large as they are: where they shrink, as is chosen, the pulls shrink as well.
SETTINGS = ["data.partition=dirichlet", "data.concentration=0.1", "uplink.budget=1.0d", "rounds=1000",
            "method.step_size=0.05", "method.anneal_over=1000000"]  # fmt: skip
AGENTS = 10
SHOWN = 60  # rounds of the way, the last ones
EVERY = 10  # rounds between two points of the curves, half of them in the middle of a turn


class Follower:
    """Keeps the last particles of the way, and judges as it goes."""

    def __init__(self, problem: Any, seed: int) -> None:
        self.problem, self.seed = problem, seed
        self.way: list[Tensor] = []
        self.agents: list[int] = []
        self.curves: list[dict[str, float]] = []

    def after_round(self, state: Any, told: Any) -> None:
        self.way = [*self.way, state.particles[0]][-SHOWN:]
        self.agents = [*self.agents, told.uploads[0].agent][-SHOWN:]
        if (state.round - 3) % EVERY == 0:
            row: dict[str, float] = {"round": state.round}
            for kind in ("last", "window"):
                made = members(Posterior(kind), state.particles, state.turns, state.round, self.seed)
                row |= {f"{kind}_{key}": self.problem.evaluate(made)[key] for key in ("accuracy", "ece")}
            self.curves.append(row)
        self.turns = state.turns


def measure() -> dict[str, Any]:
    """The end of the way, in the plane in which agents pull it to and fro most, and the curves."""
    config = choose_config({}, SETTINGS)[0]
    problem = prepare(config, Lineage())
    follower = Follower(problem, config.seed)
    fit(
        problem.task, problem.holdings, problem.evaluate, config.method, rounds_to_do=config.rounds,
        schedule=config.schedule, seed=config.seed, evaluate_every=config.rounds, posterior=config.posterior,
        watchers=[follower], link=config.uplink.link(config.method, problem.dim),
    )  # fmt: skip
    way = torch.stack(follower.way)
    means = torch.stack([turn.mean()[0] for turn in follower.turns.window(SHOWN // AGENTS)])
    middle = way.mean(0)
    pulls = (way.unflatten(0, (-1, AGENTS)) - means[:, None]).mean(0)  # where each agent leaves it, on average
    plane = torch.linalg.svd(pulls, full_matrices=False).Vh[:2].T
    return {
        "way": ((way - middle) @ plane).tolist(),
        "agents": follower.agents,
        "means": ((means - middle) @ plane).tolist(),
        "curves": follower.curves,
    }


def main() -> None:
    if "--draw" not in sys.argv:
        (HERE / "way.json").write_text(json.dumps(measure()), encoding="utf-8")
    numbers = json.loads((HERE / "way.json").read_text(encoding="utf-8"))
    figure, (plane, curves) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    x, y = zip(*numbers["way"], strict=True)
    plane.plot(x, y, color="#bbbbbb", lw=0.8, zorder=1)
    dots = plane.scatter(x, y, c=numbers["agents"], cmap="tab10", vmin=-0.5, vmax=9.5, s=26, zorder=2)
    u, v = zip(*numbers["means"], strict=True)
    plane.plot(u, v, color="black", lw=1.5, marker="D", ms=6, mec="white", zorder=3, label="turn means: the window")
    figure.colorbar(dots, ax=plane, ticks=range(10), label="who has just visited", shrink=0.9)
    plane.set_title(f"The last {SHOWN} rounds, in the plane in which agents pull most", fontsize=10, loc="left")
    plane.set_xlabel("first direction")
    plane.set_ylabel("second direction")
    plane.legend(frameon=False, fontsize=9, loc="best")
    rounds = [row["round"] for row in numbers["curves"]]
    for kind, word, colour in (("last", "the last iterate", "#999999"), ("window", "the window", "#0072b2")):
        curves.plot(rounds, [row[f"{kind}_accuracy"] for row in numbers["curves"]], color=colour, lw=1.6, label=word)
    curves.set_title("Test accuracy", fontsize=10, loc="left")
    curves.set_xlabel("rounds")
    curves.set_ylim(0.3, 0.9)
    curves.legend(frameon=False, fontsize=9, loc="lower right")
    for axis in (plane, curves):
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.3)
    figure.savefig(HERE / "way.png", dpi=150)


if __name__ == "__main__":
    main()
