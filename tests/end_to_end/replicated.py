"""Whole pipelines in this process into Postgres targets, on the shared Spark session."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import yaml
from pyspark.sql import SparkSession

from penstock.config.load import load_config
from penstock.pipeline import Pipeline
from penstock.postgres.connection import OUTPUT_SETTINGS
from tests.end_to_end.mirrored import Mirrored
from tests.imports.pipeline_with_imports import PipelineWithImports

Targets = Mapping[str, Mapping[str, Any]]  # by the sink's name: its url, and other keys


def _pipeline(directory: Path, source: Mapping[str, Any], targets: Targets) -> Pipeline:
    directory.mkdir(exist_ok=True)
    file = directory / "penstock.yaml"
    sinks = [{"name": name, "type": "postgres", **settings} for name, settings in targets.items()]
    tables = {"include": ["*.*"]}
    config = {"name": "replicated", "state_dir": "state", "source": {"tables": tables, **source}, "sinks": sinks}
    file.write_text(yaml.safe_dump(config))
    return Pipeline(load_config(file))


class Replicated(PipelineWithImports):
    """Copies and streams, while ``running()``. ``source``: more keys of that section."""

    def __init__(self, url: str, directory: Path, targets: Targets, **source: Any) -> None:
        self.url, self.directory, self.target = url, directory, None
        self.pipeline = _pipeline(
            directory, {"url": url, "mode": "copy_and_stream", "copy": {"workers": 2}, **source}, targets
        )
        self.file, self.state = directory / "penstock.yaml", self.pipeline.state


class Streamed(Mirrored):
    """Only streams, whenever it is told to ``sync()``."""

    def __init__(self, spark: SparkSession, url: str, directory: Path, targets: Targets) -> None:
        super().__init__(spark, url, directory)
        self._pipeline = _pipeline(directory, {"url": url, "mode": "stream"}, targets)

    @property
    def pipeline(self) -> Pipeline:
        return self._pipeline


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    """With the settings that make text the same everywhere."""
    options = " ".join(f"-c {name}={value.replace(' ', '')}" for name, value in OUTPUT_SETTINGS.items())
    with psycopg.connect(url, options=options) as connection:
        return connection.execute(query.encode()).fetchall()


def execute(url: str, *statements: str) -> None:
    """Each in a transaction of its own; several in one are separated by semicolons."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())
