"""Networks by name: from a file of a stranger to particles, and what is refused before anything is trained."""

from __future__ import annotations

import sys

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fedstein.by_name import origin
from fedstein.errors import UserError
from fedstein.likelihoods import Categorical
from fedstein.models import ModelConfig, PriorConfig, fingerprint, network
from fedstein.models.named import frozen_values, listing, make_module, unlike_listing
from fedstein.settings import make_config
from fedstein.store.allowed import allow_module, is_allowed

NETS = """
import torch
from torch import nn

calls = []

def make_mlp(width=6, classes=3):
    return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, classes))

class Backbone(nn.Module):
    def __init__(self, width=5):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.ReLU())
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        return self.head(self.body(x))

def growing():
    calls.append(1)
    return nn.Linear(4, 2 + len(calls))

def nothing():
    return "no module"

def broken(size):
    raise RuntimeError("out of paper")

def lazy():
    return nn.LazyLinear(3)

def frozen():
    return nn.Linear(4, 3).requires_grad_(False)

number = 3
"""


@pytest.fixture
def nets(tmp_path, monkeypatch):
    (tmp_path / "stranger_nets.py").write_text(NETS)
    (tmp_path / "needs_more.py").write_text("import a_package_that_is_not_there\n")
    (tmp_path / "bad_file.py").write_text("def broken(:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "stranger_nets"
    for name in ("stranger_nets", "needs_more", "bad_file"):
        sys.modules.pop(name, None)


def log_probabilities(model, particles, x):
    return model.outputs(particles, x).log_softmax(-1)


def made(module, init="fan-in", seed=0, frozen=None, parameters=None, **settings):
    config = ModelConfig(module=module, **settings)
    return network(config, PriorConfig(init=init), Categorical(), torch.Size([4]), 3, seed, frozen, parameters)


def test_a_network_by_name_is_that_network(nets):
    net = made(f"{nets}:make_mlp", args={"width": 7})
    assert net.model.dim == net.size == 4 * 7 + 7 + 7 * 3 + 3
    assert (net.prepare, net.frozen, net.start) == (None, None, None)
    assert list(net.parameters) == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_making_it_is_the_same_for_everybody_and_leaves_the_random_numbers_alone(nets):
    before = torch.random.get_rng_state()
    one, two, other = (make_module(f"{nets}:make_mlp", {}, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(one[0].weight, two[0].weight)
    assert not torch.equal(one[0].weight, other[0].weight)


def test_only_what_matches_is_learnt_and_the_rest_is_kept(nets):
    net = made(f"{nets}:Backbone", particles=("head.*",))
    assert net.model.dim == 5 * 3 + 3
    assert net.size == 4 * 5 + 5 + 5 + 5 + 5 * 3 + 3
    assert set(net.frozen) == {
        "body.0.weight", "body.0.bias", "body.1.weight", "body.1.bias", "body.1.running_mean", "body.1.running_var",
    }  # fmt: skip
    module = make_module(f"{nets}:Backbone", {}, 0, ("head.*",))
    x = torch.randn(7, 4)
    particle = torch.cat([module.head.weight.detach().reshape(-1), module.head.bias.detach()])
    inputs = x if net.prepare is None else net.prepare(x)
    ours = log_probabilities(net.model, particle[None], inputs)[0]
    torch.testing.assert_close(ours, module(x).log_softmax(1).detach())


def test_kept_values_win_over_the_callables_own(nets):
    kept = {
        name: torch.full_like(value, 0.5)
        for name, value in made(f"{nets}:Backbone", particles=("head.*",)).frozen.items()
    }
    net = made(f"{nets}:Backbone", particles=("head.*",), frozen=kept)
    assert all(torch.equal(net.frozen[name], kept[name]) for name in kept)


def test_weights_from_a_file_are_where_particles_start(nets, tmp_path):
    module = make_module(f"{nets}:Backbone", {}, 7)
    save_file(module.state_dict(), tmp_path / "w.safetensors")
    net = made(f"{nets}:Backbone", init="module", particles=("head.*",), weights=str(tmp_path / "w.safetensors"))
    assert torch.equal(net.start, torch.cat([module.head.weight.detach().reshape(-1), module.head.bias.detach()]))
    assert torch.equal(net.frozen["body.0.weight"], module.body[0].weight)
    # Kept with the run: the file need not be there again.
    again = made(f"{nets}:Backbone", init="module", particles=("head.*",), weights="/gone", frozen=net.frozen)
    assert torch.equal(again.start, net.start)
    task = PriorConfig(init="module", spread=0.25).task(net)
    from fedstein.methods import DSVGD

    first = DSVGD(particles=400).start(task, torch.Generator().manual_seed(0))
    assert float((first - net.start).std()) == pytest.approx(0.25, rel=0.05)


def test_a_backbone_alone_is_enough_for_its_weights(nets, tmp_path):
    module = make_module(f"{nets}:Backbone", {}, 7, ("head.*",))
    save_file(frozen_values(module), tmp_path / "w.safetensors")
    net = made(f"{nets}:Backbone", particles=("head.*",), weights=str(tmp_path / "w.safetensors"))
    assert torch.equal(net.frozen["body.0.weight"], module.body[0].weight)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"module": "stranger_nets:make_mpl"}, "has no 'make_mpl'. Did you mean 'make_mlp'"),
        ({"module": "stranger_nets:number"}, "must be something to call"),
        ({"module": "stranger_nets:nothing"}, "must return a torch.nn.Module. Got str"),
        ({"module": "stranger_nets:broken", "args": {"size": 3}}, "failed with model.args = .* out of paper"),
        ({"module": "stranger_nets:make_mlp", "args": {"widht": 3}}, "failed with model.args = .*widht"),
        ({"module": "stranger_nets:lazy"}, "without a shape yet"),
        ({"module": "stranger_nets:frozen"}, "must have parameters to learn"),
        ({"module": "stranger_nets:growing"}, "must return the same network every time: 'weight' was 3x4"),
        ({"module": "not_there_at_all:make"}, "cannot be imported here: No module named 'not_there_at_all'"),
        ({"module": "needs_more:make"}, "it needs 'a_package_that_is_not_there', which is not installed"),
        ({"module": "bad_file:make"}, "cannot be imported: SyntaxError"),
        ({"module": "stranger_nets:Backbone", "particles": ("haed.*",)}, "'haed.*' matches no parameter"),
        ({"module": "stranger_nets:Backbone", "weights": "/not/there"}, "Cannot read the 'model.weights'"),
    ],
)
def test_what_cannot_be_a_network_is_refused_with_words(settings, words, nets):
    settings = dict(settings)
    with pytest.raises(UserError, match=words):
        made(settings.pop("module"), **settings)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"strange.weight": torch.ones(2)}, "Missing: 'body.0.weight'"),
        ({**frozen_values(nn.Linear(2, 2).requires_grad_(False))}, "Missing"),
    ],
)
def test_weights_of_another_network_are_refused(values, words, nets, tmp_path):
    save_file(values, tmp_path / "w.safetensors")
    with pytest.raises(UserError, match=words):
        made(f"{nets}:Backbone", particles=("head.*",), weights=str(tmp_path / "w.safetensors"))


