"""The longer campaigns of kills.py: `make test-long`. Short ones are in test_runs.py, longer ones are `make kill`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CAMPAIGNS = {
    "forks": ["--kills", "250"],
    "every write": ["--writes"],
    "every write of an erasure": ["--forget"],
}


@pytest.mark.skipif("FEDSTEIN_LONG" not in os.environ, reason="make test-long runs it")
@pytest.mark.parametrize("name", CAMPAIGNS)
def test_killed_again_and_again(name):
    script = Path(__file__).parent / "kills.py"
    done = subprocess.run([sys.executable, script, *CAMPAIGNS[name]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "all as if left alone" in done.stdout
