"""The agent's end of Flower: a ClientApp that follows orders with the agent's own data and its own memory."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

__all__ = ["client_app"]


def client_app(folder: Path) -> ClientApp:
    """The ClientApp of the app in `folder`.

    A node's own config says who it is and what it has: `agent` (its name), `data` (its .npz file with x and y) and
    `state` (a folder of its own). In a simulation, which has no nodes of its own, agents are numbered, their data is
    as the app's config.toml says, and they live in the run config's `state`.
    """
    app = ClientApp()

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        return _reply(message, {"agent": _name(context)})

    @app.train("visit")
    def visit(message: Message, context: Context) -> Message:
        import torch

        from fedstein.data import Examples
        from fedstein.engines.home import visit_from_home
        from fedstein.engines.wire import Reply, read_head
        from fedstein.errors import DivergedError, FedsteinError, OrderError

        def load(model: Any, prepare: Any) -> Examples:
            own = _own_examples(folder, context, head)
            return own if prepare is None else Examples(prepare(own.x), own.y)

        try:
            head = read_head(str(_part(message, "order")["head"]))
            if head.name != _name(context):
                raise OrderError(f"This is agent '{_name(context)}', not '{head.name}'.")
            torch.set_num_threads(head.threads or torch.get_num_threads())
            tensors = _tensors(message)
            found = visit_from_home(
                _state(context),
                head,
                tensors["particles"],
                load,
                tensors.get("frozen"),
                tensors.get("handover"),
            )
        except DivergedError as error:
            _say(context, str(error))
            return _reply(message, {"diverged": str(error)})
        except OrderError as error:
            _say(context, str(error))
            return _reply(message, {"error": str(error)})
        except (FedsteinError, OSError, ValueError) as error:  # its text has paths, and says what the data is like
            _say(context, str(error))
            return _reply(message, {"error": "It cannot use its own data or folder; its own log says why."})
        _say(context, f"round {head.round + 1}: {8 * len(found.frame):,} bits")
        return _reply(message, {"reply": Reply.of(found, head.run).model_dump_json(), "frame": found.frame})

    @app.train("purge")
    def purge(message: Message, context: Context) -> Message:
        from fedstein.engines.home import purge_home

        asked = _part(message, "purge")
        name, lineage = str(asked["agent"]), str(asked["lineage"])
        if name != _name(context) or len(lineage) != 32 or not set(lineage) <= set("0123456789abcdef"):
            return _reply(message, {"error": f"This is agent '{_name(context)}', not '{name}'."})
        return _reply(message, {"agent": name, "purged": purge_home(_state(context), lineage, name)})

    return app


def _say(context: Context, text: str) -> None:
    """To the agent's own log."""
    print(f"fedstein: agent {_name(context)}: {text}", file=sys.stderr, flush=True)


def _name(context: Context) -> str:
    node = context.node_config
    return str(node["agent"]) if "agent" in node else f"agent-{node['partition-id']}"


def _state(context: Context) -> Path:
    node = context.node_config
    if "state" in node:
        return Path(str(node["state"]))
    if "partition-id" not in node:
        raise ValueError('the node\'s config must name a folder of its own: state="/path"')
    return Path(str(context.run_config["state"])) / _name(context)


def _own_examples(folder: Path, context: Context, head: Any) -> Any:
    node = context.node_config
    if "data" in node:
        path = Path(str(node["data"]))
        return _from_file(path, path.stat().st_mtime_ns, head.inputs, head.classes)
    if "partition-id" not in node:
        raise ValueError('the node\'s config must name its data: data="/path/to/own.npz"')
    return _partition(folder / "config.toml", str(context.run_config.get("set", "")))[int(str(node["partition-id"]))]


@lru_cache(maxsize=4)
def _from_file(path: Path, changed: int, inputs: tuple[int, ...], classes: int) -> Any:
    import torch

    from fedstein.data import load_examples

    return load_examples(path, torch.Size(inputs), classes)


@lru_cache(maxsize=1)
def _partition(config: Path, overrides: str) -> Any:
    """Simulated agents: what the config gives each of them."""
    from fedstein.build import who_has_what
    from fedstein.config import load_config

    return who_has_what(load_config(config, overrides.split()))[0]


def _part(message: Message, name: str) -> ConfigRecord:
    found = message.content[name]
    assert isinstance(found, ConfigRecord)
    return found


def _tensors(message: Message) -> dict[str, Any]:
    import torch

    record = message.content["tensors"]
    assert isinstance(record, ArrayRecord)
    return {name: torch.from_numpy(array.numpy().copy()) for name, array in record.items()}


def _reply(message: Message, content: dict[str, Any]) -> Message:
    return Message(RecordDict({"answer": ConfigRecord(content)}), reply_to=message)
