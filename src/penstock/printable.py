"""Text of others (names, values, messages of servers) made safe to print.

A table may be called ``orders\\n13:00:00 error: …`` or contain escape sequences of a terminal. Whoever prints such a name
without escaping lets the one who chose it forge lines of a log, hide or reverse text, or move the cursor.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """With control and format characters (line feeds, ANSI escapes, C1, bidi marks) as ``\\n``, ``\\x1b`` and so on."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
