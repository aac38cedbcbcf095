"""Whole numbers are the same numbers from a file to an embedding, whatever kind of file it is, and so are images."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import fedstein as fs
from fedstein.data import DataConfig, columns, from_frame, split_into_files, who_has_what
from fedstein.errors import UserError
from fedstein.runs.evaluation import load_run
from fedstein.runs.problem import build_problem

pandas = pytest.importorskip("pandas")
LARGE = 2**24 + 1  # float32 has not this one
NETS = Path(__file__).parents[1] / "nets.py"
SMALL = (
    "method.particles=2", "method.local_steps=1", "rounds=1", "threads=1", "model.way=loop", "model.module=nets:Hashed"
)  # fmt: skip


def some(count, seed):
    """Ids that float32 would round, and labels."""
    draw = np.random.default_rng(seed)
    return LARGE + 2 * draw.integers(0, 2**40, (count, 2)), np.arange(count) % 2


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    shutil.copy(NETS, tmp_path / "nets.py")
    sys.modules.pop("nets", None)
    yield tmp_path
    sys.modules.pop("nets", None)


def npz(folder):
    (x, y), (x_test, y_test) = some(12, 0), some(6, 1)
    np.savez(folder / "all.npz", x_train=x, y_train=y, x_test=x_test.astype(np.uint64), y_test=y_test)
    return ("data.name=npz", "data.path=all.npz", "data.agents=2")


def files(folder):
    for name, seed in (("test", 1), ("agent-0", 0), ("agent-1", 2)):
        x, y = some(6, seed)
        np.savez(folder / f"{name}.npz", x=x, y=y)
    return ("data.name=folder", f"data.path={folder}", "data.agents=2")


def table(folder, kind="csv"):
    x, y = some(20, 0)
    frame = pandas.DataFrame({"one": x[:, 0], "two": x[:, 1], "y": y, "who": np.arange(20) % 2})
    frame.to_csv(folder / "own.csv", index=False) if kind == "csv" else frame.to_parquet(folder / "own.parquet")
    return ("data.name=table", f"data.path=own.{kind}", "data.target=y", "data.agent_column=who")


def parquet(folder):
    pytest.importorskip("pyarrow")
    return table(folder, "parquet")


def function(folder):
    (folder / "given.py").write_text(
        "import numpy as np\n"
        "def data():\n"
        f"    x = {LARGE} + 2 * np.arange(24).reshape(12, 2)\n"
        "    return {'agents': [(x, np.arange(12) % 2)] * 2, 'test': (x[:5], np.arange(5) % 2)}\n"
    )
    sys.modules.pop("given", None)
    return ("data.source=given:data",)


@pytest.mark.parametrize("source", [npz, files, table, parquet, function])
def test_ids_of_every_source_are_exact(folder, source):
    settings = source(folder)
    run = fs.train_config(fs.config(None, *settings, *SMALL), "a", progress=False)
    raw, problem = who_has_what(run.config.data, 0), load_run(folder / "a").problem
    for here, there in zip((*raw.agents, raw.test), (*problem.holdings.agents, problem.judge.test), strict=True):
        assert there.x.dtype == torch.int64
        assert torch.equal(here.x, there.x)
        assert int(here.x.min()) >= LARGE
        assert set((here.x % 2).unique().tolist()) == {1}  # float32 has even ones alone here
    # In predictions as well, from an array and from a file, and what evaluates takes them so.
    ids = torch.tensor([[LARGE, LARGE + 2], [LARGE + 2, LARGE]])
    one, other = run.predict(ids).probabilities
    assert not torch.allclose(one, other)
    np.save("x.npy", ids.numpy())
    assert torch.equal(run.predict("x.npy").probabilities, run.predict(ids).probabilities)
    assert run.evaluate()["nll"] == run.metrics["nll"]
    with pytest.raises(UserError, match=r"x has whole numbers of 16,777,216 and more .* not all of which float32 has"):
        run.predict(ids.float())


def test_ids_of_a_table_predict_from_a_table(folder):
    run = fs.train_config(fs.config(None, *table(folder), *SMALL), progress=False)
    new = pandas.DataFrame({"one": [LARGE, LARGE + 2], "two": [LARGE + 2, LARGE]})
    new.to_csv("new.csv", index=False)
    said = run.predict(torch.tensor(new.to_numpy())).probabilities
    assert torch.equal(run.predict(new).probabilities, said)
    assert torch.equal(run.predict("new.csv").probabilities, said)
    new.loc[0, "one"] = 2**53 + 1  # a table's numbers are float64
    new.to_csv("new.csv", index=False)
    with pytest.raises(UserError, match=r"whole numbers of 9,007,199,254,740,992 and more .* float64"):
        run.predict("new.csv")


def test_columns_of_whole_numbers_are_numbers_for_a_network_of_numbers(folder):
    settings = (*table(folder), "data.scale={one = 1e12, two = 1e12}", *SMALL[:-1], "model.hidden=[3]")
    problem = build_problem(fs.config(None, *settings))
    assert problem.judge.test.x.dtype == torch.float32
    with pytest.warns(UserWarning, match="lose digits as float32"):
        build_problem(fs.config(None, *table(folder), *SMALL[:-1], "model.hidden=[3]"))


@pytest.mark.parametrize(("how", "taken"), [("cast", torch.int64), ("mixed", None)])
def test_a_network_that_takes_floats_and_looks_them_up(folder, how, taken):
    settings = (*files(folder), *SMALL, f"model.args={{how = '{how}'}}")
    if taken is None:
        for name in ("test", "agent-0", "agent-1"):
            x, y = some(6, 0)
            np.savez(folder / name, x=np.concatenate([x, np.full((6, 1), 0.5)], 1), y=y)
        with pytest.raises(UserError, match=r"agent 0: x has whole numbers .* another id might be looked up"):
            build_problem(fs.config(None, *settings))
    else:
        assert build_problem(fs.config(None, *settings)).judge.test.x.dtype == taken


def test_ids_stay_exact_between_machines(folder):
    pytest.importorskip("flwr")
    from fedstein.deploy.flower.client import _from_file

    config = fs.config(None, *npz(folder))
    held = split_into_files(config.data, 0, folder / "split")
    path = folder / "split" / "agent-1.npz"
    with np.load(path) as file:
        assert file["x"].dtype == np.int64
    own = _from_file(path, 0, (2,), "ids")
    assert own.x.dtype == torch.int64
    assert torch.equal(own.x, held.agents[1].x)


def test_ids_in_python_and_in_a_frame(folder):
    import nets

    x, y = some(12, 0)
    few = {"method": fs.DSVGD(particles=2, local_steps=1), "rounds": 1, "way": "loop", "progress": False}
    run = fs.train(nets.Hashed(), [(x, y)], test=(x, y), out="a", **few)
    data = load_run(folder / "a", given=run._given).problem.holdings.agents[0]
    assert data.x.tolist() == x.tolist()
    frame = pandas.DataFrame({"one": x[:, 0], "two": x[:, 1], "y": y, "who": 0})
    other = fs.train(nets.Hashed(), from_frame(frame, target="y", agent_column="who"), test=(x, y), **few)
    assert other.predict(x).probabilities.shape == (12, 2)
    items = columns([{"ids": row, "label": int(label)} for row, label in zip(x, y, strict=True)], x="ids", y="label")
    again = fs.train(nets.Hashed(), [items], test=(x, y), **few)
    assert torch.equal(again.particles, run.particles)
    frozen = nets.Hashed()
    frozen.embed.requires_grad_(False)  # what is gone through once takes them whole as well
    assert fs.train(frozen, [(x, y)], test=(x, y), **few).predict(x).probabilities.shape == (12, 2)


def images(folder, kind):
    for name in ("test", "agent-0"):
        x = np.random.default_rng(0).integers(0, 256, (8, 1, 4, 4))
        np.savez(folder / name, x=x.astype(kind), y=np.arange(8) % 2)
    return fs.config(None, "data.name=folder", f"data.path={folder}", "data.agents=1", *SMALL[:-1], "model.hidden=[3]")


def test_bytes_of_files_are_images_as_in_python(folder):
    with pytest.warns(UserWarning, match="divided by 255"):
        problem = build_problem(images(folder, np.uint8))
    assert float(problem.judge.test.x.max()) <= 1
    assert float(build_problem(images(folder, np.int64)).judge.test.x.max()) > 200  # numbers are taken as they are
    np.savez(folder / "test.npz", x=np.zeros((8, 1, 4, 4), np.uint8), y=np.arange(8) % 2)
    with pytest.raises(UserError, match=r"the test examples has bytes \(uint8\).* and agent 0 has int64"):
        build_problem(fs.config(None, "data.name=folder", f"data.path={folder}", "data.agents=1"))


def test_bytes_are_ids_where_a_network_takes_only_these(folder):
    for name in ("test", "agent-0"):
        np.savez(folder / name, x=np.array([[3, 1], [200, 9]], np.uint8), y=[0, 1])
    problem = build_problem(fs.config(None, "data.name=folder", f"data.path={folder}", "data.agents=1", *SMALL))
    assert problem.judge.test.x.tolist() == [[3, 1], [200, 9]]


def test_whole_numbers_of_one_and_fractions_of_another_stay_what_they_are(folder):
    np.savez(folder / "test.npz", x=[[0.5, 1.5]], y=[0])
    np.savez(folder / "agent-0.npz", x=[[LARGE, 3]] * 4, y=[0, 1, 0, 1])
    held = who_has_what(DataConfig(name="folder", path=str(folder), agents=1, validation=0.5), 0, "validation")
    assert held.test.x.tolist() == [[LARGE, 3]] * 2
