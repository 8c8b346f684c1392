"""Everything that needs Spark. ``penstock.spark.ChangeSource`` is the data source for your own sessions."""

from penstock.spark.source import ChangeSource

__all__ = ["ChangeSource"]
