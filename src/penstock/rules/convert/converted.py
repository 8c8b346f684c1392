"""What a converter gives: rules as the config file writes them, and notes on what has no equivalent.

Converted rules as YAML, with the notes as comments where they belong.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from pydantic import ValidationError

from penstock.errors import ConfigError
from penstock.rules.transforms import parse_transform
from penstock.settings.mistakes import show_path


@dataclass
class Rule:
    """One rule, and what is to be said of it."""

    keys: dict[str, Any]
    notes: list[str] = field(default_factory=list)

    @property
    def columns(self) -> dict[str, Any]:
        columns: dict[str, Any] = self.keys.setdefault("columns", {})
        return columns

    def transform(self, column: str, transform: dict[str, Any], origin: str) -> None:
        """Puts it in if it is a transform of ours; else the column is excluded."""
        try:
            parse_transform(transform)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = show_path(first["loc"])
            self.exclude(column, f"{origin}: {place}{': ' if place else ''}{first['msg']}")
        else:
            self.columns[column] = transform

    def exclude(self, column: str, why: str) -> None:
        self.columns[column] = {"exclude": True}
        self.notes.append(f"{column} is excluded, since its transform cannot be converted. {why}")


@dataclass
class Converted:
    rules: list[Rule] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # of the file as a whole

    @property
    def all_notes(self) -> list[str]:
        of_rules = [f"{', '.join(rule.keys['tables'])}: {note}" for rule in self.rules for note in rule.notes]
        return [*self.notes, *of_rules]


def mapping(value: Any, where: str) -> dict[str, Any]:
    """The value, if it is one; an absent one is empty."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: expected a mapping; write it as key: value")
    return {str(key): item for key, item in value.items()}


def sequence(value: Any, where: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ConfigError(f"{where}: expected a list")
    return value


def word(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{where}: expected text")
    return value


_WIDTH = 118


def as_yaml(converted: Converted) -> str:
    """A ``rules:`` section for a config file."""
    lines = [*(line for note in converted.notes for line in _comment(note, ""))]
    if not converted.rules:
        return "\n".join([*lines, "rules: []", ""])
    lines.append("rules:")
    for rule in converted.rules:
        lines += [line for note in rule.notes for line in _comment(note, "  ")]
        text = yaml.safe_dump(
            [_escaped(rule.keys)], sort_keys=False, allow_unicode=True, width=_WIDTH, default_flow_style=None
        )
        lines.append(textwrap.indent(text.rstrip("\n"), "  "))
    return "\n".join([*lines, ""])


def _comment(note: str, indent: str) -> Iterator[str]:
    for line in textwrap.wrap(" ".join(note.split()), _WIDTH - len(indent)):
        yield f"{indent}# {line}"


def _escaped(value: Any) -> Any:
    """The config file expands ${NAME}, and takes $$ for a dollar sign."""
    if isinstance(value, str):
        return value.replace("$$", "$$$$").replace("${", "$${")
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list | tuple) else value
