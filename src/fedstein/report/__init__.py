from pathlib import Path


def write_report(run: Path) -> Path:
    raise NotImplementedError
