"""Data as people have it: a function of one's own, folders of images, frames, data sets with named columns."""

from __future__ import annotations

import json
import os
import sys
import textwrap

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import fedstein as fs
from fedstein.cli.main import app
from fedstein.data import DataConfig, LazyRows, columns, from_frame, rows, who_has_what
from fedstein.errors import UserError

pandas = pytest.importorskip("pandas")
Image = pytest.importorskip("PIL.Image")


# --- a function of one's own ---


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "ours.py").write_text(
        textwrap.dedent("""
            import numpy as np

            def _some(count, seed):
                draw = np.random.default_rng(seed)
                y = np.arange(count) % 3
                return draw.normal(size=(count, 4)).astype(np.float32) + y[:, None], y

            def divided(count=60):
                return {"train": _some(count, 0), "test": _some(30, 1), "class_names": ["ant", "bee", "cat"]}

            def natural(people=3):
                return {
                    "agents": [_some(12 + k, k) for k in range(people)],
                    "test": _some(30, 9),
                    "agent_names": [f"site {k}" for k in range(people)],
                }

            def wrong(how):
                return {
                    "nothing": None, "no test": {"train": _some(9, 0)}, "both": {"train": 1, "agents": 2, "test": 3},
                    "other": {"test": _some(9, 0), "trian": 1},
                    "shapes": {"train": _some(9, 0), "test": (np.zeros((3, 5)), np.arange(3))},
                    "names": {"train": _some(9, 0), "test": _some(9, 0), "class_names": ["a", "b"]},
                }[how]

            def fails():
                raise OSError("the disk is gone")
        """)
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    yield tmp_path
    sys.modules.pop("ours", None)


def command(*words):
    return CliRunner().invoke(app, words)


SMALL = ("method.particles=2", "method.local_steps=2", "rounds=3", "threads=1", "model.hidden=[5]")


def test_a_function_of_ones_own_is_data(folder):
    run = fs.train_config(
        fs.config(None, "data.source=ours:divided", "data.args={count = 90}", "data.agents=3", *SMALL), "a",
        progress=False,
    )  # fmt: skip
    assert run.config.data.name == "source"
    assert "bee" in run.report().read_text()
    assert fs.open("a").resume(rounds=4).result["rounds"] == 4


def test_agents_as_a_function_has_them(folder):
    held = who_has_what(DataConfig(source="ours:natural", args={"people": 4}), 0)
    assert [len(own) for own in held.agents] == [12, 13, 14, 15]
    assert held.agent_names[3] == "site 3"
    assert held.settings["agents"] == 4


def test_a_run_folder_of_a_stranger_does_not_run_its_function(folder, monkeypatch):
    fs.train_config(fs.config(None, "data.source=ours:divided", *SMALL), "a", progress=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "another home"))
    with pytest.raises(UserError, match=r"The data of run 'a' is made by code: 'ours:divided'"):
        fs.open("a")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("nothing", "must return a mapping"),
        ("no test", "must return 'test'"),
        ("both", "must return 'test'"),
        ("other", "'trian' as well"),
        ("shapes", "shaped like that of the test data"),
        ("names", "as many as there are labels"),
    ],
)
def test_what_a_function_returns_is_checked(folder, how, words):
    with pytest.raises(UserError, match=words):
        who_has_what(DataConfig(source="ours:wrong", args={"how": how}), 0)


def test_a_function_that_fails_or_is_not_there_is_told(folder):
    with pytest.raises(UserError, match=r"'ours:fails' failed with data.args = {}: OSError: the disk is gone"):
        who_has_what(DataConfig(source="ours:fails"), 0)
    with pytest.raises(UserError, match=r"has no 'dividde'. Did you mean 'divided'"):
        who_has_what(DataConfig(source="ours:dividde"), 0)
    with pytest.raises(UserError, match=r"'data.source' 'nowhere:f' cannot be imported here"):
        who_has_what(DataConfig(source="nowhere:f"), 0)


# --- images ---


