"""A sink of the user's own, as the tests of the config name it: ``tests.config.shelf:ShelfSink``."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import SecretStr, field_validator

from penstock.sinks.contract import Sink
from penstock.sinks.settings import SinkSettings


class ShelfSettings(SinkSettings):
    path: str = "shelf"
    height: int = 3
    url: SecretStr | None = None
    token: SecretStr | None = None
    label: str = ""

    @field_validator("label")
    @classmethod
    def _refuses_by_repeating(cls, label: str) -> str:
        if label:
            raise ValueError(f"the label {label}\nis not wanted")
        return label

    def below(self, directory: Path) -> Self:
        return self.model_copy(update={"path": str(directory / self.path)})


class ShelfSink(Sink[ShelfSettings, None]):
    Settings = ShelfSettings


class NotASink:
    pass