def test_weights_with_more_other_shapes_or_nan_are_refused(nets, tmp_path):
    path = tmp_path / "w.safetensors"
    own = make_module(f"{nets}:Backbone", {}, 0).state_dict()
    for name, value, words in (
        ("tail.weight", torch.ones(2), "this one has no 'tail.weight'"),
        ("head.bias", torch.ones(2), r"'head.bias' is \(2,\), expected \(3,\)"),
        ("head.bias", torch.tensor([0.0, float("nan"), 1.0]), "must be finite. 'head.bias' is not"),
    ):
        save_file({**own, name: value}, path)
        with pytest.raises(UserError, match=words):
            made(f"{nets}:Backbone", particles=("head.*",), weights=str(path))


def test_a_network_that_has_changed_is_refused_with_the_difference(nets):
    then = made(f"{nets}:make_mlp", args={"width": 6})
    print_then = fingerprint(then.parameters)
    made(f"{nets}:make_mlp", args={"width": 6}, fingerprint=print_then)
    with pytest.raises(
        UserError, match=r"not the network of this run any more: '0.weight' was 6x4 float32 learnt and is 8x4"
    ):
        made(f"{nets}:make_mlp", args={"width": 8}, fingerprint=print_then, parameters=then.parameters)
    with pytest.raises(UserError, match=r"not the network of this run any more\."):
        made(f"{nets}:make_mlp", args={"width": 8}, fingerprint=print_then)


def test_the_order_of_parameters_is_part_of_what_they_are():
    one, other = nn.ModuleDict({"a": nn.Linear(1, 1), "b": nn.Linear(1, 1)}), nn.ModuleDict()
    other["b"], other["a"] = nn.Linear(1, 1), nn.Linear(1, 1)
    assert fingerprint(listing(one)) != fingerprint(listing(other))
    assert unlike_listing(listing(one), listing(other)) == "their order is another one"


