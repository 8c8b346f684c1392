"""Options as Spark hands them over: names in any case."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadMaxBytes
from pyspark.sql.types import StructType

from penstock.spark.source import ChangeSource


def test_options_with_capitals_reach_the_reader(tmp_path: Path) -> None:
    options = CaseInsensitiveDict({"path": str(tmp_path), "startingLsn": "0/10", "maxBytesPerBatch": "7"})

    reader = ChangeSource(options).streamReader(StructType())

    assert reader.initialOffset() == {"lsn": "0/10"}
    limit = reader.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxBytes)
    assert limit.max_bytes == 7


def test_what_the_sink_holds_is_not_planned_again(tmp_path: Path) -> None:
    """Also if the log, here an empty one, has let go of it."""
    options = CaseInsensitiveDict({"path": str(tmp_path), "resumeLsn": "0/30"})

    reader = ChangeSource(options).streamReader(StructType())

    assert len(reader.partitions({"lsn": "0/10"}, {"lsn": "0/30"})) == 1, "the one that says where the batch ends"
