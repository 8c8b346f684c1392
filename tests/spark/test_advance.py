"""A sink's position moves over WAL that held nothing for it, so that the source may let go of that. No JVM."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from penstock.errors import SinkError
from penstock.lsn import LSN
from penstock.sinks.contract import Batch
from penstock.sinks.file.sink import FileSettings, FileSink
from penstock.spark.delivery import SinkDelivery
from penstock.state.pipeline_state import PipelineState


def a_delivery(directory: Path, sink: FileSink) -> SinkDelivery:
    state = PipelineState(str(directory / "state"))
    state.create()
    sink.prepare()
    return SinkDelivery(cast(SparkSession, None), sink, state)


def test_a_sink_that_has_had_no_change_yet_moves_too(tmp_path: Path) -> None:
    sink = FileSink(FileSettings(name="files", path=tmp_path / "events"))
    delivery = a_delivery(tmp_path, sink)
    delivery.advance(LSN(100))
    assert delivery.position == sink.prepare() == LSN(100)


def test_no_position_moves_back(tmp_path: Path) -> None:
    sink = FileSink(FileSettings(name="files", path=tmp_path / "events"))
    delivery = a_delivery(tmp_path, sink)
    delivery.advance(LSN(100))
    delivery.advance(LSN(90))
    assert delivery.position == sink.prepare() == LSN(100)


class Broken(FileSink):
    def commit(self, batch: Batch, receipts: object) -> None:
        raise ValueError("a bug")


def test_what_a_sink_raises_against_its_contract_is_an_error_of_the_sink(tmp_path: Path) -> None:
    delivery = a_delivery(tmp_path, Broken(FileSettings(name="files", path=tmp_path / "events")))
    with pytest.raises(SinkError, match="ValueError") as caught:
        delivery.advance(LSN(100))
    assert "Traceback" in caught.value.__notes__[0]
    assert delivery.position is None
