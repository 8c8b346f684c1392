"""Pages hang together: links lead somewhere, and each block says what it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, all_blocks, anchors, blocks, name, prose

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
LANGUAGES = {"yaml", "yaml fragment", "sh", "sql", "python", "json", "text", "mermaid"}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for link in _LINK.findall(prose(page)):
        if link.startswith("https://"):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_there_are_links_to_check() -> None:
    assert sum(len(_LINK.findall(prose(page))) for page in PAGES) > 50


def test_every_page_is_reached_from_the_readme() -> None:
    reached, waiting = {ROOT / "README.md"}, [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        for link in _LINK.findall(prose(page)):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.exists() and target not in reached:
                reached.add(target)
                waiting.append(target)
    assert [name(page) for page in PAGES if page not in reached] == []


def test_every_block_names_a_language_that_is_tested() -> None:
    assert {str(block): block.info for block in all_blocks() if block.info not in LANGUAGES} == {}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_fence_is_closed(page: Path) -> None:
    """A fence that opens within a block is the next block's: the one before it was never closed."""
    assert "```" not in prose(page)
    assert [str(block) for block in all_blocks() if block.page == page and "```" in block.text] == []


def test_the_readme_begins_with_the_two_commands() -> None:
    first = (ROOT / "README.md").read_text("utf-8").split("\n\n")[1]
    assert [line.split("#")[0].strip() for line in first.splitlines()] == ["make demo", "make test"]


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_is_python(block: object) -> None:
    text = getattr(block, "text", "")
    compile(text, str(block), "exec")
    assert "import" in text
