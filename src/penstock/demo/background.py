"""A pipeline that runs beside what the demo does in the foreground."""

from __future__ import annotations

import threading

from penstock.errors import PenstockError
from penstock.pipeline import Pipeline


class BackgroundPipeline:
    """Runs from ``start`` to ``stop``. What it fails of is raised in the foreground, at the next ``wait``."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="pipeline", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Lets time pass, but not if the pipeline is over."""
        if self._ended.wait(max(seconds, 0)):
            raise self._error or PenstockError("The pipeline ended before the demo did.")

    def stop(self) -> None:
        """Returns when both child processes have ended."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._pipeline.run(stop=self._stop)
        except BaseException as error:  # noqa: BLE001  raised in the foreground
            self._error = error
        finally:
            self._ended.set()