def test_the_built_in_network_has_no_values_of_its_own():
    with pytest.raises(UserError, match=r"'prior.init' module needs 'model.module'"):
        network(ModelConfig(), PriorConfig(init="module"), Categorical(), torch.Size([4]), 3, 0)


@pytest.mark.parametrize("name", ["nets", "nets:", ":make", "nets:make()", "../nets:make", "nets:make cnn"])
def test_a_name_that_is_none_is_refused(name):
    with pytest.raises(UserError, match="module"):
        ModelConfig(module=name)


def test_a_look_at_where_code_comes_from_is_cheap(nets, monkeypatch):
    """Every look at a run asks; only the record of a new run needs the version, from the metadata of all packages."""
    monkeypatch.setattr(
        "fedstein.by_name.packages_distributions", lambda: pytest.fail("all packages were gone through")
    )
    assert origin(f"{nets}:make_mlp").file.endswith("stranger_nets.py")
    assert not is_allowed(f"{nets}:make_mlp")


def test_where_code_comes_from_is_found_without_running_it(nets):
    assert origin(f"{nets}:make_mlp").file.endswith("stranger_nets.py")
    assert nets not in sys.modules
    assert origin("torch.nn:Linear").version == torch.__version__.partition("+")[0] or origin("torch.nn:Linear").version


def test_quotes_that_a_shell_took_away_are_missed():
    assert make_config(overrides=["model.module=nets:make_cnn", "model.particles=head.*"]).model.particles == (
        "head.*",
    )
    with pytest.raises(UserError, match=r"must be a list of patterns, in quotes for the shell. Got '\[head\.\*\]'"):
        make_config(overrides=["model.module=nets:make_cnn", "model.particles=[head.*]"])


def test_frozen_values_that_would_not_be_kept_are_refused(nets, tmp_path):
    (tmp_path / "ordered_nets.py").write_text(
        "import numpy as np, torch\n"
        "from torch import nn\n"
        "class Ordered(nn.Module):\n"
        "    def __init__(self, own=False):\n"
        "        super().__init__()\n"
        "        self.register_buffer('order', torch.arange(4))\n"
        "        self.picks = np.random.permutation(4)\n"
        "        noise = np.random.default_rng().random(3) if own else np.zeros(3)\n"
        "        self.noise = nn.Parameter(torch.tensor(noise).float(), requires_grad=False)\n"
        "        self.head = nn.Linear(4, 3)\n"
        "    def forward(self, x):\n"
        "        return self.head(x[:, self.order]) + self.noise\n"
    )
    values = {f"head.{name}": value for name, value in nn.Linear(4, 3).state_dict().items()}
    save_file({**values, "order": torch.tensor([3, 1, 0, 2]), "noise": torch.zeros(3)}, tmp_path / "w.safetensors")
    model = ModelConfig(module="ordered_nets:Ordered", particles=("head.*",))
    with pytest.raises(UserError, match=r"must be float32 to be kept. 'order' \(int64\) is another one"):
        network(
            model.model_copy(update={"weights": str(tmp_path / "w.safetensors")}), PriorConfig(), Categorical(),
            torch.Size([4]), 3, 0,
        )  # fmt: skip
    with pytest.raises(UserError, match=r"the same network every time: .*'noise' \(float32\) is another one"):
        network(model.model_copy(update={"args": {"own": True}}), PriorConfig(), Categorical(), torch.Size([4]), 3, 0)
    first, again = (make_module("ordered_nets:Ordered", {}, 3) for _ in range(2))
    assert first.picks.tolist() == again.picks.tolist()  # numpy's global generator is seeded as well
    sys.modules.pop("ordered_nets")


def test_packages_without_a_file_are_told_apart_by_their_place(nets, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    for place in ("mine", "foreign"):
        (tmp_path / place / "spaced").mkdir(parents=True)
        (tmp_path / place / "spaced" / "cnn.py").write_text("def make():\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path / "mine"))
    allow_module("spaced.cnn:make")
    assert is_allowed("spaced.cnn:make")
    monkeypatch.undo()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(str(tmp_path / "foreign"))
    assert not is_allowed("spaced.cnn:make")
    with pytest.raises(UserError, match="another script is another '__main__'"):
        make_module("__main__:make", {}, 0)
