"""Everything that needs Spark. ``penstock.spark.ChangeSource`` is the data source for your own sessions."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.source import ChangeSource

__all__ = ["ChangeSource"]


def __getattr__(name: str) -> Any:
    """Loaded when asked for: `penstock check` looks for Java without importing PySpark."""
    if name != "ChangeSource":
        raise AttributeError(f"module 'penstock.spark' has no attribute {name!r}")
    from penstock.spark.source import ChangeSource

    return ChangeSource
