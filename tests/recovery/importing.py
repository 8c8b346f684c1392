"""A pipeline with imports as a user runs it: in processes of its own, to be killed and started again."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from penstock.testing.conditions import wait_until
from tests.imports.pipeline_with_imports import PipelineWithImports
from tests.recovery.process_under_test import RunningPipeline

SMALL_CHUNKS = "workers: 2, chunk_bytes: 64KiB"


class ImportingPipeline(PipelineWithImports):
    """What its processes say goes to ``<verb>.log``. At the end of a ``with`` block, those that are left are killed.

    ``log``: more of the config's log section, after a comma; ``settings``: more of the sinks that have tables, likewise.
    """

    def __init__(
        self,
        url: str,
        directory: Path,
        log: str = "",
        mode: str = "copy_and_stream",
        target: str | None = None,
        settings: str = "",
    ) -> None:
        super().__init__(
            url, directory, SMALL_CHUNKS, f"linger: 300ms{log}", mode=mode, target=target, settings=settings
        )
        self._started: list[RunningPipeline] = []

    def __enter__(self) -> ImportingPipeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._started:
            if process.alive:
                process.kill_tree()

    def start(self, *arguments: str, verb: str = "run", failpoint: str = "") -> RunningPipeline:
        process = RunningPipeline(self.file, self._log(verb), *arguments, verb=verb, failpoint=failpoint)
        self._started.append(process)
        return process

    def dies_at(self, failpoint: str, *arguments: str) -> None:
        """``run`` until the failpoint has struck; the supervisor, which would start the child again, goes with it."""
        before = len(self.said())
        process = self.start(*arguments, failpoint=failpoint)

        def struck() -> bool:
            said = self.said()[before:]
            assert process.alive, said
            return "(code -9)" in said or "Spark gave up a chunk" in said

        wait_until(struck, timeout=300, what=f"the pipeline to die at {failpoint}")
        process.kill_tree()

    def said(self, verb: str = "run") -> str:
        path = self._log(verb)
        return path.read_text(errors="replace") if path.exists() else ""

    def _log(self, verb: str) -> Path:
        return self.directory / f"{verb}.log"

    def await_streaming(self, timeout: float = 300) -> None:
        super().await_streaming(timeout)

    def all_streaming(self) -> bool:
        """By what the copier says itself: a look at the source, fifty times a second, would slow down what it looks at."""
        tables = self._copying()
        return bool(tables) and all(table["state"] == "streaming" for table in tables)

    def rows_read(self) -> int:
        """By imports."""
        return sum(table["rows_copied"] for table in self._copying())

    def await_more_rows(self, count: int = 1) -> None:
        """So many are read from now on, and some are left: what happens now happens in the middle."""
        enough = self.rows_read() + count
        wait_until(lambda: self.rows_read() >= enough, timeout=300, what=f"{enough} rows to be read")
        assert not self.all_streaming()

    def _copying(self) -> list[dict[str, Any]]:
        return (self.state.parts.read_json("copying.json") or {"tables": []})["tables"]  # type: ignore[no-any-return]

    def leftovers(self) -> list[str]:
        """Files of imports that are complete, which nobody needs any more."""
        root = Path(self.state.root.path)
        found = [*root.glob("imports/*/*"), *root.glob("staging/*/import-*")]
        return [str(path.relative_to(root)) for path in found]
