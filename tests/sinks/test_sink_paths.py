"""A relative path in a config means: beside the config file, wherever the command was called."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config.load import load_config
from penstock.sinks.duckdb.sink import DuckDBSettings
from penstock.sinks.file.sink import FileSettings
from penstock.sinks.settings import SinkSettings


def sink_of(directory: Path, kind: str, path: str) -> SinkSettings:
    file = directory / "penstock.yaml"
    file.write_text(f"""
name: shop
source: {{url: "postgresql://localhost/shop"}}
sinks: [{{name: out, type: {kind}, path: "{path}"}}]
""")
    return load_config(file, {}).sinks[0]


@pytest.mark.parametrize("kind", ["duckdb", "file"])
def test_a_relative_path_is_taken_from_the_config_files_directory(tmp_path: Path, kind: str) -> None:
    sink = sink_of(tmp_path, kind, "out/shop")
    assert isinstance(sink, DuckDBSettings | FileSettings)
    assert sink.path == tmp_path / "out/shop"


@pytest.mark.parametrize("kind", ["duckdb", "file"])
def test_an_absolute_path_stays_as_it_is(tmp_path: Path, kind: str) -> None:
    sink = sink_of(tmp_path, kind, "/srv/shop")
    assert isinstance(sink, DuckDBSettings | FileSettings)
    assert sink.path == Path("/srv/shop")