def draw(path, label, number, size=(8, 6), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full((*size, 3), 80 * label + number, np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)


@pytest.fixture
def images(tmp_path):
    for part, count in (("train", 6), ("test", 2)):
        for label, name in enumerate(("cat", "dog")):
            for number in range(count):
                draw(tmp_path / "pictures" / part / name / f"{number}.png", label, number)
    return tmp_path / "pictures"


def config(path, **more):
    return DataConfig(name="images", path=str(path), agents=2, **more)


def test_a_folder_a_class(images):
    held = who_has_what(config(images), 0)
    assert held.class_names == ("cat", "dog")
    assert held.test.x.shape == (4, 3, 8, 6)
    assert torch.allclose(held.test.x[:, 0, 0, 0] * 255, torch.tensor([0.0, 1, 80, 81]))
    assert held.test.y.tolist() == [0, 0, 1, 1]
    everyone = torch.cat([own.x[:, 0, 0, 0] * 255 for own in held.agents])
    assert sorted(round(float(value)) for value in everyone) == [*range(6), *range(80, 86)]
    assert held.settings["size"] == (8, 6)


def test_without_a_test_folder_a_share_is_drawn(images):
    held = who_has_what(config(images / "train", test=0.25), 0)
    assert len(held.test) == 3
    assert sum(map(len, held.agents)) == 8  # equal parts


def test_a_folder_an_agent(tmp_path):
    for agent in ("north", "south", "west"):
        for label, name in enumerate(("cat", "dog")):
            for number in range(3):
                draw(tmp_path / "agents" / agent / name / f"{number}.jpg", label, number)
    held = who_has_what(config(tmp_path), 0)
    assert held.agent_names == ("north", "south", "west")
    assert [len(own) for own in held.agents] == [5, 5, 5]
    assert len(held.test) == 3
    # Its number stays its own when another one's folder is gone.
    ids = held.settings["agent_ids"]
    for file in (tmp_path / "agents" / "south").rglob("*.jpg"):
        file.unlink()
    again = who_has_what(config(tmp_path, agent_ids=ids), 0)
    assert [len(own) for own in again.agents] == [5, 0, 5]


def test_many_images_are_opened_when_they_are_wanted(images, monkeypatch):
    eager = who_has_what(config(images), 0)
    monkeypatch.setattr("fedstein.data.sources.images.MEMORY", 0)
    held = who_has_what(config(images), 0)
    assert isinstance(held.agents[0].x, LazyRows)
    assert torch.equal(held.agents[0].x[:], eager.agents[0].x)
    (images / "train" / "cat" / "0.png").unlink()
    with pytest.raises(UserError, match=r"Cannot read the image .*0\.png"):
        [own.x[:] for own in held.agents]


def test_images_of_two_sizes_want_a_size(images):
    draw(images / "train" / "cat" / "x.png", 0, 9, size=(4, 4), mode="L")
    with pytest.raises(UserError, match=r"x.png is 4 x 4 pixels.*data.size=\[8,6\]"):
        who_has_what(config(images), 0)
    held = who_has_what(config(images, size=(5, 5), channels=1), 0)
    assert held.test.x.shape == (4, 1, 5, 5)


def test_hostile_images_are_refused(images, tmp_path):
    (images / "train" / "cat" / "evil.png").write_bytes(b"\x89PNG\r\n\x1a\n" + os.urandom(50))
    with pytest.raises(UserError, match=r"Cannot read the image .*evil\.png"):
        who_has_what(config(images), 0)
    (images / "train" / "cat" / "evil.png").unlink()
    # 20,000 x 20,000 pixels in a few bytes: refused by what its header says.
    Image.new("1", (20_000, 20_000)).save(images / "train" / "cat" / "0.png")
    with pytest.raises(UserError, match=r"too many|exceeds"):
        who_has_what(config(images), 0)
    (images / "train" / "cat" / "0.png").unlink()
    draw(tmp_path / "secret.png", 1, 1)
    (images / "train" / "cat" / "link.png").symlink_to(tmp_path / "secret.png")
    assert sum(map(len, who_has_what(config(images, examples=5), 0).agents)) == 10
    with pytest.raises(UserError, match=r"examples"):  # eleven are left: the link is not followed
        who_has_what(config(images, examples=6), 0)


def test_folders_without_images_are_told(tmp_path):
    with pytest.raises(UserError, match=r"must have images in train/CLASS/"):
        who_has_what(config(tmp_path), 0)
    with pytest.raises(UserError, match=r"data.size is for data.name = 'images'"):
        fs.config(None, "data.name=digits", "data.size=[3,3]")


def test_images_through_the_verbs(images, monkeypatch):
    monkeypatch.chdir(images.parent)
    settings = (f"data.path={images}", "data.name=images", "data.agents=2", *SMALL)
    run = fs.train_config(fs.config(None, *settings), "a", progress=False)
    assert run.config.data.class_names == ("cat", "dog")
    assert "dog" in run.report().read_text()
    # A folder, files, and what training has read of them say the same.
    files = sorted((images / "test").rglob("*.png"))
    said = run.predict(who_has_what(run.config.data, 0).test.x).probabilities
    assert torch.equal(run.predict(images / "test").probabilities, said)
    assert torch.equal(run.predict([str(file) for file in files]).probabilities, said)
    done = command("predict", "a", "--input", str(images / "test"), "--output", "p.npz", "--json")
    assert done.exit_code == 0, done.output
    with np.load("p.npz", allow_pickle=False) as file:
        assert np.allclose(file["probabilities"], said)
        assert file["class_names"].tolist() == ["cat", "dog"]
        assert file["files"].tolist() == [str(path) for path in files]
        counts = {name: int((file["label"] == k).sum()) for k, name in enumerate(("cat", "dog"))}
    assert json.loads(done.stdout)["labels"] == {name: count for name, count in counts.items() if count}
    done = command("predict", "a", "--input", str(files[0]), "--input", str(files[1]), "--output", "p.npz")
    assert "2 predictions in p.npz" in done.output
    # Other sizes are brought to the run's, also in folders of folders.
    draw(images / "new" / "deep" / "x.png", 1, 2, size=(16, 12))
    draw(images / "new" / "y.png", 1, 2)
    near, like = run.predict(images / "new").probabilities
    torch.testing.assert_close(near, like)


def test_what_is_no_image_of_this_run_is_no_input(images, monkeypatch):
    monkeypatch.chdir(images.parent)
    run = fs.train_config(fs.config(None, f"data.path={images}", "data.name=images", "data.agents=2", *SMALL),
                          progress=False)  # fmt: skip
    (images / "empty").mkdir()
    (images / "empty" / "link.png").symlink_to(images / "test" / "cat" / "0.png")
    (images / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(20))
    np.save(images / "x.npy", np.zeros((3, 8, 6), np.float32))
    for given, said in (
        (images / "empty", r"empty must be an image, or a folder with images .* Got none"),
        (images / "broken.png", "Cannot read the image"),
        (images / "gone.png", "gone.png must be an image"),
        ([images / "x.npy", images / "test"], "Only images are taken several at a time"),
        (images / "x.npy", r"must be \(n, 3, 8, 6\)"),
    ):
        with pytest.raises(UserError, match=said):
            run.predict(given)
    other = fs.train_config(fs.config(None, "data.name=digits", "data.examples=9", *SMALL), progress=False)
    with pytest.raises(UserError, match=r"Images are for runs with data\.name = 'images'.* has 'digits'"):
        other.predict(images / "test")


# --- frames, and columns with names ---


def frame(count=60):
    draws = np.random.default_rng(0)
    age = draws.integers(20, 80, count)
    return pandas.DataFrame(
        {"age": age, "city": draws.choice(["Ulm", "Bonn"], count), "site": np.arange(count) % 3,
         "pain": np.where(age > 50, "much", "little")}
    )  # fmt: skip


def test_a_frame_is_everybodys_data():
    held = from_frame(frame(), target="pain", agent_column="site", scale={"age": 50.0})
    assert held.class_names == ("little", "much")
    assert [len(own) for own in held.agents] == [16, 16, 16]
    run = fs.train(
        nn.Linear(3, 2), held, method=fs.DSVGD(particles=2, step_size=0.1), rounds=30, progress=False, threads=1
    )
    assert run.metrics["accuracy"] > 0.8
    assert run.config.data.class_names == ("little", "much")


def test_a_frame_is_divided_where_no_column_says_whose_it_is():
    held = from_frame(frame(), target="age", features=["city"], agents=4, test=frame(12))
    assert [len(own) for own in held.agents] == [15] * 4
    assert len(held.test) == 12
    with pytest.raises(UserError, match=r"no column 'agee'. Did you mean 'age'"):
        from_frame(frame(), target="agee")
    with pytest.raises(UserError, match=r"must be a DataFrame of pandas. Got dict"):
        from_frame({}, target="age")
    with pytest.raises(UserError, match=r"agents\[0\] is a frame: .*from_frame"):
        fs.train(nn.Linear(3, 2), [frame()])


def test_columns_of_a_hugging_face_data_set():
    datasets = pytest.importorskip("datasets")
    pixels = [Image.fromarray(np.full((5, 4, 3), 40 * k, np.uint8)) for k in range(6)]
    features = datasets.Features(
        {"img": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"]), "id": datasets.Value("int64")}
    )
    whole = datasets.Dataset.from_dict({"img": pixels, "label": [0, 1] * 3, "id": range(6)}, features=features)
    own = columns(whole, x="img", y="label")
    assert own.class_names == ("cat", "dog")
    with pytest.warns(UserWarning, match=r"divided by 255"):
        examples = fs.data.as_examples(own, "agents[0]")
    assert examples.x.shape == (6, 3, 5, 4)
    assert torch.allclose(examples.x[:, 0, 0, 0] * 255, torch.arange(6) * 40.0)
    with pytest.raises(UserError, match=r"no column 'lable'. Did you mean 'label'"):
        columns(whole, x="img", y="lable")
    with pytest.raises(UserError, match=r"columns"):
        fs.data.as_examples(whole, "agents[0]")
    with pytest.warns(UserWarning, match=r"divided by 255"):
        run = fs.train(
            nn.Sequential(nn.Flatten(), nn.Linear(60, 2)), [own, columns(whole.shuffle(seed=1), "img", "label")],
            rounds=2, progress=False, test=own,
        )  # fmt: skip
    assert run.config.data.class_names == ("cat", "dog")


def test_transforms_of_a_hugging_face_data_set_happen_each_time(monkeypatch):
    datasets = pytest.importorskip("datasets")
    whole = datasets.Dataset.from_dict({"x": [[1.0, 2.0]] * 4, "y": [0, 1, 0, 1]})
    whole.set_transform(lambda batch: {**batch, "x": [torch.tensor(x) + torch.rand(2) for x in batch["x"]]})
    examples = fs.data.as_examples(columns(whole, "x", "y"), "agents[0]")
    assert isinstance(examples.x, LazyRows)
    assert not torch.equal(examples.x.read(slice(0, 4), 1), examples.x.read(slice(0, 4), 2))


def test_a_stream_that_does_not_fit_into_memory(monkeypatch):
    monkeypatch.setattr(rows, "MEMORY", 0)
    examples = fs.data.as_examples(((torch.full((3,), float(k)), k % 2) for k in range(700)), "agents[0]")
    assert torch.equal(examples.x[:, 0], torch.arange(700.0))


def test_images_of_sixteen_bits_keep_their_shades(tmp_path):
    shades = (np.linspace(0, 65535, 64).reshape(8, 8)).astype(np.uint16)
    for label in ("cat", "dog"):
        for part in ("train", "test"):
            (tmp_path / part / label).mkdir(parents=True)
            for number in range(2):
                Image.fromarray(shades).save(tmp_path / part / label / f"{number}.png")
    held = who_has_what(config(tmp_path), 0)
    assert torch.allclose(held.test.x[0, 0], torch.from_numpy(shades / 65535).float(), atol=1 / 255)
    Image.fromarray(shades.astype(np.float32) / 65535).save(tmp_path / "train" / "cat" / "0.tif")
    with pytest.raises(UserError, match="whose range nobody knows"):
        who_has_what(config(tmp_path), 0)


def test_a_function_that_returns_a_frame_makes_a_run_that_opens_and_draws_the_same_each_time(folder):
    (folder / "ours.py").write_text(
        "import fedstein as fs, numpy as np, pandas as pd\n"
        "def clinics():\n"
        "    y = np.random.permutation(60) % 2\n"
        "    frame = pd.DataFrame({'a': np.random.rand(60), 'site': np.arange(60) % 3, 'y': y})\n"
        "    return fs.from_frame(frame, target='y', agent_column='site', center={'a': 0.5})\n"
    )
    run = fs.train_config(fs.config(None, "data.source=ours:clinics", *SMALL), "a", progress=False)
    assert fs.open("a").evaluate()["nll"] == run.metrics["nll"]
    assert fs.open("a").forget([1], out="b", progress=False, method="retrain").path


def test_a_table_predicts_from_a_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame().to_csv("own.csv", index=False)
    run = fs.train_config(
        fs.config(None, "data.name=table", "data.path=own.csv", "data.target=pain", "data.agent_column=site",
                  "data.scale={age = 50}", *SMALL), "a", progress=False,
    )  # fmt: skip
    new = frame(5).drop(columns=["pain", "site"])
    ready = torch.tensor(np.stack([new["age"] / 50, new["city"] == "Bonn", new["city"] == "Ulm"], 1)).float()
    assert torch.equal(run.predict(new).probabilities, run.predict(ready).probabilities)
    new.to_csv("new.csv", index=False)
    done = command("predict", "a", "--input", "new.csv", "--output", "p.npz")
    assert done.exit_code == 0, done.output
    with np.load("p.npz", allow_pickle=False) as file:
        assert np.allclose(file["probabilities"], run.predict(new).probabilities)
        assert file["class_names"].tolist() == ["little", "much"]
    assert torch.equal(run.predict("new.csv").probabilities, run.predict(new).probabilities)
