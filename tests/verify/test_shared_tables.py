"""A table that the sink shares with somebody else (``existing_rows: keep``): only the source's rows are compared."""

from __future__ import annotations

from tests.verify.duckdb_mirror import Mirror


def test_a_row_that_the_target_alone_has_is_no_difference_and_all_others_are(mirror: Mirror) -> None:
    mirror.source(
        "create table public.t (id int primary key, v text)", "insert into public.t values (1, 'a'), (2, 'b'), (3, 'c')"
    )
    mirror.fill("t")
    mirror.lake("insert into public.t values (9, 'theirs')")
    assert mirror.compare("t").state == "differs"
    report = mirror.compare("t", shared=True)
    assert report.state == "equal"
    assert "existing_rows is keep" in (report.because or "")
    mirror.lake("update public.t set v = '' where id = 1")
    mirror.lake("delete from public.t where id = 2")
    found = {difference.kind for difference in mirror.compare("t", shared=True).differences}
    assert found == {"differs", "missing"}
