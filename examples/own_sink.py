"""A sink of one's own: counts the changes of each table in a JSON file, exactly once.

In a config: ``{name: tally, type: "own_sink:TallySink", path: tally.json}``, with this file's directory on PYTHONPATH.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import penstock
from penstock.changes.batch import ChangeBatch
from penstock.sinks.settings import SinkSettings


class TallySettings(SinkSettings):
    path: Path


class TallySink(penstock.Sink[TallySettings, Counter[str]]):
    Settings = TallySettings
    capabilities = penstock.Capabilities(guarantee="exactly-once", keeps_position=True)

    def prepare(self) -> penstock.LSN | None:
        lsn = self._read()["lsn"]
        return penstock.LSN.parse(lsn) if lsn else None

    def write(self, batch: penstock.Batch, changes: Iterator[ChangeBatch]) -> Counter[str]:
        return sum((Counter({c.relation.qualified_name: len(c)}) for c in changes), Counter())

    def commit(self, batch: penstock.Batch, receipts: Sequence[Counter[str]]) -> None:
        if batch.part is not None:
            return  # of an import: rows that were there before, and changes while they were copied
        tally = self._read()
        if tally["lsn"] is None or penstock.LSN.parse(tally["lsn"]) < batch.end:
            counts = sum(receipts, Counter(tally["changes"]))
            draft = self.settings.path.with_suffix(".draft")
            draft.write_text(json.dumps({"lsn": str(batch.end), "changes": counts}))
            os.replace(draft, self.settings.path)  # counts and position change together or not at all

    def _read(self) -> dict[str, Any]:
        path = self.settings.path
        return json.loads(path.read_text()) if path.exists() else {"lsn": None, "changes": {}}
