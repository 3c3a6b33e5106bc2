"""The version of this program, as installed."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("dra-extender")
except PackageNotFoundError:  # run from a source tree that was never installed
    VERSION = "0.0.0+source"
