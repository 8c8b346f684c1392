"""A verb of the pipeline under test that dies at a failpoint."""

from __future__ import annotations

import signal

from penstock.testing.conditions import wait_until
from tests.recovery.pipeline_under_test import PipelineUnderTest
from tests.recovery.process_under_test import RunningPipeline


def dies(pipeline: PipelineUnderTest, verb: str, failpoint: str, *arguments: str) -> None:
    """Until the failpoint has struck; a supervisor, which would start the child again and again, goes with it."""
    output = pipeline.directory / "process.log"
    said_before = output.stat().st_size if output.exists() else 0
    process = RunningPipeline(pipeline.file, output, *arguments, verb=verb, failpoint=failpoint)
    try:
        wait_until(
            lambda: not process.alive or b"(code -9)" in output.read_bytes()[said_before:],
            what=f"{verb} to die at {failpoint}",
        )
    finally:
        process.kill_tree()
    assert process.wait() == -signal.SIGKILL, output.read_text()
