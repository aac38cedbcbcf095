"""Engines: transports only. Each carries the same messages; what they mean is in `protocol/`."""

from fedstein.engines.local import Local
from fedstein.engines.opening import ENGINES, Crew, EngineMaker, check_engine, cores, open_engine

__all__ = ["ENGINES", "Crew", "EngineMaker", "Local", "check_engine", "cores", "open_engine"]
