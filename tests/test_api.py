"""Python can do all that the command can: one story over a `Run`, and what happens when it is told wrongly."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import fedstein as fs
from fedstein.coding import parse_budget
from fedstein.data import iid, load_digits
from fedstein.runs import verbs
from fedstein.runs.folder import load_particles
from fedstein.runs.forget.complete import is_done
from fedstein.runs.given import take_in

METHOD = {"particles": 4, "factor": "linear", "likelihood": "mean", "temperature": 0.1, "local_steps": 5}


def module():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))


class Laplace:
    """A prior that no config can say."""

    def score(self, particles):
        return -particles.sign()


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    parts = iid(data.train.y, 5, 60, torch.Generator().manual_seed(0))
    return [(data.train.x[part], data.train.y[part]) for part in parts], (data.test.x, data.test.y)


@pytest.fixture
def trained(digits, tmp_path):
    agents, test = digits
    return fs.train(
        module(), agents, method=fs.DSVGD(**METHOD), uplink=fs.Uplink("8.0d"), rounds=10, test=test,
        evaluate_every=5, escrow=True, threads=1, out=tmp_path / "a",
    )  # fmt: skip


def test_the_whole_story(trained, digits, tmp_path):
    agents, test = digits
    assert [line["round"] for line in trained.history] == [5, 10]
    assert len(trained.bills) == 10
    assert all(bill.bits <= bill.budget_bits for bill in trained.bills)
    longer = fs.open(tmp_path / "a").resume(rounds=20)  # in this process it knows the module
    assert longer.rounds == 20
    assert not longer.interrupted
    once = fs.train(
        module(), agents, method=fs.DSVGD(**METHOD), uplink=fs.Uplink("8.0d"), rounds=20, test=test,
        evaluate_every=5, threads=1,
    )  # fmt: skip
    assert torch.equal(once.particles, longer.particles)  # in memory or on disk, in one go or two
    prediction = longer.predict(test[0])
    assert prediction.epistemic.shape == (360,)
    assert longer.evaluate()["accuracy"] == longer.metrics["accuracy"]
    assert longer.evaluate(shifts=True)["shifts"]["clean"]["accuracy"] == longer.metrics["accuracy"]
    after = longer.forget([2, 3], out=tmp_path / "b", repair=4)
    assert after.lineage.erased == (2, 3)
    assert after.lineage.newest.parent == str((tmp_path / "a").resolve())
    with pytest.raises(fs.UserError, match="were purged when agents 2, 3"):
        load_particles(tmp_path / "a")
    # Whoever left has taken its data along, and its digest is gone with it.
    assert not (tmp_path / "a" / "agents").exists() or not list((tmp_path / "a" / "agents").rglob("*"))
    kept = sorted(path.name for path in (tmp_path / "b" / "agents").iterdir())
    assert kept == ["agent-0", "agent-1", "agent-4"]
    audit = after.audit(tier="quick", progress=False)
    assert audit.verdict in ("pass", "warn", "fail")
    assert {check.name for check in audit.checks} >= {"provenance", "purged", "never scheduled again"}
    assert [check.status for check in audit.checks if check.name == "provenance"] == ["pass"]
    assert json.loads((tmp_path / "b" / "audit" / "audit.json").read_text())["verdict"] == audit.verdict
    assert after.report().read_text().startswith("<!doctype html>")
    comparison = fs.compare([after, tmp_path / "b" / "audit" / "retrained-0"], tmp_path / "c.html")
    assert len(comparison.rows) == 2
    assert after.forget.__self__ is after


def test_a_run_of_given_things_needs_them_again_elsewhere(trained, digits, tmp_path):
    agents, test = digits
    told = subprocess.run(
        [sys.executable, "-m", "fedstein", "evaluate", str(tmp_path / "a")], capture_output=True, text=True, check=False
    )
    assert told.returncode == 2
    assert "fedstein.open(RUN, module=..., agents=..., test=...)" in told.stderr
    again = fs.open(tmp_path / "a", module=module(), agents=agents, test=test)
    assert torch.equal(again.particles, trained.particles)
    wide = nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.ReLU(), nn.Linear(9, 10))
    with pytest.raises(
        fs.UserError, match=r"'module' is not the one .*: '1\.weight' was 8x64 float32 learnt and is 9x"
    ):
        fs.open(tmp_path / "a", module=wide, agents=agents, test=test)
    with pytest.raises(fs.UserError, match=r"agents\[1\] are not the examples"):
        fs.open(tmp_path / "a", module=module(), agents=[agents[0], agents[0], *agents[2:]], test=test)
    with pytest.raises(fs.UserError, match="both 'module' and 'agents'"):
        fs.open(tmp_path / "a", module=module())


def test_what_is_given_again_must_be_the_same(trained, digits, tmp_path):
    agents, test = digits
    tanh = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 10))
    with pytest.raises(fs.UserError, match=r"'module' is not the one .*: '2' was ReLU and is Tanh\."):
        fs.open(tmp_path / "a", module=tanh, agents=agents, test=test)
    deeper = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 10))
    with pytest.raises(fs.UserError, match=r"'5\.weight' is new \(10x8 float32 learnt\).*'3\.weight' was 10x8"):
        fs.open(tmp_path / "a", module=deeper, agents=agents, test=test)
    with pytest.raises(fs.UserError, match=r"'module' is not the one .*: the prior was None and is .*Laplace"):
        fs.open(tmp_path / "a", module=module(), agents=agents, test=test, prior=Laplace())
    (tmp_path / "a" / "model.json").write_text('{"parameters": {"1.weight": 3}}')  # damaged: nothing to tell by
    with pytest.raises(fs.UserError, match=r"'module' is not the one .*: the names, shapes or types of its parameters"):
        fs.open(tmp_path / "a", module=tanh, agents=agents, test=test)
    swapped = [(agents[0][0], agents[0][1].flip(0)), *agents[1:]]  # other labels for the same inputs
    with pytest.raises(fs.UserError, match=r"agents\[0\] are not the examples"):
        fs.open(tmp_path / "a", module=module(), agents=swapped, test=test)
    with pytest.raises(fs.UserError, match="'test' is not the one"):
        fs.open(tmp_path / "a", module=module(), agents=agents, test=(test[0], test[1].flip(0)))
    with pytest.raises(fs.UserError, match=r"of std 1\. Got 30"):
        fs.open(tmp_path / "a", module=module(), agents=agents, test=test, prior=fs.GaussianPrior(30.0))
    before = (tmp_path / "a" / "config.toml").read_bytes()
    for wrong in (None, take_in(tanh, agents, test)):
        with pytest.raises(fs.UserError):
            verbs.resume(tmp_path / "a", 50, wrong)
    assert (tmp_path / "a" / "config.toml").read_bytes() == before  # a refused resume has changed nothing
    assert (tmp_path / "a" / "result.json").is_file()


def test_a_folder_that_became_another_is_noticed(digits, tmp_path):
    agents, test = digits
    wide = nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.ReLU(), nn.Linear(9, 10))
    for name, net in (("a", module()), ("b", wide)):
        fs.train(net, agents, rounds=1, test=test, out=tmp_path / name)
    (tmp_path / "a").rename(tmp_path / "c")
    (tmp_path / "b").rename(tmp_path / "a")
    with pytest.raises(fs.UserError, match="'module' is not the one"):
        fs.open(tmp_path / "a")


def test_an_erased_agent_may_be_none(trained, digits, tmp_path):
    agents, test = digits
    trained.forget([1], out=tmp_path / "b", repair=4)
    without = [agents[0], None, *agents[2:]]
    again = fs.open(tmp_path / "b", module=module(), agents=without, test=test)
    assert "retained_accuracy" in again.evaluate()
    with pytest.raises(fs.UserError, match="agents 1 were given as None"):
        again.audit(progress=False)
    assert again.forget([0], out=tmp_path / "c", repair=4).lineage.erased == (0, 1)
    with pytest.raises(fs.UserError, match=r"agents\[1\] must be a pair"):
        fs.train(module(), without, rounds=1)


def test_a_request_that_cannot_be_done_is_not_written_down(trained, tmp_path):
    journal = (tmp_path / "a" / "journal.jsonl").read_bytes()
    for more, said in (
        ({"overrides": ["uplink.budget=zz"]}, "must be bits"),
        ({"overrides": "uplink.budget=10"}, "must be at least"),
        ({"method": "forgit"}, "must be one of forget-svgd, take-back, retrain. Got 'forgit'"),
        ({"by": "me"}, "must be one of agent, server. Got 'me'"),
    ):
        with pytest.raises(fs.UserError, match=said):
            trained.forget([1], out=tmp_path / "b", **more)
    assert (tmp_path / "a" / "journal.jsonl").read_bytes() == journal


def test_in_memory_it_goes_on_too(digits):
    agents, test = digits
    method = fs.DSVGD(anneal_over=9)  # what would be chosen is the rounds
    short = fs.train(module(), agents, method=method, rounds=3, test=test, evaluate_every=2)
    longer = short.resume(rounds=6)
    whole = fs.train(module(), agents, method=method, rounds=6, test=test, evaluate_every=2)
    assert torch.equal(longer.particles, whole.particles)
    assert [line["round"] for line in longer.history] == [2, 3, 4, 6]
    chosen = fs.train(module(), agents, rounds=3, test=test)
    assert (chosen.config.method.anneal_over, chosen.resume(rounds=6).config.method.anneal_over) == (3, 6)
    assert short.rounds == 3
    with pytest.raises(fs.UserError, match="needs a run folder"):
        short.forget([0])
    with pytest.raises(fs.UserError, match="at least the 3 that are done"):
        short.resume(rounds=2)


def test_settings_train_as_the_command_does(tmp_path):
    config = fs.config(None, "data.name=digits", "model.hidden=[]", "rounds=3", "threads=1")
    run = fs.train_config(config, tmp_path / "run")
    words = [
        "train",
        "--set",
        "data.name=digits",
        "--set",
        "model.hidden=[]",
        "--set",
        "rounds=3",
        "--set",
        "threads=1",
    ]
    subprocess.run([sys.executable, "-m", "fedstein", *words, "--out", tmp_path / "other"], check=True,
                   capture_output=True)  # fmt: skip
    assert torch.equal(run.particles, load_particles(tmp_path / "other"))
    assert fs.open(tmp_path / "run").result == {}
    with pytest.raises(fs.UserError, match="'--engine' must be"):
        fs.train_config(config, engine="nonsense")  # in memory too
    with pytest.raises(fs.UserError, match="needs no 'module'"):
        fs.open(tmp_path / "run", module=module(), agents=[(torch.zeros(2, 64), torch.zeros(2))])


def test_a_sweep_in_python(tmp_path):
    table = {
        "seeds": [0, 1],
        "base": {"rounds": 2, "data": {"name": "digits"}, "model": {"hidden": []}},
        "grid": {"method.particles": [1, 2]},
    }
    done = fs.sweep(table, tmp_path / "sweep", workers=2)
    assert [row.status for row in done.rows] == ["finished"] * 4
    assert (tmp_path / "sweep" / "results.csv").is_file()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: fs.DSVGD(particles=0), "DSVGD: 'particles' must be greater than or equal to 1. Got 0 instead."),
        (lambda: fs.DSVGD(partcles=3), "DSVGD: unknown 'partcles'. Did you mean 'particles'?"),
        (lambda: fs.DSVGD(factor="linaer"), "Did you mean 'linear'?"),
        (lambda: fs.Uplink("1.0d", sparsifier="topk"), "Uplink: 'sparsifier' must be 'top-k'"),
        (lambda: fs.Uplink("1.0d", positions="aut"), "'positions' must be 'auto', 'golomb'"),
        (lambda: fs.Uplink("1.0d", positions="aut"), "Did you mean 'auto'?"),
        (lambda: fs.config(None, "uplink.budget=zz"), "Config key 'uplink.budget' must be bits (79510), a multiple"),
        (lambda: fs.DSVGD(5), "takes its settings by name, for instance DSVGD(particles=10)"),
        (lambda: fs.Schedule(agents_per_round=0), "Schedule: 'agents_per_round' must be"),
        (lambda: fs.plan(100, budget="1 furlong"), "'uplink.budget' must be bits"),
    ],
)
def test_a_mistake_is_told_in_plain_words(make, said):
    with pytest.raises(fs.UserError) as error:
        make()
    assert said in str(error.value)
    assert "pydantic" not in str(error.value)


@pytest.mark.parametrize("budget", ["zz", "1 furlong", "0d", "", "1e999d", 0, -1, 1 << 60, 0.5, True, [1]])
def test_a_budget_that_cannot_be_read_is_refused_when_it_is_made(budget):
    with pytest.raises(fs.UserError) as error:
        fs.Uplink(budget)
    words = "'budget' must be bits (79510), a multiple of the dimension (0.5d) or bytes (10kB). "
    assert f"{words}Got {budget!r} instead." in str(error.value)


@given(number=st.floats(1e-9, 1e9), dim=st.integers(1, 10**7), unit=st.sampled_from(["d", "", "kB", "MB"]))
def test_a_budget_that_some_run_can_have_is_taken(number, dim, unit):
    text = f"{number:.12f}{unit}"
    try:
        parse_budget(text, dim)
    except fs.UserError:
        return
    assert fs.Uplink(text).budget == text


class StopAfter:
    def __init__(self, round):
        self.round = round

    def after_round(self, state, told):
        if state.round == self.round:
            raise KeyboardInterrupt


def train(**wrong):
    agents = [(torch.zeros(4, 3), torch.tensor([0, 1, 0, 1]))] * 3
    return fs.train(
        **{"module": nn.Linear(3, 2), "agents": agents, "rounds": 1, "threads": 1, "progress": False} | wrong
    )


WRONG = [  # the call, the argument that is told, and a word of what is expected
    (lambda run: fs.open(3), "path", "a run folder"),
    (lambda run: fs.open(None), "path", "a run folder"),
    (lambda run: fs.open(b"a"), "path", "text"),
    (lambda run: fs.compare(3), "runs", "a list"),
    (lambda run: fs.compare("a"), "runs", "a list"),
    (lambda run: fs.compare([3]), "runs[0]", "a run folder"),
    (lambda run: fs.compare([run], out=3), "out", "an HTML file"),
    (lambda run: fs.plan("a"), "dim", "a whole number"),
    (lambda run: fs.plan(0), "dim", "at least 1"),
    (lambda run: fs.plan(10, particles="x"), "particles", "a whole number"),
    (lambda run: fs.plan(10, particles=0), "particles", "at least 1"),
    (lambda run: fs.plan(10, budget=[]), "budget", "bits"),
    (lambda run: fs.plan(10, bits_per_entry=True), "bits_per_entry", "in 2..16"),
    (lambda run: fs.sweep(3, "x"), "table", "TOML"),
    (lambda run: fs.sweep({}, 3), "out", "a folder"),
    (lambda run: fs.sweep({}, "x", workers="x"), "workers", "a whole number"),
    (lambda run: fs.sweep({}, "x", workers=0), "workers", "in 1..4096"),
    (lambda run: fs.sweep({}, "x", ray=3), "ray", "HOST:PORT"),
    (lambda run: fs.config(3), "file", "TOML"),
    (lambda run: fs.config(None, 3), "overrides", "'rounds=20'"),
    (lambda run: fs.config(preset=3), "--preset", "unlearning"),
    (lambda run: fs.train_config(3), "config", "TOML"),
    (lambda run: fs.train_config([]), "config", "a table"),
    (lambda run: fs.train_config({}, engine=3), "engine", "'ray:auto'"),
    (lambda run: fs.train_config({}, workers="x"), "workers", "a whole number"),
    (lambda run: fs.train_config({}, workers=0), "workers", "in 1..4096"),
    (lambda run: fs.train_config({}, workers=True), "workers", "a whole number"),
    (lambda run: fs.train_config({}, out=3), "out", "a new folder"),
    (lambda run: fs.train_config({}, out="a\0b"), "out", "a new folder"),
    (lambda run: fs.train_config({}, without=3), "without", "[2, 3]"),
    (lambda run: fs.train_config({}, without="2"), "without", "[2, 3]"),
    (lambda run: fs.train_config({}, without=["2"]), "without", "[2, 3]"),
    (lambda run: fs.train_config({}, watchers=3), "watchers", "after_round"),
    (lambda run: fs.train_config({}, onlooker=3), "onlooker", "an Onlooker"),
    (lambda run: train(module=3), "module", "Module"),
    (lambda run: train(module=nn.LazyLinear(2)), "module", "Run it once on an example first: module(x[:1])"),
    (lambda run: train(agents=3), "agents", "data set"),
    (lambda run: train(loss="ce"), "loss", "fedstein.models.cross_entropy"),
    (lambda run: train(watchers=3), "watchers", "after_round"),
    (lambda run: train(watchers=[3]), "watchers", "after_round"),
    (lambda run: train(watchers=StopAfter(1)), "watchers", "a list"),
    (lambda run: train(out=3), "out", "a new folder"),
    (lambda run: train(threads="x"), "threads", "a whole number"),
    (lambda run: train(threads=0), "threads", "at least 1"),
    (lambda run: train(rounds="x"), "rounds", "a whole number"),
    (lambda run: train(seed=0.5), "seed", "a whole number"),
    (lambda run: train(evaluate_every=None), "evaluate_every", "a whole number"),
    (lambda run: train(method=fs.DSVGD), "method", "DSVGD(particles=5)"),
    (lambda run: train(uplink="1.0d"), "uplink", "Uplink('1.0d')"),
    (lambda run: train(schedule=3), "schedule", "Schedule(agents_per_round=2)"),
    (lambda run: train(prior=3), "prior", "GaussianPrior(1.0)"),
    (lambda run: train(init=[]), "init", "fan-in"),
    (lambda run: train(precision=3), "precision", "bf16"),
    (lambda run: run.resume(rounds="x"), "rounds", "a whole number"),
    (lambda run: run.resume(rounds=0), "rounds", "in 1..1"),
    (lambda run: run.resume(engine=3), "engine", "'ray:auto'"),
    (lambda run: run.resume(workers=0), "workers", "a whole number"),
    (lambda run: run.resume(watchers="x"), "watchers", "after_round"),
    (lambda run: run.forget(3), "agents", "[2, 3]"),
    (lambda run: run.forget("a"), "agents", "[2, 3]"),
    (lambda run: run.forget(["a"]), "agents", "[2, 3]"),
    (lambda run: run.forget([object()]), "agents", "[2, 3]"),
    (lambda run: run.forget([True]), "agents", "[2, 3]"),
    (lambda run: run.forget({1: 2}), "agents", "[2, 3]"),
    (lambda run: run.forget([1], overrides=3), "overrides", "'rounds=20'"),
    (lambda run: run.forget([1], overrides=[3]), "overrides", "'rounds=20'"),
    (lambda run: run.forget([1], rounds="x"), "rounds", "a whole number"),
    (lambda run: run.forget([1], repair=0.5), "repair", "a whole number"),
    (lambda run: run.forget([1], handover="no"), "handover", "True or False"),
    (lambda run: run.forget([1], out=3), "out", "a new folder"),
    (lambda run: run.forget([1], flower=3), "flower", "a Flower app"),
    (lambda run: run.forget([1], engine=None), "engine", "'ray:auto'"),
    (lambda run: run.forget([1], method=[]), "--method", "take-back"),
    (lambda run: run.forget([1], by={}), "--by", "server"),
    (lambda run: run.audit(tier=3), "tier", "'quick' or 'full'"),
    (lambda run: run.audit(tier=[]), "tier", "'quick' or 'full'"),
    (lambda run: run.audit(data=3), "data", "the agents' files"),
    (lambda run: run.audit(onlooker=3), "onlooker", "an Onlooker"),
    (lambda run: run.report(out=3), "out", "an HTML file"),
    (lambda run: run.evaluate(split=3), "split", "'validation'"),
    (lambda run: run.evaluate(split=[]), "split", "'validation'"),
]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A run in a folder that nothing here may change."""
    return train(method=fs.DSVGD(**METHOD), escrow=True, out=tmp_path_factory.mktemp("small") / "run")


