"""The version of fedstein that is installed."""

from importlib.metadata import version

__all__ = ["__version__"]

__version__ = version("fedstein")
