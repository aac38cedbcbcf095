"""TensorBoard and MLflow are told what metrics.jsonl says, also when a run is resumed."""

from __future__ import annotations

import logging
import time

import pytest

from fedstein.errors import UserError
from fedstein.runs.recorder import Recorder
from fedstein.runs.verbs import fit_config
from fedstein.settings import flat, make_config, to_table
from fedstein.store import read_metrics
from fedstein.trackers import TRACKERS, open_trackers

SETTINGS = ["data.name=digits", "data.examples=50", "method.particles=2", "model.hidden=[4]", "evaluation.every=3",
            "recording.checkpoint_every=4", "uplink.budget=2d", "threads=1"]  # fmt: skip


def opened(path, config, round):
    return open_trackers(config.recording.trackers, path, flat(to_table(config)), round)


def train(path, tracker):
    """Stopped after round 7, resumed from the checkpoint of round 4, up to round 12."""
    config = make_config(overrides=[*SETTINGS, f"recording.trackers={tracker}", "rounds=12"])
    run = Recorder.create(path, config)
    (watcher,) = opened(path, config, 0)
    with watcher:
        fit_config(config.model_copy(update={"rounds": 7}), watchers=[run, watcher])
    run.close()  # as a kill leaves it
    second = int(time.time())
    while int(time.time()) == second:  # TensorBoard reads files in the order of their names, which have seconds
        time.sleep(0.01)
    run, state = Recorder.resume(path)
    with run:
        (watcher,) = opened(path, config, state.round)
        with watcher:
            fit_config(config, watchers=[run, watcher], state=state)
        run.finish({})
    lines = [line for line in read_metrics(path) if "accuracy" in line]
    assert [line["round"] for line in lines] == [3, 6, 9, 12]
    return lines


@pytest.mark.filterwarnings("ignore")  # of TensorBoard's own
def test_tensorboard_has_the_same_numbers(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    lines = train(tmp_path / "run", "tensorboard")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    for name in ("accuracy", "ece", "nll"):
        scalars = events.Scalars(f"evaluation/{name}")
        assert [event.step for event in scalars] == [3, 6, 9, 12]
        assert [event.value for event in scalars] == pytest.approx([line[name] for line in lines], rel=1e-6)
    sent = events.Scalars("uplink/total_upload_bits")
    assert [event.value for event in sent] == pytest.approx([line["total_upload_bits"] for line in lines])


@pytest.mark.filterwarnings("ignore")  # of MLflow's own
def test_mlflow_has_the_same_numbers_in_one_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    logging.getLogger("alembic").setLevel(logging.ERROR)
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    lines = train(tmp_path / "run", "mlflow")
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("fedstein")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.params["method.name"] == "dsvgd"
    assert run.info.status == "FINISHED"
    told = {event.step: event.value for event in client.get_metric_history(run.info.run_id, "evaluation/accuracy")}
    assert {line["round"]: line["accuracy"] for line in lines}.items() <= told.items()


def test_a_tracker_that_fails_does_not_end_the_run(tmp_path, monkeypatch):
    class Bad:
        def __init__(self, *_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def after_round(self, state, told):
            raise ConnectionError("the server is gone")

    monkeypatch.setitem(TRACKERS._loaded, "mlflow", Bad)
    config = make_config(overrides=[*SETTINGS, "recording.trackers=mlflow", "rounds=3"])
    (watcher,) = opened(tmp_path, config, 0)
    with pytest.warns(UserWarning, match="mlflow failed and is told nothing more: the server is gone"), watcher:
        assert fit_config(config, watchers=[watcher]).state.round == 3


def test_a_tracker_that_is_not_there_says_how_to_install_it(tmp_path, monkeypatch):
    def missing(*_):
        raise ImportError("No module named 'mlflow'")

    monkeypatch.setitem(TRACKERS._loaded, "mlflow", missing)
    with pytest.raises(UserError, match=r"pip install 'fedstein\[mlflow\]'"):
        opened(tmp_path, make_config(overrides=["recording.trackers=mlflow"]), 0)