def everything_in(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("call", "argument", "expected"), WRONG)
def test_an_argument_of_the_wrong_kind_is_told(call, argument, expected, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = everything_in(small.path.parent)
    with pytest.raises(fs.UserError) as error:
        call(small)
    assert f"'{argument}' must " in str(error.value)
    assert expected in str(error.value)
    assert " Got " in str(error.value) or "Run it once" in str(error.value)
    assert len(str(error.value)) < 300
    assert not list(tmp_path.iterdir())
    assert everything_in(small.path.parent) == before


def test_a_lazy_module_that_was_run_once_is_taken(digits):
    lazy = nn.Sequential(nn.Flatten(), nn.LazyLinear(10))
    lazy(digits[0][0][0][:1])
    assert fs.train(lazy, digits[0], rounds=1, progress=False).rounds == 1


def test_what_needs_a_module_is_not_dropped(trained, digits, tmp_path):
    for more in ({"test": digits[1]}, {"prior": fs.GaussianPrior(1.0)}, {"loss": nn.functional.mse_loss}):
        with pytest.raises(fs.UserError, match="need 'module' and 'agents' beside them"):
            fs.open(tmp_path / "a", **more)


def test_a_run_is_not_shortened_unawares(digits, tmp_path):
    agents, _ = digits
    for out in (tmp_path / "a", None):
        run = fs.train(module(), agents, rounds=9, threads=1, out=out, watchers=[StopAfter(3)], progress=False)
        assert (run.rounds, run.interrupted) == (3, True)
        kept = out and (out / "config.toml").read_bytes()
        with pytest.raises(fs.UserError, match=r"at least the 3 that are done, of 9 that the run is set to\. Got 2"):
            run.resume(rounds=2)
        assert kept == (out and (out / "config.toml").read_bytes())
        with pytest.warns(UserWarning, match="was set to 9 rounds: from now on it ends after 5"):
            shorter = run.resume(rounds=5, progress=False)
        assert (shorter.rounds, shorter.config.rounds, shorter.interrupted) == (5, 5, False)


def test_an_erasure_is_not_complete_before_its_end(trained, tmp_path):
    half = trained.forget([1], out=tmp_path / "b", repair=6, watchers=[StopAfter(12)], progress=False)
    with pytest.raises(fs.UserError, match="at least the 16 after which the erasure is complete"):
        half.resume(rounds=13)
    assert not is_done(tmp_path / "b")
    assert half.resume(progress=False).rounds == 16
    assert is_done(tmp_path / "b")


def test_who_takes_no_part_stays_away_when_it_goes_on_in_memory():
    config = fs.config(None, "data.name=digits", "model.hidden=[]", "rounds=1", "threads=1")
    run = fs.train_config(config, without=[2], progress=False)
    assert run.resume(rounds=2, progress=False).lineage.erased == (2,)


def test_nothing_shows_anybodys_examples(trained, digits):
    shown = [repr(trained), trained._repr_html_(), repr(trained._problem), repr(trained.state), repr(trained._given)]
    assert all(len(text) < 1500 for text in shown)
    assert "tensor(" not in "".join(shown)
    assert repr(trained).startswith("Run(dsvgd, ")
    prediction = trained.predict(digits[1][0])
    assert len(repr(prediction)) < 200
    assert "<table" in prediction._repr_html_()


def test_training_logs(digits, caplog):
    agents, test = digits
    with caplog.at_level(logging.INFO, logger="fedstein"):
        fs.train(module(), agents, rounds=2, test=test, evaluate_every=1)
    assert [record.message.split(":")[0] for record in caplog.records] == ["round 1", "round 2"]


def test_a_public_name_is_there_and_nothing_else():
    assert set(fs.__all__) == set(dir(fs))
    for name in fs.__all__:
        assert getattr(fs, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        fs.nonsense  # noqa: B018


@pytest.mark.parametrize("values", ["given", "trained"])
def test_particles_start_around_the_modules_own_values(digits, values):
    agents, _ = digits
    mine = module()
    if values == "trained":  # a module that fast paths do not know
        mine = nn.Sequential(nn.Flatten(), nn.LayerNorm(64), nn.Linear(64, 10))
    with torch.no_grad():
        for value in mine.parameters():
            value.normal_(3.0, 1.0)
    own = torch.cat([value.detach().reshape(-1) for value in mine.parameters()])
    still = fs.DSVGD(particles=3, step_size=1e-12)
    run = fs.train(mine, agents, method=still, rounds=1, init="module", spread=0.0, progress=False)
    torch.testing.assert_close(run.particles, own.expand(3, -1), atol=1e-6, rtol=0)
    run = fs.train(mine, agents, method=still, rounds=1, init="module", spread=0.1, progress=False)
    spread = (run.particles - own).std()
    assert 0.09 < spread < 0.11


def test_values_that_a_run_hangs_on_must_be_the_same_again(digits, tmp_path):
    agents, _ = digits
    frozen = module()
    frozen[1].requires_grad_(False)
    few = {"method": fs.DSVGD(particles=2, local_steps=1), "rounds": 1, "progress": False}
    fs.train(frozen, agents, out=tmp_path / "a", **few)
    fs.train(module(), agents, out=tmp_path / "b", init="module", **few)
    other = module()
    other[1].requires_grad_(False)
    with pytest.raises(fs.UserError, match="the values of what is frozen"):
        fs.open(tmp_path / "a", module=other, agents=agents)
    with pytest.raises(fs.UserError, match="parameters and layers are alike, and its values are others"):
        fs.open(tmp_path / "b", module=module(), agents=agents)
    other.load_state_dict(frozen.state_dict())
    assert fs.open(tmp_path / "a", module=other, agents=agents).rounds == 1


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ({"workers": 3}, "workers"),
        ({"engine": "zz"}, "engine"),
        ({"out": "/proc/nowhere/x"}, "Cannot make the '--out'"),
    ],
)
def test_a_mistake_in_how_to_forget_writes_no_request(trained, tmp_path, mistake, said):
    before = (tmp_path / "a" / "journal.jsonl").read_bytes()
    with pytest.raises(fs.UserError, match=said):
        trained.forget([2], **{"out": tmp_path / "b", **mistake})
    assert b"erasure requested" not in (tmp_path / "a" / "journal.jsonl").read_bytes()
    assert (tmp_path / "a" / "journal.jsonl").read_bytes() == before
    assert fs.open(tmp_path / "a").resume(rounds=11).rounds == 11


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: fs.GaussianPrior("a"), "std.*Got 'a'"),
        (lambda: fs.to_group_norm(3), "Module. Got int"),
        (lambda: setattr(fs.DSVGD(), "particles", 3), r"Make another: DSVGD\(particles=3"),
        (lambda: fs.train(module(), [], way="x"), "'way' must be one of auto, vmap, loop"),
        (lambda: fs.train(module(), [], likelihood="gaussian"), r"likelihood' must be .*fedstein.Gaussian\(\)"),
        (lambda: fs.train(module(), [], likelihood=fs.Gaussian), r"likelihood' must be .*fedstein.Gaussian\(\)"),
    ],
)
def test_what_used_to_be_a_raw_error_is_told_in_plain_words(make, said):
    with pytest.raises(fs.UserError, match=said):
        make()


def test_a_folder_of_something_else_is_not_called_a_run(digits, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(fs.UserError, match="new or empty") as refused:
        fs.train(module(), digits[0], rounds=1, out=tmp_path / "mine", progress=False)
    assert "delete" not in str(refused.value)


def test_a_lineage_that_is_none_is_told(trained, tmp_path):
    (tmp_path / "a" / "lineage.json").write_text("3")
    with pytest.raises(fs.UserError, match=r"lineage\.json is damaged") as refused:
        fs.open(tmp_path / "a")
    assert "validation error" not in str(refused.value)
