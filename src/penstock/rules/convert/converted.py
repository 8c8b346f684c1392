"""What a converter gives: rules as the config file writes them, and notes on what has no equivalent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from penstock.config.mistakes import show_path
from penstock.errors import ConfigError
from penstock.rules.transforms import parse_transform


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
