"""CIFAR-10: both published forms are the same bytes, only what is verified is kept, hostile archives are refused."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from fedstein.data import DataConfig, find_cifar10, load_cifar10, loaded, who_has_what
from fedstein.data.sources import SOURCES, cifar10, cifar10_packed, class_names
from fedstein.errors import FedsteinError, UserError
from fedstein.testing.data import check_data_source

NAMES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
# Of the members of the upstream project's cifar-10-binary.tar.gz, as they are published in many places.
UPSTREAM_MD5 = [
    "5dd7e06a14cb22eb9f671a540d1b7c25", "5ea93a67294ea407fff1d09f752e9692", "942cd6a4bcdd0dd3c604fbe906cb4421",
    "ae636b3ba5c66a11e91e8cb52e771fcb", "53f37980c15c3d472c316c40844f3f0d", "803d5f7f4d78ea53de84dbe85f74fb6d",
]  # fmt: skip


@pytest.fixture
def real():
    if (place := find_cifar10()) is None:
        pytest.skip("CIFAR-10 is not on this machine: fedstein data get cifar10")
    return place


@pytest.fixture
def rows(monkeypatch):
    """Sheets and batches of three images."""
    monkeypatch.setattr(cifar10_packed, "_ROWS", 3)
    generator = np.random.default_rng(0)
    shapes = ((15, 3, 32, 32), (15,), (3, 3, 32, 32), (3,))
    arrays = [generator.integers(0, 256 if len(shape) > 1 else 10, shape, dtype=np.uint8) for shape in shapes]
    named = zip(cifar10.FILES, arrays, strict=True)
    files = {name: (a.shape, hashlib.sha256(np.ascontiguousarray(a)).hexdigest()) for name, a in named}
    monkeypatch.setattr(cifar10, "FILES", files)
    return arrays


def png(array, kind="RGB"):
    file = io.BytesIO()
    Image.fromarray(array).convert(kind).save(file, "PNG")
    return file.getvalue()


def sheets(x_train, y_train, x_test, y_test):
    images = [png(x.transpose(0, 2, 3, 1).reshape(3, 1024, 3)) for x in [*x_train.reshape(5, 3, 3, 32, 32), x_test]]
    labels = {"train_lables.json": y_train, "test_lables.json": y_test}
    return {f"package/{name}.png": content for name, content in zip(NAMES, images, strict=True)} | {
        f"package/{name}": json.dumps(values.tolist()).encode() for name, values in labels.items()
    }


def batches(x_train, y_train, x_test, y_test):
    x, y = np.concatenate([x_train, x_test]), np.concatenate([y_train, y_test])
    rows = np.concatenate([y[:, None], x.reshape(len(x), -1)], 1).reshape(6, -1)
    return {f"cifar-10-batches-bin/{name}.bin": part.tobytes() for name, part in zip(NAMES, rows, strict=True)}


def pack(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def test_it_is_the_real_one(real):
    data = load_cifar10()
    assert (data.train.x.shape, data.test.x.shape) == ((50_000, 3, 32, 32), (10_000, 3, 32, 32))
    assert data.train.y.bincount().tolist() == [5000] * 10
    assert data.test.y.bincount().tolist() == [1000] * 10
    x = loaded(data.train.x)
    assert (x.dtype, x.amin(), x.amax()) == (torch.float32, 0.0, 1.0)
    means = [x[:, color].mean(dtype=torch.float64).item() for color in range(3)]
    assert means == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)  # as commonly published


def test_it_is_what_the_upstream_project_publishes(real):
    arrays = [np.load(real / name, mmap_mode="r", allow_pickle=False) for name in cifar10.FILES]
    assert [hashlib.md5(content).hexdigest() for content in batches(*arrays).values()] == UPSTREAM_MD5


def test_a_run_takes_the_rows_that_it_uses(real):
    data = DataConfig(name="cifar10", agents=3, examples=20, validation=1000, test_examples=50)
    held = who_has_what(data, 0)
    assert [tuple(agent.x.shape) for agent in held.agents] == [(20, 3, 32, 32)] * 3
    assert (len(held.test), held.classes) == (50, 10)
    assert loaded(held.agents[0].x).dtype == loaded(held.test.x).dtype == torch.float32
    pixels = np.load(real / "test-images.npy", mmap_mode="r", allow_pickle=False)[:50]
    assert ((loaded(held.test.x) * 255).round().byte().numpy() == pixels).all()
    elsewhere = who_has_what(data, 0, remote=True)
    assert [len(agent) for agent in elsewhere.agents] == [0] * 3
    assert elsewhere.agents[0].x.dtype == torch.float32


def test_both_forms_are_the_same(tmp_path, rows):
    one = cifar10_packed.from_sheets(pack(tmp_path / "a.tgz", sheets(*rows)))
    other = cifar10_packed.from_binary(pack(tmp_path / "b.tgz", batches(*rows)))
    for left, right, wanted in zip(one, other, rows, strict=True):
        assert (left.dtype, left.shape) == (wanted.dtype, wanted.shape)
        assert (left == wanted).all()
        assert (right == wanted).all()


def test_getting_it_goes_from_npm_to_upstream_and_verifies(tmp_path, rows, monkeypatch):
    monkeypatch.setenv("FEDSTEIN_DATA", str(tmp_path / "data"))
    asked = []

    def brings(name, members):
        def bring(*arguments):
            asked.append(name)
            if members is None:
                raise FedsteinError(f"No {name}.")
            (tmp_path / "data" / "cifar10").mkdir(parents=True, exist_ok=True)
            return pack(tmp_path / "data" / "cifar10" / name, members)

        return bring

    def by(npm, https):
        asked.clear()
        monkeypatch.setattr(cifar10, "get_package", brings("npm", npm))
        monkeypatch.setattr(cifar10, "get_url", brings("https", https))

    changed = [rows[0] ^ 1, *rows[1:]]
    by(None, None)
    with pytest.raises(FedsteinError, match=r"Cannot get CIFAR-10. No npm. No https."):
        cifar10.get_cifar10()
    by(sheets(*changed), batches(*changed))  # other pictures, in order, are not taken
    with pytest.raises(FedsteinError, match="not the published one"):
        cifar10.get_cifar10()
    assert find_cifar10() is None
    by(None, batches(*rows))
    assert cifar10.get_cifar10() == (tmp_path / "data" / "cifar10", "https")
    assert asked == ["npm", "https"]
    assert cifar10.get_cifar10()[1] == "found"
    assert sorted(file.name for file in find_cifar10().iterdir()) == sorted(cifar10.FILES)  # the archive is gone
    check_data_source(SOURCES["cifar10"])
    for file in find_cifar10().iterdir():
        file.unlink()
    by(sheets(*rows), None)
    assert cifar10.get_cifar10()[1] == "npm"
    data = load_cifar10()
    assert torch.equal((loaded(data.train.x) * 255).round().to(torch.uint8), torch.from_numpy(rows[0]))
    assert data.test.y.tolist() == rows[3].tolist()
    assert class_names(DataConfig(name="cifar10"), 10)[3] == "cat"


def test_without_pillow_it_is_said_before_anything_is_fetched(tmp_path, rows, monkeypatch):
    monkeypatch.setenv("FEDSTEIN_DATA", str(tmp_path))
    monkeypatch.setitem(sys.modules, "PIL", None)

    def refuse(*arguments):
        raise FedsteinError("No network.")

    monkeypatch.setattr(cifar10, "get_url", refuse)
    monkeypatch.setattr(cifar10, "get_package", lambda *_: pytest.fail("139 MB for nothing"))
    with pytest.raises(FedsteinError, match=r"PNG images, which need an extra: pip install .*No network"):
        cifar10.get_cifar10()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"package/test_batch.png": None}, "must have package/test_batch.png"),
        ({"package/test_batch.png": b"no picture"}, "cannot be read"),
        ({"package/test_batch.png": png(np.zeros((3, 1023, 3), np.uint8))}, "1,024 x 3 pixels"),
        ({"package/test_batch.png": png(np.zeros((3, 1024, 3), np.uint8), "L")}, "of L"),
        ({"package/test_lables.json": b"[1, 2"}, "cannot be read"),
        ({"package/test_lables.json": b"[" * 100_000}, "cannot be read"),
        ({"package/test_lables.json": b"[1, 2, 10]"}, "labels 0..9"),
        ({"package/test_lables.json": b"[1, 2, true]"}, "labels 0..9"),
        ({"package/test_lables.json": b"[1, 2]"}, "3 labels"),
        ({"package/test_lables.json": bytes((1 << 25) + 1)}, "at most"),
    ],
)
def test_hostile_sheets_are_refused(tmp_path, rows, change, message):
    members = {name: content for name, content in (sheets(*rows) | change).items() if content is not None}
    with pytest.raises(UserError, match=message):
        cifar10_packed.from_sheets(pack(tmp_path / "a.tgz", members))


def test_hostile_archives_are_refused(tmp_path, rows):
    name = "cifar-10-batches-bin/test_batch.bin"
    with pytest.raises(UserError, match="9,219 bytes"):
        cifar10_packed.from_binary(pack(tmp_path / "a.tgz", batches(*rows) | {name: b"short"}))
    with tarfile.open(tmp_path / "link.tgz", "w:gz") as archive:
        link = tarfile.TarInfo(name)
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    with pytest.raises(UserError, match="must be a file"):
        cifar10_packed.from_binary(tmp_path / "link.tgz")
    for content in (b"", b"no archive", pack(tmp_path / "whole.tgz", batches(*rows)).read_bytes()[:-5000]):
        (tmp_path / "broken.tgz").write_bytes(content)
        with pytest.raises(UserError, match=r"Cannot unpack|must have"):
            cifar10_packed.from_binary(tmp_path / "broken.tgz")


@pytest.mark.parametrize("damage", ["one bit", "another shape", "another type", "objects", "cut short", "empty"])
def test_files_that_changed_are_refused(tmp_path, rows, damage):
    for name, array in zip(cifar10.FILES, rows, strict=True):
        np.save(tmp_path / name, array)
    assert len(load_cifar10(tmp_path).train) == 15
    path, array = tmp_path / "test-labels.npy", rows[3]
    if damage == "one bit":
        np.save(path, array ^ np.array([0, 0, 1], np.uint8))
    elif damage == "another shape":
        np.save(path, array[None])
    elif damage == "another type":
        np.save(path, array.astype(np.int8))
    elif damage == "objects":
        np.save(path, np.array([{}, {}, {}], object), allow_pickle=True)
    else:
        path.write_bytes(path.read_bytes()[:-1] if damage == "cut short" else b"")
    with pytest.raises(UserError, match="get the data again"):
        load_cifar10(tmp_path)


def test_a_place_without_it_is_told(tmp_path):
    with pytest.raises(UserError, match="fedstein data get cifar10"):
        load_cifar10(tmp_path)


def test_test_examples_are_the_first_ones():
    digits = DataConfig(name="digits", agents=2)
    few = who_has_what(digits.model_copy(update={"test_examples": 30}), 0)
    whole = who_has_what(digits, 0)
    assert torch.equal(few.test.x, whole.test.x[:30])
    assert torch.equal(few.agents[1].x, whole.agents[1].x)
    with pytest.raises(UserError, match="at most the 360 test examples"):
        who_has_what(digits.model_copy(update={"test_examples": 361}), 0)
