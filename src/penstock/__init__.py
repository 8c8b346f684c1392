"""Penstock: every change committed in Postgres, delivered through Apache Spark to any number of sinks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock import spark
    from penstock.config.model import Config
    from penstock.errors import PenstockError
    from penstock.lsn import LSN
    from penstock.pipeline import Pipeline
    from penstock.sinks.contract import Batch, Capabilities, Sink

__version__ = "0.1.0"
__all__ = ["LSN", "Batch", "Capabilities", "Config", "PenstockError", "Pipeline", "Sink", "spark"]

# Loaded when asked for: Spark starts many Python processes that need only a part of this package.
_HOMES = {
    "Batch": "penstock.sinks.contract",
    "Capabilities": "penstock.sinks.contract",
    "Config": "penstock.config.model",
    "LSN": "penstock.lsn",
    "PenstockError": "penstock.errors",
    "Pipeline": "penstock.pipeline",
    "Sink": "penstock.sinks.contract",
}


def __getattr__(name: str) -> Any:
    if name == "spark":
        return import_module("penstock.spark")
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
