"""The settings that every sink takes. A sink's own settings class adds its fields.

``unrepresentable``: what becomes of values that a sink's column type cannot hold. One word for all columns, or by table.

::

    unrepresentable: text
    unrepresentable: {default: error, tables: {public.orders: text, public.days: {closed_on: "null"}}}

Tables and columns have the names under which they arrive in the sink; ``orders`` is ``public.orders``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_serializer, model_validator

from penstock.settings.base import Settings
from penstock.settings.mistakes import mistake, nearest, quoted
from penstock.settings.units import Duration, Size

Word = Literal["error", "null", "text"]
_WORDS = ("error", "null", "text")


def _word(value: Any) -> Any:
    """YAML reads a bare ``null`` as nothing at all."""
    word = "null" if value is None else value
    if word not in _WORDS:
        raise mistake(f"unknown word{quoted(word)}; {nearest(word, _WORDS)}")
    return word


def _table(value: Any) -> Any:
    return {str(column): _word(word) for column, word in value.items()} if isinstance(value, dict) else _word(value)


class UnrepresentableSettings(Settings):
    default: Annotated[Word, BeforeValidator(_word)] = "error"
    tables: dict[str, Annotated[Word | dict[str, Word], BeforeValidator(_table)]] = Field(
        default_factory=dict, description="By table: a word for all its columns, or a word for each of some."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, value: Any) -> Any:
        if value is None or isinstance(value, str):
            return {"default": value}
        if not isinstance(value, dict | UnrepresentableSettings):
            raise mistake("expected error, null or text, or a mapping; write it like {tables: {public.orders: text}}")
        return value

    @model_validator(mode="after")
    def _with_schemas(self) -> Self:
        tables = {name if "." in name else f"public.{name}": words for name, words in self.tables.items()}
        object.__setattr__(self, "tables", tables)
        return self

    @model_serializer
    def _as_written(self) -> Any:
        return {"default": self.default, "tables": self.tables} if self.tables else self.default

    def of(self, table: str, column: str) -> Word:
        """``table``: with its schema."""
        words = self.tables.get(table, self.default)
        return words.get(column, self.default) if isinstance(words, dict) else words


class BatchSettings(Settings):
    max_bytes: Size = Field(
        default=128 << 20, ge=1, description="A batch ends at the first transaction past this size."
    )


class SinkSettings(Settings):
    name: str
    type: str
    on_error: Literal["stop", "dead_letter"] = "stop"
    schema_changes: Literal["apply", "ignore", "stop"] = Field(
        default="apply", description="What becomes of schema changes that the source's log tells of."
    )
    on_drop: Literal["keep", "drop"] = Field(
        default="keep", description="Whether what is dropped in the source is dropped here."
    )
    trigger: Duration = Field(default=0.0, description="Seconds between deliveries; 0: as fast as possible.")
    batch: BatchSettings = BatchSettings()
    unrepresentable: UnrepresentableSettings = UnrepresentableSettings()

    @property
    def place(self) -> Path | None:
        """Where the sink keeps its data, if that is a path: no two sinks may share one."""
        return None

    @property
    def places(self) -> Mapping[str, Path]:
        """By the name of the setting (``snapshot.path``), every path that the sink writes to."""
        return {} if self.place is None else {"path": self.place}

    def below(self, directory: Path) -> Self:
        """The same, with relative paths taken from this directory (the config file's). Override it if there are any."""
        return self
