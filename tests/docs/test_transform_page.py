"""docs/transforms.md says what the registry has."""

from __future__ import annotations

from penstock.rules.transforms import TRANSFORMS
from penstock.rules.transforms.dictionaries import FAKER
from tests.docs.pages import ROOT, blocks, headings
from tests.docs.transforms_table import PAGE, reference, shown


def test_the_page_is_up_to_date() -> None:
    assert shown() == reference(), "write it anew: python -m tests.docs.transforms_table"


def test_every_transform_has_its_heading() -> None:
    assert [heading for heading in headings(PAGE) if heading in TRANSFORMS] == list(TRANSFORMS)


def test_what_the_page_says_about_reading_encrypted_values_works() -> None:
    (block,) = blocks("python", PAGE)
    assert "assert" in block.text
    exec(compile(block.text, str(PAGE), "exec"), {})


def test_the_version_of_faker_that_is_refused_or_not_is_the_one_that_is_installed() -> None:
    assert f'"faker=={FAKER}"' in (ROOT / "pyproject.toml").read_text("utf-8")
