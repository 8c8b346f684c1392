"""pgstream's transformations: ``table_transformers`` with a transformer for each column, and validation modes."""

from __future__ import annotations

from typing import Any

from penstock.errors import ConfigError
from penstock.rules.convert.converted import Converted, Rule, mapping, sequence, word
from penstock.rules.convert.pgstream_transformers import TRANSFORMERS, Unconvertible


def converted(document: dict[str, Any]) -> Converted:
    """Of a rules file, or of a whole config that has them under ``modifiers``."""
    document = mapping(document.get("modifiers"), "modifiers") or document
    section = mapping(document.get("transformations"), "transformations") or document
    if "table_transformers" not in section:
        raise ConfigError("is not a rules file of pgstream: it has no transformations.table_transformers")
    found = Converted()
    mode = section.get("validation_mode", "relaxed")
    for index, entry in enumerate(sequence(section["table_transformers"], "table_transformers")):
        where = f"table_transformers[{index}]"
        found.rules += _rules(mapping(entry, where), mode, where)
    for key in section:
        if key not in ("validation_mode", "table_transformers"):
            found.notes.append(f"The key {key} has no equivalent.")
    return found


def _rules(entry: dict[str, Any], mode: Any, where: str) -> list[Rule]:
    """One rule; and another for the columns that may lose their uniqueness, which here is said of a whole rule."""
    name = f"{entry.get('schema') or 'public'}.{word(entry.get('table'), f'{where}.table')}"
    strict = (entry.get("validation_mode") if mode == "table_level" else mode) == "strict"
    rule = Rule({"tables": [name], **({"coverage": "strict"} if strict else {})})
    loose = Rule({"tables": [name], "allow_uniqueness_loss": True})
    for column, settings in mapping(entry.get("column_transformers"), f"{where}.column_transformers").items():
        transformer = mapping(settings, f"{where}.column_transformers.{column}")
        _column(loose if transformer.get("allow_uniqueness_loss") is True else rule, column, transformer)
    return [each for each in (rule, loose) if each is rule or each.keys.get("columns")]


def _column(rule: Rule, column: str, transformer: dict[str, Any]) -> None:
    name = transformer.get("name")
    if not name or name == "noop":
        rule.columns[column] = {"keep": True}
        return
    if name not in TRANSFORMERS:
        rule.exclude(column, f"pgstream's {name} has no equivalent.")
        return
    parameters = mapping(transformer.get("parameters"), str(name))
    dynamic = {
        parameter: mapping(source, str(name)).get("column")
        for parameter, source in mapping(transformer.get("dynamic_parameters"), str(name)).items()
    }
    try:
        transform, left = TRANSFORMERS[name].converted(parameters, dynamic)
    except Unconvertible as error:
        rule.exclude(column, f"pgstream's {name}: {error}")
        return
    rule.transform(column, transform, f"pgstream's {name}")
    if left and rule.columns[column] is transform:
        rule.notes.append(f"{column}: of {name}, these parameters are not carried over: {', '.join(left)}.")
