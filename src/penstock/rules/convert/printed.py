"""Converted rules as YAML, with the notes as comments where they belong."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import yaml

from penstock.rules.convert.converted import Converted

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
