"""Penstock: every change committed in Postgres, delivered through Apache Spark to any number of sinks."""

from importlib import import_module
from types import ModuleType

from penstock.config.model import Config
from penstock.errors import PenstockError
from penstock.lsn import LSN
from penstock.pipeline import Pipeline
from penstock.sinks.contract import Batch, Sink

__version__ = "0.1.0"
__all__ = ["LSN", "Batch", "Config", "PenstockError", "Pipeline", "Sink"]


def __getattr__(name: str) -> ModuleType:
    if name == "spark":  # loaded when asked for: PySpark takes its time
        return import_module("penstock.spark")
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
