"""Rows before and after the rules, side by side."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli.plain import plain
from penstock.rules.preview import Preview, TextRow

MOST_CHARACTERS = 200  # of a value; with --json it is all there

_COLOURS = {"changed": "yellow", "dropped": "red", "new": "green", "held back": "red"}


def show_preview(preview: Preview, console: Console) -> None:
    source, target = preview.source.qualified_name, preview.target.qualified_name
    console.print(plain(source if source == target else f"{source} → {target}", "bold"))
    rows = preview.rows()
    if not rows:
        console.print("The table has no rows.")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("row", justify="right", no_wrap=True)
    for heading in ("column", "before", "after"):
        table.add_column(heading, overflow="fold")
    table.add_column("", no_wrap=True)
    for number, (before, after) in enumerate(rows, 1):
        _add_row(table, preview, str(number), before, after)
    console.print(table)
    held_back = sum(after is None for _, after in rows)
    if held_back:
        console.print(f"{held_back} of {len(rows)} rows would be held back by the filter.")


def _add_row(table: Table, preview: Preview, number: str, before: TextRow, after: TextRow | None) -> None:
    places = {origin: place for place, origin in enumerate(preview.origins) if origin is not None}
    for index, column in enumerate(preview.source.columns):
        place = places.get(index)
        kept = None if after is None or place is None else after[place]
        name, mark = column.name, ""
        if after is None:
            mark = "held back"
        elif place is None:
            mark = "dropped"
        else:
            target = preview.target.columns[place].name
            name = name if name == target else f"{name} → {target}"
            mark = "" if kept == before[index] else "changed"
        shown = Text("") if mark in ("held back", "dropped") else _value(kept, _COLOURS.get(mark, ""))
        first = index == 0
        said = _marked(mark if first or mark != "held back" else "")
        table.add_row(number if first else "", plain(name), _value(before[index]), shown, said)
    for place, origin in enumerate(preview.origins):
        if after is not None and origin is None:
            made = preview.target.columns[place].name
            table.add_row("", plain(made), "", _value(after[place], _COLOURS["new"]), _marked("new"))


def _marked(mark: str) -> Text:
    return Text(mark, _COLOURS.get(mark, ""))


def _value(value: str | None, colour: str = "") -> Text:
    """Line ends and what else would move the cursor are written out."""
    if value is None:
        return Text("NULL", "dim")
    cut = value if len(value) <= MOST_CHARACTERS else f"{value[:MOST_CHARACTERS]}…"
    return plain(cut, colour)
