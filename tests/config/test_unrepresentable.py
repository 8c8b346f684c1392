from __future__ import annotations

import pytest

from penstock.config.load import parse_config
from penstock.errors import ConfigError
from penstock.sinks.settings import UnrepresentableSettings

HEAD = "name: shop\nsource: {url: 'postgresql://ada@db/shop'}\nsinks:\n"


def policies(text: str) -> UnrepresentableSettings:
    sink = f"  - {{name: lake, type: duckdb, path: x, unrepresentable: {text}}}\n"
    return parse_config(HEAD + sink).sinks[0].unrepresentable


@pytest.mark.parametrize(("text", "word"), [("text", "text"), ("null", "null"), ('"null"', "null"), ("error", "error")])
def test_one_word_is_for_all_columns(text: str, word: str) -> None:
    assert policies(text).of("public.orders", "id") == word


def test_tables_and_columns_have_words_of_their_own() -> None:
    found = policies("{default: null, tables: {orders: text, sales.days: {closed_on: text, due_on: error}}}")
    assert found.of("public.orders", "any") == "text"
    assert found.of("sales.days", "closed_on") == "text"
    assert found.of("sales.days", "due_on") == "error"
    assert found.of("sales.days", "other") == found.of("sales.orders", "any") == "null"


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ("txt", "unrepresentable.default", 'unknown word "txt"; did you mean "text"?'),
        ("{table: {orders: text}}", "unrepresentable.table", 'unknown key "table"; did you mean "tables"?'),
        ("{tables: {orders: nul}}", "unrepresentable.tables.orders", 'unknown word "nul"; did you mean "null"?'),
        (
            "{tables: {orders: {d: eror}}}",
            "unrepresentable.tables.orders",
            'unknown word "eror"; did you mean "error"?',
        ),
        ("[text]", "unrepresentable", "expected error, null or text, or a mapping; write it like"),
    ],
)
def test_a_mistake_is_named_with_its_path_and_the_nearest_word(text: str, path: str, said: str) -> None:
    with pytest.raises(ConfigError) as mistaken:
        policies(text)
    assert f"sinks[0].{path}: {said}" in str(mistaken.value)
