"""What the source, a sink or a state file says, as a cell or a line of ours: without markup, escapes or line feeds."""

from __future__ import annotations

from rich.text import Text

from penstock.printable import printable


def plain(text: str, style: str = "") -> Text:
    return Text(printable(text), style)
