"""Quick to start, quick to stop: what a look at the help imports, and Ctrl-C at any moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from fedstein.extras import needs_extra

HEAVY = ("torch", "scipy", "matplotlib", "numpy", "pydantic", "sklearn")
WATCHED = f"""
import sys
from fedstein.__main__ import main
sys.argv = ["fedstein", *sys.argv[1:]]
try:
    main()
finally:
    loaded = [name for name in {HEAVY!r} if name in sys.modules]
    print("LOADED", loaded, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["plan", "--help"], 0),
        (["train", "--help"], 0),
        (["flower", "--help"], 0),
        (["trian"], 2),
        (["train", "--nonsense"], 2),
        (["plan", "--dim", "many"], 2),
        (["forget", "run"], 2),
        (["audit", "run", "--tier", "slow"], 2),
        ([], 0),
    ],
)
def test_help_and_mistakes_import_nothing_heavy(words, code):
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code or (words == [] and done.returncode in (0, 2))
    assert "LOADED []" in done.stderr


def test_importing_fedstein_imports_nothing_heavy():
    words = f"import sys, fedstein; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_an_agents_side_loads_no_server_report_or_plotting():
    words = """
import sys, fedstein.deploy.flower.client, fedstein.deploy.flower.agent_store, fedstein.protocol.wire
rooms = ("runs", "report", "studies", "sweeps", "api", "cli", "protocol.server", "deploy.flower.server")
print([name for name in sys.modules if any(name.startswith(f"fedstein.{room}") for room in rooms)
       or name.split(".")[0] in ("matplotlib", "scipy", "sklearn", "PIL")])
"""
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


PLAIN = """
import sys
for name in ("matplotlib", "PIL", "sklearn", "scipy", "pandas", "pyarrow", "onnx", "flwr", "ray", "mlflow"):
    sys.modules[name] = None
from fedstein.cli.main import main
for line in sys.stdin:
    sys.argv = ["fedstein", *line.split()]
    try:
        main()
    except SystemExit as end:
        print("ENDED", end.code, sys.argv[1])
"""


def test_without_the_extras_all_but_reports_work(tmp_path):
    def plain(*commands):
        """How each has ended, and what they have said of errors: one process for all of them."""
        lines = "\n".join(" ".join(words) for words in commands)
        done = subprocess.run(
            [sys.executable, "-c", PLAIN], input=lines, capture_output=True, text=True, cwd=tmp_path, check=True
        )
        return [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("ENDED")], done.stderr

    random = np.random.default_rng(0)
    x, y = random.normal(size=(60, 5)).astype("float32"), random.integers(0, 3, 60)
    np.savez(tmp_path / "data.npz", x_train=x, y_train=y, x_test=x[:9], y_test=y[:9])
    np.save(tmp_path / "x.npy", x)
    settings = ["data.name=npz", "data.path=data.npz", "data.agents=3", "rounds=4", "uplink.budget=20.0d"]
    settings += ["method.factor=linear", "model.hidden=[]"]
    ended, said = plain(
        ("train", "--out", "run", *(word for setting in settings for word in ("--set", setting))),
        ("resume", "run", "--rounds", "6"),
        ("evaluate", "run", "--ood", "x.npy"),
        ("predict", "run", "--input", "x.npy", "--output", "p.npz"),
        ("forget", "run", "--agents", "1", "--by", "agent", "--out", "after"),
        ("watch", "after", "--once"),
    )
    assert ended == [["0", verb] for verb in ("train", "resume", "evaluate", "predict", "forget", "watch")], said
    assert not (tmp_path / "run" / "agents" / "agent-1").exists()
    ended, said = plain(("report", "run"), ("audit", "after"), ("compare", "run", "after"))
    assert ended == [["2", verb] for verb in ("report", "audit", "compare")]
    assert said.count("pip install 'fedstein[report]'") == 3
    assert not (tmp_path / "after" / "audit").exists()  # refused before anything was retrained


@pytest.mark.parametrize(
    ("command", "times", "seconds"),
    [(["--help"], 12, 0.05), (["train", "--set", "data.name=digits", "--set", "rounds=1000000"], 8, 3.0)],
)
def test_ctrl_c_at_any_moment_ends_in_one_line(command, times, seconds, tmp_path):
    chance = random.Random(0)
    codes = []
    for number in range(5 * times):
        if number >= times and 130 in codes:
            break  # on a busy machine Python itself takes longer to start: later moments are tried as well
        process = subprocess.Popen(
            [sys.executable, "-m", "fedstein", *command], cwd=tmp_path, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        # At once, and then once in every part of these seconds.
        time.sleep(0.06 + seconds * max(0.0, number - chance.random()) / (times - 1))
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
        if process.returncode == -signal.SIGINT and not said:
            continue  # it died before Python had a handler at all: how long that takes is the machine's affair
        if process.returncode and "KeyboardInterrupt" in said and ", in main\n" not in said:
            continue  # and this one after that, before the first line of `main`: python itself was still starting
        codes.append(process.returncode)
        assert "Traceback" not in said, said
        assert len([line for line in said.splitlines() if line]) <= 1, said
        assert process.returncode in (130, 0 if command == ["--help"] else 130), said
    assert 130 in codes


def test_ctrl_c_inside_an_optional_import_is_no_missing_extra():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background has none

    def compiled():
        with needs_extra("report", "Reports"):
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt as error:
                raise ImportError("initialisation failed") from error

    with pytest.raises(KeyboardInterrupt):
        compiled()
