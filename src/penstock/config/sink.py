"""The settings that every sink takes. A sink's own settings class adds its fields."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from penstock.config.units import Duration, Size


class BatchSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    max_bytes: Size = Field(
        default=128 << 20, ge=1, description="A batch ends at the first transaction past this size."
    )


class SinkSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: str
    type: str
    on_error: Literal["stop", "dead_letter"] = "stop"
    trigger: Duration = Field(default=0.0, description="Seconds between deliveries; 0: as fast as possible.")
    batch: BatchSettings = BatchSettings()
    unrepresentable: Literal["error", "null", "text"] = "error"
