"""The settings that every sink takes. A sink's own settings class adds its fields."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field

from penstock.config.settings import Settings
from penstock.config.units import Duration, Size
from penstock.config.unrepresentable import UnrepresentableSettings


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

    def below(self, directory: Path) -> Self:
        """The same, with relative paths taken from this directory (the config file's). Override it if there are any."""
        return self
