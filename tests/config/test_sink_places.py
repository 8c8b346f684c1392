"""Two sinks on one path would mix their rows and their positions."""

from __future__ import annotations

import pytest

from penstock.config.load import parse_config
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
