"""The source's rows as text: chunk by chunk, or by key. What rules make of them: ``ruled_rows.py``."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing

import pyarrow as pa

from penstock.imports.layout import TableLayout
from penstock.imports.plan import Chunk
from penstock.imports.read_chunk import ChunkReader
from penstock.lsn import ZERO
from penstock.postgres.connection import connect, translated_errors
from penstock.verify.keyed_rows import SETTINGS, VERSION, source_rows_query, streamed, text_columns
from penstock.verify.target import Columns, Key


class PlainRows:
    """As the source has them."""

    def __init__(self, url: str, layout: TableLayout, publications: Sequence[str]) -> None:
        self._url, self._layout, self._publications = url, layout, publications
        self.relation = layout.relation

    def chunk(self, chunk: Chunk) -> Generator[Columns, None, None]:
        reader = ChunkReader(self._url, self._layout, chunk, ZERO, self._publications)
        with closing(reader.batches()) as batches:
            for batch in batches:
                yield batch.new

    def with_keys(self, keys: Sequence[Key]) -> Generator[tuple[Columns, pa.Array], None, None]:
        return versioned_rows(self._url, self._layout, keys)


def versioned_rows(
    url: str, layout: TableLayout, keys: Sequence[Key] | None
) -> Generator[tuple[list[pa.Array], pa.Array], None, None]:
    """The table's rows with these keys, or all if None, in one statement; and the version of each."""
    doing = f"Reading table {layout.relation.qualified_name}"
    with closing(connect(url, application_name="penstock verify")) as connection:
        with translated_errors(doing):
            connection.execute(SETTINGS)
        columns = [*text_columns(layout.relation), VERSION]
        with closing(streamed(connection, source_rows_query(layout, keys), columns, doing)) as pieces:
            for piece in pieces:
                *values, versions = (column.combine_chunks() for column in piece.columns)
                yield values, versions
