from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.config.load import parse_config
from penstock.errors import ConfigError
from penstock.sinks.registry import SINKS, sink_class
from tests.config.shelf import ShelfSettings, ShelfSink


def refusal(kind: str) -> str:
    with pytest.raises(ConfigError) as refused:
        sink_class(kind)
    return refused.value.message


def test_a_known_type_is_loaded_on_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SINKS, "shelf", "tests.config.shelf:ShelfSink")
    assert sink_class("shelf") is ShelfSink


def test_a_sink_of_the_users_own_is_named_by_module_and_class() -> None:
    assert sink_class("tests.config.shelf:ShelfSink") is ShelfSink
    assert sink_class("tests.config.shelf:ShelfSink").Settings is ShelfSettings


@pytest.mark.process
def test_importing_the_registry_loads_no_sink() -> None:
    script = """
import sys
import penstock.sinks.registry as registry
print([target for target in registry.SINKS.values() if target.partition(":")[0] in sys.modules])
"""
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("DuckDB2", 'unknown sink type "DuckDB2"; did you mean "duckdb"?'),
        ("flie", 'unknown sink type "flie"; did you mean "file"?'),
        ("pigeon", 'unknown sink type "pigeon"; known: duckdb, file, postgres, stdout, or your own as package.module:Class'),
        ("", "unknown sink type; known: duckdb, file, postgres, stdout, or your own as package.module:Class"),
        ("http://x:y", "unknown sink type; known: duckdb, file, postgres, stdout, or your own as package.module:Class"),
        ("tests.config.shelf:Shelf", 'module "tests.config.shelf" has no "Shelf"; name a class in it'),
        ("tests.config.shelf:NotASink", '"tests.config.shelf:NotASink" is not a sink; derive it from penstock.Sink'),
        ("tests.config.shelf:ShelfSettings", '"tests.config.shelf:ShelfSettings" is not a sink; derive it from '
         "penstock.Sink"),
        ("no_such_package:S",
         'cannot import "no_such_package" for sink type "no_such_package:S"; put the module beside the config file, or '
         "install it"),
    ],
)  # fmt: skip
def test_a_type_that_is_no_sink_is_refused_with_a_remedy(kind: str, message: str) -> None:
    assert refusal(kind) == message


def test_a_missing_client_library_gives_the_pip_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "penstock_test_pigeon.py").write_text("import no_such_pigeon_client\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(SINKS, "pigeon", "penstock_test_pigeon:PigeonSink")
    assert refusal("pigeon") == 'sink type "pigeon" needs "no_such_pigeon_client"; pip install "penstock[pigeon]"'
    assert "penstock_test_pigeon" not in sys.modules


def test_a_misspelt_type_is_named() -> None:
    text = "name: shop\nsource: {url: 'postgresql://ada@db/shop'}\nsinks: [{name: lake, typ: duckdb, path: x}]"
    with pytest.raises(ConfigError) as refused:
        parse_config(text)
    assert refused.value.sentences == (
        "sinks[0].type: is missing; add it", 'sinks[0].typ: unknown key "typ"; did you mean "type"?'
    )  # fmt: skip
