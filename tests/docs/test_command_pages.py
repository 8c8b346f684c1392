"""What the pages tell people to type can be typed, and what they say is printed is what is printed."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from typing import Any

import pytest
import typer
from typer.main import get_command

from penstock.cli.main import app
from penstock.sinks.events.formats.json import JsonFormat
from penstock.sinks.events.formats.pgsink import PgsinkFormat
from tests.docs.event_examples import event_lines
from tests.docs.help_texts import COMMANDS, help_texts, shown_texts
from tests.docs.pages import PAGES, ROOT, Block, blocks, headings, prose

SHELL = [(block, line) for block in blocks("sh") for line in block.text.splitlines() if line.strip()]
IN_PROSE = sorted(
    {code for page in PAGES for code in re.findall(r"`(penstock [a-z][^`…|]*)`", prose(page)) if " FILE" not in code}
)
USAGE_ERROR = typer.BadParameter.__mro__[1]  # typer has no name of its own for it


def parse(words: Sequence[str]) -> list[str]:
    """Parses a command line as the real command does, without running it; the names of the commands in it."""
    command: Any = get_command(app)
    context = command.make_context("penstock", list(words))
    names = []
    while hasattr(command, "commands"):
        rest = [*getattr(context, "_protected_args", []), *context.args]
        found, command, rest = command.resolve_command(context, rest)
        names.append(str(found))
        context = command.make_context(found, rest, parent=context)
    return names


def test_a_wrong_command_line_is_noticed() -> None:
    assert parse(["run", "shop.yaml", "--once"]) == ["run"]
    for wrong in (["runn", "shop.yaml"], ["run"], ["run", "shop.yaml", "--twice"], ["log", "shop.yaml", "shwo"]):
        with pytest.raises(USAGE_ERROR):
            parse(wrong)


@pytest.mark.parametrize(("block", "line"), SHELL, ids=lambda part: str(part))
def test_every_command_line_can_be_typed(block: Block, line: str) -> None:
    program, *words = shlex.split(line, comments=True)
    if program == "penstock":
        assert parse(words)
    else:
        assert program == "export"
        assert all("=" in word for word in words)


@pytest.mark.parametrize("code", IN_PROSE)
def test_commands_in_the_text_exist(code: str) -> None:
    command: Any = get_command(app)
    _, verb, *words = code.split()
    assert verb in command.commands
    if words:
        options = [word for word in words if word.startswith("--")]
        known = {option for parameter in command.commands[verb].params for option in parameter.opts}
        assert set(options) <= known | {"--debug", "--log-format"}


def test_commands_are_told_of_and_tested() -> None:
    told = {parse(shlex.split(line)[1:])[0] for _, line in SHELL if line.startswith("penstock ")}
    command: Any = get_command(app)
    assert told == set(command.commands)


def test_the_help_on_the_page_is_the_help() -> None:
    """``python -m tests.docs.help_texts`` brings the page up to date."""
    assert shown_texts() == help_texts()


def test_every_command_has_a_heading() -> None:
    assert set(help_texts()) <= set(headings(COMMANDS))


def test_make_targets_in_the_text_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    used = {
        word
        for page in PAGES
        for word in re.findall(r"(?:^    |`)make ([a-z]+)", page.read_text("utf-8"), re.MULTILINE)
    }
    assert {"demo", "test"} <= used <= targets


def test_the_events_on_the_page_are_what_the_formats_write() -> None:
    ours, pgsinks = (block.text.splitlines() for block in blocks("json", ROOT / "docs" / "events.md"))
    assert ours == event_lines(JsonFormat())
    assert pgsinks == event_lines(PgsinkFormat())


def test_every_member_of_an_event_is_explained() -> None:
    members = {member for line in event_lines(JsonFormat()) for member in json.loads(line)}
    text = (ROOT / "docs" / "events.md").read_text("utf-8")
    explained = {
        name for row in re.findall(r"^\| (`.+?) \|", text, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    assert explained == members
