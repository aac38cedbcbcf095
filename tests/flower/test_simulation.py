"""The Flower engine in a real simulation: the same bits as in one process, and agents that misbehave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedstein.deploy.flower.trial import federation
from fedstein.runs.folder import load_particles, load_state
from fedstein.store import read_journal

SETTINGS = (
    "data.name=digits",
    "data.agents=4",
    "data.examples=40",
    "model.hidden=[]",
    "threads=1",
    "method.particles=3",
    "method.local_steps=2",
    "method.factor=linear",
    "uplink.budget=20.0d",
    "uplink.feedback=true",
    "schedule.agents_per_round=2",
    "evaluation.every=10",
)

BAD = '''\
"""An app whose agents misbehave as the test says: what a file in the app's folder has for (round, agent)."""

import json
import random
from pathlib import Path

from flwr.app import ConfigRecord, Message, RecordDict

from fedstein.deploy.flower import client_app, server_app

folder = Path(__file__).parent
server = server_app(folder)
client = client_app(folder)
plan = json.loads((folder / "plan.json").read_text())
visit = client._registered_funcs["train.visit"]


def bad(message, context):
    head = json.loads(message.content["order"]["head"])
    place = f"{head['round']},{head['agent']}"
    kind = plan.get(place)
    if "chance" in plan and random.random() < plan["chance"]:
        raise RuntimeError("this visit fails at random")
    if plan.get("dead") == head["agent"] and head["round"] >= 4:
        raise RuntimeError("this agent is gone")
    once = Path(plan["once"]) / place
    if kind is None or (kind == "raise" and once.exists()):
        return visit(message, context)
    once.write_text(kind)
    if kind == "raise":
        raise RuntimeError("this visit fails")
    answer = visit(message, context)
    content = dict(answer.content["answer"])
    if kind == "over budget":
        content["frame"] = content["frame"] + bytes(1000)
    elif kind == "random bytes":
        content["frame"] = random.Random(0).randbytes(len(content["frame"]))
    elif kind == "nan scale":
        frame = bytearray(content["frame"])
        frame[3:7] = b"\\xff" * 4
        content["frame"] = bytes(frame)
    elif kind == "no frame":
        del content["frame"]
    elif kind == "wrong type":
        content["frame"] = "text"
    elif kind == "other run":
        content["reply"] = content["reply"].replace(head["run"], "0" * 32)
    elif kind == "other round":
        content["reply"] = content["reply"].replace(f'"round":{head["round"]}', '"round":77')
    elif kind == "nonsense":
        content["reply"] = "[" * 5000
    return Message(RecordDict({"answer": ConfigRecord(content)}), reply_to=message)


client._registered_funcs["train.visit"] = bad
'''


@pytest.fixture
def here(simulation):
    return simulation


def simulate(here, app, rounds, *overrides, **settings):
    given = " ".join([f"rounds={rounds}", *overrides])
    words = [f'set="{given}"', *(f"{key}={json.dumps(value)}" for key, value in settings.items())]
    nodes = "num-supernodes=4 client-resources-num-cpus=1 init-args-num-cpus=2"
    return here.flwr(
        "run", app, "trial", "--stream", "--run-config", " ".join(words), "--federation-config", nodes, check=False
    )


def init(here, name, plan=None):
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    here.fedstein("flower", "init", name, *sets)
    if plan is not None:
        once = here.folder / f"{name}-once"
        once.mkdir()
        (here.folder / name / "fedstein_app.py").write_text(BAD)
        (here.folder / name / "plan.json").write_text(json.dumps({**plan, "once": str(once)}))
    return here.folder / f"{name}-run"


def local(here, name, rounds):
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    here.fedstein("train", *sets, "--set", f"rounds={rounds}", "--out", name)
    return here.folder / name


def test_whatever_an_agent_answers_the_run_goes_on(here):
    # Two agents a round: round i has agents 2i and 2i + 1, modulo 4.
    plan = {
        "0,0": "over budget",
        "0,1": "random bytes",
        "1,2": "nan scale",
        "1,3": "no frame",
        "2,0": "other run",
        "2,1": "other round",
        "3,2": "wrong type",
        "3,3": "nonsense",
        "4,0": "raise",
    }
    run = init(here, "bad", plan)
    said = simulate(here, "bad", 8, deadline=300.0, retries=1)
    assert (run / "result.json").is_file(), said
    events = [event for event in read_journal(run) if event["event"] in ("refused", "failed", "missed", "applied")]

    def of(round, agent):
        return [event["event"] for event in events if (event.get("round"), event.get("agent")) == (round, agent)]

    assert [of(1, 0), of(1, 1), of(2, 2)] == [["refused"]] * 3
    for round, agent in ((2, 3), (3, 0), (3, 1), (4, 2), (4, 3)):
        assert of(round, agent) == ["failed", "failed", "missed"]
    assert of(5, 0) == ["failed", "applied"]  # asked again
    assert of(6, 2) == ["applied"]
    assert load_state(run).totals.refused == 3
    assert "refused: round 1, agent agent-0" in said
    assert "missed: round 3, agent agent-0" in said


def test_an_agent_that_is_gone_when_it_should_forget_is_told_and_can_forget_later(here):
    run = init(here, "gone", {"dead": 1})
    here.flwr("federation", "simulation-config", "@none/default", "trial", "--num-supernodes", "4")
    simulate(here, "gone", 4)
    (here.folder / "gone" / "pyproject.toml").write_text(
        (here.folder / "gone" / "pyproject.toml").read_text().replace("retries = 3", "retries = 0")
    )
    more = ("--method", "take-back", "--repair", "2", "--flower", "gone", "--superlink", "trial", "--json")
    erased = json.loads(
        here.fedstein("forget", run, "--agents", "1,2", "--rounds", "4", *more, "--out", "half", check=False)
    )
    assert (erased["unforgotten"], erased["confirmed"]) == ([1], [2])
    assert list((here.folder / "gone-run-agents" / "agent-1").rglob("memory-*"))  # it will need it

    (here.folder / "gone" / "plan.json").write_text(json.dumps({"once": str(here.folder / "gone-once")}))
    half = here.folder / "half"
    erased = json.loads(here.fedstein("forget", half, "--agents", "1", "--rounds", "2", *more, "--out", "whole"))
    assert (erased["unforgotten"], erased["confirmed"]) == ([], [1])
    assert not list((here.folder / "gone-run-agents" / "agent-1").rglob("memory-*"))


def test_visits_that_fail_at_random_are_asked_for_again(here, request):
    soak(here, 12, "soak")


def soak(here, rounds, name):
    """A tenth of the visits fail at random; the end is as if none had."""
    run = init(here, name, {"chance": 0.1})
    said = simulate(here, name, rounds, retries=9)
    assert (run / "result.json").is_file(), said
    assert load_particles(run).equal(load_particles(local(here, f"{name}-one", rounds)))
    return sum(event["event"] == "failed" for event in read_journal(run))


if __name__ == "__main__":  # make soak
    import sys
    import tempfile

    with federation(Path(tempfile.mkdtemp()) / "site", simulated=True) as place:
        place.start_link()
        count = int(sys.argv[1])
        print(f"{count} rounds, {soak(place, count, 'soak')} visits failed; the same particles as without faults")
