"""What code of rules that runs in Spark makes of a few rows, for ``penstock rules FILE preview``.

By the same steps as a chunk of an import, with a sink that keeps what it is given, on a session of this machine.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.changes import ChangeBatch, Relation, concat
from penstock.config.model import SparkSettings
from penstock.config.sink import SinkSettings
from penstock.lsn import ZERO
from penstock.rules.passage import Passage
from penstock.sinks.contract import Batch, Sink
from penstock.spark.frame_parts import StagedRows
from penstock.spark.frames import Frames
from penstock.spark.session import close_session, open_session


class _Keeping(Sink[Any]):
    def write(self, batch: Batch, changes: Iterator[ChangeBatch]) -> list[ChangeBatch]:
        return list(changes)


class FramePreview:
    """``rules.preview`` calls it for tables with such code; it starts Spark then."""

    def __init__(self, settings: SparkSettings) -> None:
        self._settings = settings.model_copy(update={"master": "local[1]"})

    def __call__(self, rules: Passage, relation: Relation, rows: ChangeBatch | None) -> ChangeBatch | None:
        """What goes on of the rows. From then on the rules know what columns the code makes."""
        session = open_session(self._settings)
        try:
            frames = Frames(session, _Keeping(SinkSettings(name="preview", type="preview")), rules)
            rules.frame(relation)
            if rows is None:
                return None
            with tempfile.TemporaryDirectory(prefix="penstock-preview-") as directory:
                staged = StagedRows(str(Path(directory, "rows")))
                staged.store(rules, iter([rows]))
                batch = Batch(-1, ZERO, ZERO, directory)
                made: list[ChangeBatch] = frames.write([(relation, staged)], batch).outcome
            return concat(made) if made else None
        finally:
            close_session(session)
