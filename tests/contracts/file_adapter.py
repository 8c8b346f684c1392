"""The file sink for the contract suite: its state is what its files say, in the order of their names."""

from __future__ import annotations

from typing import Any, ClassVar

from penstock.sinks.contract import Sink
from penstock.sinks.file.sink import FileSettings, FileSink
from tests.contracts.event_sink_under_test import EventSinkUnderTest


class FileUnderTest(EventSinkUnderTest):
    name: ClassVar[str] = "file"
    keeps_progress: ClassVar[bool] = True

    def new_sink(self) -> Sink[Any, Any]:
        return FileSink(FileSettings(name="out", format=self.format, path=self.directory / "events"))

    def lines(self) -> list[bytes]:
        files = sorted((self.directory / "events").glob("*.jsonl"))
        return [line for file in files for line in file.read_bytes().split(b"\n")[:-1]]
