"""The store: files that are whole or not there, and what a run folder is made of.

RUN/config.toml           every setting, defaults included; `fedstein train RUN/config.toml` repeats the run
RUN/lineage.json          the erasures behind the model, if there were any (lineage.py)
RUN/environment.json      versions, machine and threads
RUN/metrics.jsonl         one JSON object for each round (metrics_log.py)
RUN/journal.jsonl         what happened, in order (journal.py)
RUN/checkpoints/          the particles of the last few checkpoints (checkpoints.py)
RUN/agents/agent-K/       what agent K keeps (its factor, its residual): delete it to purge the agent
                          features.npy is what a frozen network makes of its inputs (features.py)
RUN/features.npy          the same of the test set
RUN/frames/agent-K/       the frames themselves, if uplink.record_frames is set
RUN/features.safetensors  values of the network that are not learnt, if there are any
RUN/model.json            a network of one's own: where its code came from, and what its parameters are
RUN/data.json             SHA-256 of the files that the data came from; of an agent's own: in the agent's folder
RUN/result.json           the final result, as `fedstein train --json` prints it
RUN/lock                  held by the process that writes here (lock.py)
"""

from fedstein.store.checkpoints import Checkpoint, checkpoint_rounds
from fedstein.store.files import Lines, load_tensor, load_tensors, save_tensors, to_json, write
from fedstein.store.journal import Journal, erasures_of, read_journal
from fedstein.store.lineage import Erasure, Forgetting, Lineage, Side, load_lineage, save_lineage
from fedstein.store.lock import in_use, take_lock
from fedstein.store.metrics_log import is_metrics, read_metrics
from fedstein.store.purge import purge

__all__ = [
    "Checkpoint",
    "Erasure",
    "Forgetting",
    "Journal",
    "Lineage",
    "Lines",
    "Side",
    "checkpoint_rounds",
    "erasures_of",
    "in_use",
    "is_metrics",
    "load_lineage",
    "load_tensor",
    "load_tensors",
    "purge",
    "read_journal",
    "read_metrics",
    "save_lineage",
    "save_tensors",
    "take_lock",
    "to_json",
    "write",
]
