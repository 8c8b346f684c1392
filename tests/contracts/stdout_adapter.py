"""The stdout sink for the contract suite: its state is what it printed."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any, ClassVar

from penstock.sinks.contract import Sink
from penstock.sinks.stdout import StdoutSettings, StdoutSink
from tests.contracts.event_sink_under_test import EventSinkUnderTest


class StdoutUnderTest(EventSinkUnderTest):
    """Standard output goes to memory while the sink is in use."""

    name: ClassVar[str] = "stdout"
    keeps_progress: ClassVar[bool] = False

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._original = sys.stdout
        self._printed = io.BytesIO()

    def new_sink(self) -> Sink[Any, Any]:
        sys.stdout = io.TextIOWrapper(self._printed, write_through=True)
        return StdoutSink(StdoutSettings(name="out", format=self.format))

    def lines(self) -> list[bytes]:
        return self._printed.getvalue().split(b"\n")[:-1]

    def close(self) -> None:
        super().close()
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.buffer is self._printed:
            sys.stdout.detach()  # so that the memory outlives it
        sys.stdout = self._original
