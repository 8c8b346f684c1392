"""pgstream's transformations: ``table_transformers`` with a transformer for each column, and validation modes.

pgstream's transformers by name, each with the transform of ours that does the same, and what its parameters are called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import ConfigError
from penstock.rules.convert.converted import Converted, Rule, mapping, sequence, word

_TEMPLATE = re.compile(r"\{\{-?(.*?)-?\}\}", re.DOTALL)
_VALUE = re.compile(r"\s*\.GetValue\s*")
_DYNAMIC = re.compile(r"""\s*\.GetDynamicValue\s+["'`]([^"'`]+)["'`]\s*""")
_UNITS = {"microsecond", "millisecond", "second", "minute", "hour", "day"}


class Unconvertible(Exception):
    """A sentence: why."""


Change = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Transformer:
    """``names``: our parameter for each of theirs. ``generated``: has ``generator``, random unless it says otherwise; with
    ``seed`` or ``salt`` it is deterministic."""

    transform: str
    names: Mapping[str, str] = field(default_factory=dict)
    generated: bool = False
    always: Mapping[str, Any] = field(default_factory=dict)
    change: Change | None = None  # for what renaming does not do

    def converted(self, parameters: Mapping[str, Any], dynamic: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Our transform, and the parameters that it has no place for. Raises Unconvertible."""
        given = self.change(dict(parameters)) if self.change else dict(parameters)
        found: dict[str, Any] = {"transform": self.transform, **self.always}
        if self.generated:
            found["generator"] = self._generator(given)
        found |= {self.names[name]: value for name, value in given.items() if name in self.names}
        if dynamic:
            found["dynamic"] = {self.names.get(name, name): column for name, column in dynamic.items()}
        return found, [
            name for name in given if name not in self.names and not (self.generated and name == "generator")
        ]

    def _generator(self, given: Mapping[str, Any]) -> str:
        if "generator" in given:
            return str(given["generator"])
        return "deterministic" if any(self.names.get(name) == "salt" for name in given) else "random"


def _masking(given: dict[str, Any]) -> dict[str, Any]:
    kind = given.get("type", "default")
    return {**given, "type": "phone" if kind in ("mobile", "tel") else kind}


def _integer(given: dict[str, Any]) -> dict[str, Any]:
    size = given.pop("size", 4)
    limit = 1 << (15 if str(size) == "2" else 31)
    return {"min_value": -limit, "max_value": limit - 1, **given}


def _gender(given: dict[str, Any]) -> dict[str, Any]:
    return {**given, **({"gender": str(given["gender"]).lower()} if "gender" in given else {})}


def _timestamp(given: dict[str, Any]) -> dict[str, Any]:
    part = str(given.get("truncate_part", "microsecond")).lower()
    part = "microsecond" if part == "nanosecond" else part
    if part not in _UNITS:
        raise Unconvertible(f"timestamps cannot be truncated to the {part}.")
    return {**given, "truncate_part": part}


def _excluded_domain(given: dict[str, Any]) -> dict[str, Any]:
    domain = given.get("exclude_domain")
    return {**given, **({"exclude_domain": [domain]} if isinstance(domain, str) else {})}


def _seed(given: dict[str, Any]) -> dict[str, Any]:
    return {**given, **({"seed": str(given["seed"])} if "seed" in given else {})}


def _template(given: dict[str, Any]) -> dict[str, Any]:
    """Go's templates, as far as they put values into text."""
    text = str(given.get("template", ""))
    parts, end = [], 0
    for match in _TEMPLATE.finditer(text):
        parts.append(_braces(text[end : match.start()]))
        parts.append(_variable(match[1]))
        end = match.end()
    return {**given, "template": "".join([*parts, _braces(text[end:])])}


def _braces(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _variable(expression: str) -> str:
    if _VALUE.fullmatch(expression):
        return "{value}"
    match = _DYNAMIC.fullmatch(expression)
    if match is None:
        raise Unconvertible("only .GetValue and .GetDynamicValue are known in templates.")
    return f"{{{match[1]}}}"


def _edits(given: dict[str, Any]) -> dict[str, Any]:
    operations = given.get("operations")
    if not isinstance(operations, list) or not all(isinstance(each, dict) for each in operations):
        raise Unconvertible("it has no list of operations.")
    return {**given, "operations": [_edit(each) for each in operations]}


def _edit(operation: dict[str, Any]) -> dict[str, Any]:
    if "value_template" in operation:
        raise Unconvertible("value_template is not known.")
    if operation.get("error_not_exist"):
        raise Unconvertible("error_not_exist is not known.")
    found: dict[str, Any] = {key: operation[key] for key in ("operation", "path", "key") if key in operation}
    if operation.get("operation") == "set":
        found |= {"value": operation.get("value"), **({"missing": "skip"} if operation.get("skip_not_exist") else {})}
    return found


def _none(given: dict[str, Any]) -> dict[str, Any]:
    raise Unconvertible("it runs SQL for each value.")


_RANGE = {"min_value": "min", "max_value": "max"}
_LENGTHS = {"min_length": "min_length", "max_length": "max_length"}
_NEOSYNC = {"preserve_length": "preserve_length", "max_length": "max_length", "seed": "salt"}

TRANSFORMERS: dict[str, Transformer] = {
    "email": Transformer(
        "email", {"replacement_domain": "domain", "exclude_domain": "keep_domains", "salt": "salt"},
        always={"generator": "deterministic"}, change=_excluded_domain,
    ),
    "encrypted_aes_siv": Transformer("encrypt", {"key_hex": "key_hex", "associated_data": "associated_data"}),
    "greenmask_boolean": Transformer("boolean", generated=True),
    "greenmask_choice": Transformer("choice", {"choices": "choices"}, generated=True),
    "greenmask_date": Transformer("date", _RANGE, generated=True),
    "greenmask_firstname": Transformer("first_name", {"gender": "gender"}, generated=True, change=_gender),
    "greenmask_float": Transformer("float", {**_RANGE, "precision": "precision"}, generated=True),
    "greenmask_integer": Transformer("integer", _RANGE, generated=True, change=_integer),
    "greenmask_string": Transformer("string", {**_LENGTHS, "symbols": "symbols"}, generated=True),
    "greenmask_unix_timestamp": Transformer("unix_timestamp", _RANGE, generated=True),
    "greenmask_utc_timestamp": Transformer(
        "timestamp", {"min_timestamp": "min", "max_timestamp": "max", "truncate_part": "unit"}, generated=True,
        change=_timestamp,
    ),
    "greenmask_uuid": Transformer("uuid", generated=True),
    "hstore": Transformer("hstore", {"operations": "operations"}, change=_edits),
    "json": Transformer("json", {"operations": "operations"}, change=_edits),
    "literal_string": Transformer("literal", {"literal": "value"}),
    "masking": Transformer(
        "mask",
        {"type": "kind", **{name: name for name in ("mask_begin", "mask_end", "unmask_begin", "unmask_end")}},
        change=_masking,
    ),
    "neosync_email": Transformer(
        "email", {**_NEOSYNC, "preserve_domain": "preserve_domain", "excluded_domains": "keep_domains"}, generated=True,
        change=_seed,
    ),
    "neosync_firstname": Transformer("first_name", _NEOSYNC, generated=True, change=_seed),
    "neosync_fullname": Transformer("full_name", _NEOSYNC, generated=True, change=_seed),
    "neosync_lastname": Transformer("last_name", _NEOSYNC, generated=True, change=_seed),
    "neosync_string": Transformer("string", {**_NEOSYNC, "min_length": "min_length"}, generated=True, change=_seed),
    "pg_anonymizer": Transformer("null", change=_none),
    "phone_number": Transformer("phone", {"prefix": "prefix", **_LENGTHS}, generated=True),
    "string": Transformer("string", generated=True, always={"preserve_length": True}),
    "template": Transformer("template", {"template": "template"}, change=_template),
}  # fmt: skip


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
