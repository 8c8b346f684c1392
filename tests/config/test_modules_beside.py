"""A sink of the user's is found beside the config file, as functions of rules are."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from penstock.config.load import load_config
from penstock.config.module_path import VARIABLE, look_for_inherited_modules
from penstock.sinks.registry import sink_class

CONFIG = """
name: shop
source: {url: "postgresql://localhost/shop"}
sinks: [{name: own, type: "sink_beside_its_config:OwnSink"}]
"""


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delitem(sys.modules, "sink_beside_its_config", raising=False)
    (tmp_path / "sink_beside_its_config.py").write_text("from penstock import Sink\n\nclass OwnSink(Sink): pass\n")
    (tmp_path / "json.py").write_text("raise AssertionError('a file beside the config is not the library')")
    file = tmp_path / "shop.yaml"
    file.write_text(CONFIG)
    return file


def test_a_sinks_module_is_found_beside_the_config(beside: Path) -> None:
    assert load_config(beside, {}).sinks[0].type == "sink_beside_its_config:OwnSink"
    assert sink_class("sink_beside_its_config:OwnSink").__name__ == "OwnSink"


def test_other_processes_look_there_too_and_there_last(beside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_config(beside, {})
    assert os.environ[VARIABLE] == str(beside.parent)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(beside.parent)])
    look_for_inherited_modules()
    look_for_inherited_modules()
    assert sys.path.count(str(beside.parent)) == 1
    assert sys.path[-1] == str(beside.parent)
