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

    A node's own config says who it is and what it has: `agent` (its name), `data` (its .npz file with x and y), `state`
    (a folder of its own), `modules` (the networks by name that it lets run, with commas between them) and `device`
    (on which it computes; the CPU if left out). No server chooses that. In a simulation, which has no nodes of its own,
    agents are numbered, their data, network and device are as the app's config.toml says, and they live in the run
    config's `state`.
    """
    app = ClientApp()

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        return _reply(message, {"agent": _name(context)})

    @app.train("visit")
    def visit(message: Message, context: Context) -> Message:
        import torch

        from fedstein.data import Examples
        from fedstein.deploy.flower.agent_store import NeedsFrozenError, visit_as_agent
        from fedstein.errors import DivergedError, FedsteinError, OrderError
        from fedstein.models import Network
        from fedstein.protocol.messages import FROZEN
        from fedstein.protocol.wire import Reply, read_head
        from fedstein.store.features import keep_features, prepared

        def load(network: Network, home: Path) -> Examples:
            own = _own_examples(folder, context, head, network.takes)
            features = prepared(network.prepare, own.x, [home])
            keep_features(home, features)
            return Examples(features.rows, own.y)

        try:
            head = read_head(str(_part(message, "order")["head"]))
            if head.name != _name(context):
                raise OrderError(f"This is agent '{_name(context)}', not '{head.name}'.")
            _refuse_code(folder, context, head)
            torch.set_num_threads(head.threads)
            tensors = _tensors(message)
            particles = tensors.pop("particles")
            frozen = {name.removeprefix(FROZEN): tensors.pop(name) for name in list(tensors) if name.startswith(FROZEN)}
            device = _device(folder, context)
            reply = visit_as_agent(_state(context), head, particles, load, frozen, tensors, device)
        except NeedsFrozenError as error:
            _say(context, str(error))
            return _reply(message, {"needs": "frozen"})
        except DivergedError as error:
            _say(context, str(error))
            return _reply(message, {"diverged": str(error)})
        except OrderError as error:
            _say(context, f"{error} ({error.__cause__})" if error.__cause__ else str(error))
            return _reply(message, {"error": str(error)})
        except (FedsteinError, OSError, ValueError) as error:  # its text has paths, and says what the data is like
            _say(context, str(error))
            return _reply(message, {"error": "It cannot use its own data or folder; its own log says why."})
        _say(context, f"round {head.round + 1}: {8 * len(reply.frame):,} bits")
        return _reply(message, {"reply": Reply.of(reply, head.run).model_dump_json(), "frame": reply.frame})

    @app.train("purge")
    def purge(message: Message, context: Context) -> Message:
        from fedstein.deploy.flower.agent_store import purge_agent

        asked = _part(message, "purge")
        name, model_id = str(asked["agent"]), str(asked["model_id"])
        if name != _name(context) or len(model_id) != 32 or not set(model_id) <= set("0123456789abcdef"):
            return _reply(message, {"error": f"This is agent '{_name(context)}', not '{name}'."})
        return _reply(message, {"agent": name, "purged": purge_agent(_state(context), model_id, name)})

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


def _refuse_code(folder: Path, context: Context, head: Any) -> None:
    """An agent runs only code that its own node allows; a simulation that of its own app."""
    from fedstein.errors import OrderError

    name, node = head.model.module, context.node_config
    if name is None:
        return
    if "partition-id" in node and "agent" not in node:
        allowed = [_settings(folder / "config.toml", str(context.run_config.get("set", ""))).model.module]
    else:
        allowed = [one.strip() for one in str(node.get("modules", "")).split(",")]
    if name not in allowed:
        raise OrderError(
            f"This agent does not run '{name}'. Its operator can allow it: 'fedstein flower node --module {name}'."
        )


def _device(folder: Path, context: Context) -> Any:
    """On which this agent computes: as its own node says, or in a simulation the app."""
    from fedstein.devices import device_here

    node = context.node_config
    if "device" not in node and "partition-id" in node and "agent" not in node:
        return device_here(_settings(folder / "config.toml", str(context.run_config.get("set", ""))).device)
    return device_here(str(node.get("device", "cpu")))


def _own_examples(folder: Path, context: Context, head: Any, takes: Any) -> Any:
    from fedstein.data import Examples

    node = context.node_config
    if "data" in node:
        path = Path(str(node["data"]))
        own = _from_file(path, path.stat().st_mtime_ns, head.inputs, takes)
    elif "partition-id" not in node:
        raise ValueError('the node\'s config must name its data: data="/path/to/own.npz"')
    else:
        parts = _partition(folder / "config.toml", str(context.run_config.get("set", "")), takes)
        own = parts[int(str(node["partition-id"]))]
    return Examples(own.x, head.likelihood.check(own.y, "y", head.outputs))


@lru_cache(maxsize=4)
def _from_file(path: Path, changed: int, inputs: tuple[int, ...], takes: Any) -> Any:
    import torch

    from fedstein.data import as_taken, load_examples

    return as_taken(load_examples(path, torch.Size(inputs)), str(path), takes)


@lru_cache(maxsize=1)
def _settings(config: Path, overrides: str) -> Any:
    from fedstein.settings import load_config

    return load_config(config, overrides.split())


@lru_cache(maxsize=1)
def _partition(config: Path, overrides: str, takes: Any) -> Any:
    """Simulated agents: what the config gives each of them."""
    from fedstein.data import fit_inputs, who_has_what

    settings = _settings(config, overrides)
    return fit_inputs(who_has_what(settings.data, settings.seed, settings.evaluation.split), takes).agents


def _part(message: Message, name: str) -> ConfigRecord:
    part = message.content[name]
    assert isinstance(part, ConfigRecord)
    return part


def _tensors(message: Message) -> dict[str, Any]:
    import torch

    record = message.content["tensors"]
    assert isinstance(record, ArrayRecord)
    return {name: torch.from_numpy(array.numpy().copy()) for name, array in record.items()}


def _reply(message: Message, content: dict[str, Any]) -> Message:
    return Message(RecordDict({"answer": ConfigRecord(content)}), reply_to=message)
