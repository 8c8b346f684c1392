"""``--help`` of every command, as docs/commands.md shows it. ``python -m tests.docs.help_texts`` writes it there anew."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

from penstock.cli.main import app

COMMANDS = Path(__file__).resolve().parents[2] / "docs" / "commands.md"
WIDTH = 100
_BLOCK = re.compile(r"(<!-- help: (?P<name>.+?) -->\n```text\n).*?(\n```)", re.DOTALL)


def help_texts() -> dict[str, str]:
    """By the words of the command: ``penstock log show``."""
    command = get_command(app)
    return dict(_texts(command, typer.Context(command, info_name="penstock", **command.context_settings, **_SIZE)))


_SIZE: Any = {"terminal_width": WIDTH, "max_content_width": WIDTH}


def _texts(command: object, context: typer.Context) -> Iterator[tuple[str, str]]:
    yield _words(context), context.get_help().strip()
    for name, part in getattr(command, "commands", {}).items():
        yield from _texts(part, typer.Context(part, info_name=name, parent=context, **_SIZE))


def _words(context: typer.Context) -> str:
    names = []
    at: object = context
    while at is not None:
        names.append(str(getattr(at, "info_name", "")))
        at = getattr(at, "parent", None)
    return " ".join(reversed(names))


def shown_texts() -> dict[str, str]:
    """What the page has."""
    text = COMMANDS.read_text("utf-8")
    return {match["name"]: match[0][len(match[1]) : -len(match[3])] for match in _BLOCK.finditer(text)}


def write() -> None:
    known = help_texts()
    text = COMMANDS.read_text("utf-8")
    COMMANDS.write_text(_BLOCK.sub(lambda match: f"{match[1]}{known[match['name']]}{match[3]}", text), "utf-8")


if __name__ == "__main__":
    write()
