"""A short run of the fuzzer; `make fuzz` is the long one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_a_short_fuzzing_run_finds_nothing(tmp_path):
    script = Path(__file__).with_name("fuzz_frame.py")
    done = subprocess.run(
        [sys.executable, str(script), "-runs=20000", "-max_len=512", "-seed=1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Done 20000 runs" in done.stderr
