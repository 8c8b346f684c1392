"""The pages that people read, and the blocks and tables in them.

A fenced block's first word is its language. ``yaml`` is a whole config, ``yaml fragment`` a part of one, ``sh`` has one
command per line, ``sql`` and ``python`` run as they stand, ``json`` has one event per line, ``text`` is output.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    info: str
    text: str

    def __str__(self) -> str:
        return f"{name(self.page)}:{self.line}"


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(info: str, page: Path | None = None) -> list[Block]:
    """The blocks with just these words behind their fence."""
    return [block for one in PAGES if page in (None, one) for block in _blocks(one) if block.info == info]


def all_blocks() -> list[Block]:
    return [block for page in PAGES for block in _blocks(page)]


def _blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(page, text.count("\n", 0, match.start()) + 1, match["info"], match["text"])
        for match in _BLOCK.finditer(text)
    ]


def prose(page: Path) -> str:
    """The page without its blocks."""
    return _BLOCK.sub("", page.read_text("utf-8"))


def headings(page: Path) -> list[str]:
    return [title for _, title in _HEADING.findall(prose(page))]


def anchors(page: Path) -> set[str]:
    """As GitHub makes them from headings."""
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings(page)}


def section(page: Path, title: str) -> str:
    """What is below a heading, up to the next one of whatever level."""
    parts = _HEADING.split(page.read_text("utf-8"))
    return next(text for found, text in zip(parts[2::3], parts[3::3], strict=True) if found == title)


def table_rows(text: str) -> list[list[str]]:
    """The cells of the tables in a text, without heads and rules."""
    rows: list[list[str]] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")] if line.startswith("|") else []
        if line.startswith("|--") and rows:
            rows.pop()  # what stood above the rule was the head
        elif cells:
            rows.append(cells)
    return rows
