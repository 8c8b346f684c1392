from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.settings.tables import TableSelection


@pytest.mark.parametrize(
    ("include", "exclude", "schema", "table", "selected"),
    [
        (["public.*"], [], "public", "orders", True),
        (["public.*"], [], "private", "orders", False),
        (["orders"], [], "public", "orders", True),
        (["orders"], [], "sales", "orders", False),
        (["*.orders"], [], "sales", "orders", True),
        (["*"], [], "sales", "orders", False),  # unqualified means public
        (["*.*"], ["*.audit_*"], "sales", "audit_2026", False),
        (["*.*"], ["*.audit_*"], "sales", "audited", True),
        (["public.*"], [], "public.old", "orders", False),
        (["public.drop table; --"], [], "public", "drop table; --", True),
        (["public.a[bc]?"], [], "public", "a[bc]?", True),
        (["public.a[bc]?"], [], "public", "abx", False),
        (["public.Orders"], [], "public", "orders", False),
        (["public.*"], [], "public", "two\nlines", True),
        ([], [], "public", "orders", False),
    ],
)
def test_patterns_select(include: list[str], exclude: list[str], schema: str, table: str, selected: bool) -> None:
    selection = TableSelection.model_validate({"include": include, "exclude": exclude})
    assert selection.selects(schema, table) is selected


@given(
    st.text(st.characters(exclude_characters="*."), min_size=1),
    st.text(st.characters(exclude_characters="*"), min_size=1),
)
def test_a_pattern_without_a_star_selects_its_table_and_no_other(schema: str, table: str) -> None:
    selection = TableSelection(include=(f"{schema}.{table}",))
    assert selection.selects(schema, table)
    assert not selection.selects(schema, f"{table}x")
    assert not selection.selects(f"x{schema}", table)
