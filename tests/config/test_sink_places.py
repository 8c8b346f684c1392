"""Two sinks on one path would mix their rows and their positions, or destroy each other's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config.load import load_config, parse_config
from penstock.config.model import Config
from penstock.errors import ConfigError

HEAD = "name: shop\nsource: {url: 'postgresql://ada@db/shop'}\nsinks:\n"


@pytest.mark.parametrize("kind", ["duckdb", "file"])
def test_two_sinks_on_one_path_are_a_mistake(kind: str) -> None:
    text = f"{HEAD}  - {{name: a, type: {kind}, path: x/y}}\n  - {{name: b, type: {kind}, path: x/./y}}\n"
    with pytest.raises(ConfigError, match=r'sinks\[1\]\.path: sink "a" has the same path; give each sink its own'):
        parse_config(text)


def test_sinks_with_paths_of_their_own_are_fine() -> None:
    text = f"{HEAD}  - {{name: a, type: duckdb, path: x}}\n  - {{name: b, type: file, path: y}}\n"
    assert len(parse_config(text).sinks) == 2


@pytest.mark.parametrize(
    ("sinks", "said"),
    [
        (
            ["{name: a, type: duckdb, path: a, snapshot: {path: b}}", "{name: b, type: duckdb, path: x/../b}"],
            r'sinks\[1\]\.path: sink "a" has the same path as snapshot\.path; give each sink its own',
        ),
        (
            ["{name: a, type: duckdb, path: a}", "{name: b, type: duckdb, path: b, snapshot: {path: ./a}}"],
            r'sinks\[1\]\.snapshot\.path: sink "a" has the same path; give each sink its own',
        ),
        (
            [
                "{name: a, type: duckdb, path: a, snapshot: {path: c}}",
                "{name: b, type: duckdb, path: b, snapshot: {path: c}}",
            ],
            r'sinks\[1\]\.snapshot\.path: sink "a" has the same path as snapshot\.path; give each sink its own',
        ),
    ],
)
def test_a_copy_has_a_path_of_its_own_as_well(sinks: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_config(HEAD + "".join(f"  - {sink}\n" for sink in sinks))


def load(directory: Path, *sinks: str) -> Config:
    file = directory / "penstock.yaml"
    file.write_text(HEAD + "".join(f"  - {sink}\n" for sink in sinks))
    return load_config(file)


def test_one_file_under_two_names_is_one_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(ConfigError, match=r'sinks\[1\]\.path: sink "a" has the same path'):
        load(tmp_path, "{name: a, type: duckdb, path: real/x}", "{name: b, type: duckdb, path: link/x}")
    with pytest.raises(ConfigError, match=r"sinks\[0\]: snapshot\.path is the sink's own path"):
        load(tmp_path, "{name: a, type: duckdb, path: real/x, snapshot: {path: link/x}}")
    (tmp_path / "one").touch()
    (tmp_path / "two").hardlink_to(tmp_path / "one")
    with pytest.raises(ConfigError, match=r'sinks\[1\]\.path: sink "a" has the same path'):
        load(tmp_path, "{name: a, type: duckdb, path: one}", "{name: b, type: duckdb, path: two}")


@pytest.mark.parametrize("path", [".penstock", ".penstock/log", "link/x", "out/../.penstock/parts/x"])
def test_state_dir_is_nobodys_path(tmp_path: Path, path: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / ".penstock")
    with pytest.raises(ConfigError, match=r"sinks\[0\]\.path: is in state_dir, which belongs to Penstock"):
        load(tmp_path, f"{{name: a, type: file, path: {path}}}")
    with pytest.raises(ConfigError, match=r"sinks\[0\]\.snapshot\.path: is in state_dir"):
        load(tmp_path, f"{{name: a, type: duckdb, path: lake, snapshot: {{path: {path}}}}}")


def test_a_path_that_only_begins_like_state_dir_is_fine(tmp_path: Path) -> None:
    assert len(load(tmp_path, "{name: a, type: file, path: .penstock-events}").sinks) == 1
