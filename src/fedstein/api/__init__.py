"""fedstein in Python: all that the command can do, over a `Run`.

run = fedstein.train(module, agents, method=fedstein.DSVGD(particles=5), uplink=fedstein.Uplink("1.0d"),
rounds=200, out="runs/a")
run = fedstein.open("runs/a").resume(rounds=400)
after = run.forget([2, 3], out="runs/b")
after.audit().verdict
"""

from fedstein.api.opening import compare, open, sweep  # noqa: A004  (as fedstein.open)
from fedstein.api.parts import plan, seams
from fedstein.api.run import Run
from fedstein.api.training import config, explain, train, train_config

__all__ = ["Run", "compare", "config", "explain", "open", "plan", "seams", "sweep", "train", "train_config"]
