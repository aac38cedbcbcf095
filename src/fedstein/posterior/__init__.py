"""From the way of the chains to what predicts.

A particle that is followed over the rounds is a chain. Where agents visit in turn it wanders around a mode: each
agent's data, the minibatches and the quantiser move it. The server takes the mean over each turn (every agent once),
which follows no single agent, and keeps the last of these means, the window. What predicts, the members, is made of it.
Agents and uplink know nothing of this, and it costs no bit.
"""

from fedstein.posterior.members import POSTERIORS, Maker, members
from fedstein.posterior.settings import Posterior
from fedstein.posterior.turns import MEAN, Turn, Turns

__all__ = ["MEAN", "POSTERIORS", "Maker", "Posterior", "Turn", "Turns", "members"]
