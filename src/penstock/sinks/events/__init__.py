"""Changes as lines of JSON, for every sink that sends events. Adding a format: one class, one line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from penstock.sinks.events.format import EVENTS, EventFormat, Position
from penstock.sinks.events.formats.json import JsonFormat
from penstock.sinks.events.formats.pgsink import PgsinkFormat
from penstock.sinks.events.values import Numeric
from penstock.sinks.settings import SinkSettings

__all__ = ["EVENTS", "EventFormat", "EventSettings", "FormatName", "Numeric", "Position", "event_format"]

FormatName = Literal["json", "pgsink"]


class EventSettings(SinkSettings):
    """What every sink of events takes besides."""

    format: FormatName = "json"
    numeric: Numeric = "string"


FORMATS: dict[FormatName, Callable[[EventSettings], EventFormat]] = {
    "json": lambda settings: JsonFormat(settings.numeric),
    "pgsink": lambda settings: PgsinkFormat(),
}


def event_format(settings: EventSettings) -> EventFormat:
    return FORMATS[settings.format](settings)
