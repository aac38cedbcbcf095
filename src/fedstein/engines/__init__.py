"""Engines: transports only. Each carries the same messages; what they mean is in `protocol/`."""

from fedstein.engines.local import Local
from fedstein.engines.opening import ENGINES, Crew, EngineMaker, cores, open_engine

__all__ = ["ENGINES", "Crew", "EngineMaker", "Local", "cores", "open_engine"]
