"""pgstream's transformers by name, each with the transform of ours that does the same, and what its parameters are called."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

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
