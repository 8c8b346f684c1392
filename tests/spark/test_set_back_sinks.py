"""A sink that was filled before the source was set back, under a subscription that begins before the sink's position."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from penstock.errors import SinkRefused, SourceSetBack
from penstock.lsn import LSN
from penstock.sinks.contract import Batch, Capabilities, Imported
from penstock.sinks.stdout import StdoutSettings, StdoutSink
from penstock.spark.delivery import SinkDelivery
from penstock.state.pipeline_state import CaptureState, PipelineState, SourceState


class FilledSink(StdoutSink):
    """It holds changes up to 0/C8 of a subscription that is gone."""

    capabilities = Capabilities(keeps_position=True)

    def prepare(self) -> LSN:
        return LSN(200)

    def imported(self) -> Imported:
        return Imported("shop_1 gone")

    def commit(self, batch: Batch, receipts: object) -> None:
        if batch.end <= 200:
            raise SinkRefused("It is not taken back.")


def where_to_begin(directory: Path, begin: int) -> LSN | None:
    state = PipelineState(str(directory))
    state.create()
    state.save(SourceState("shop", "7301", "shop_2", "new"))
    state.save(CaptureState(LSN(begin), LSN(begin), LSN(begin), 0.0))
    sink = FilledSink(StdoutSettings(name="out", type="stdout"))
    delivery = SinkDelivery(cast(SparkSession, None), sink, state, copies=True)
    return delivery._where_to_begin(delivery._prepare_sink())


def test_it_is_not_continued_where_it_would_skip_changes(tmp_path: Path) -> None:
    with pytest.raises(SourceSetBack, match="0/C8") as raised:
        where_to_begin(tmp_path, 199)
    assert "pg_switch_wal" in str(raised.value.advice)


def test_it_is_continued_where_it_skips_none(tmp_path: Path) -> None:
    assert where_to_begin(tmp_path, 200) == 200
    assert where_to_begin(tmp_path, 201) == 201
