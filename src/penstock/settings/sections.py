"""The sections of the config file that are not sinks or rules: source, log, spark, api."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from penstock.settings.base import Section
from penstock.settings.mistakes import mistake
from penstock.settings.secrets import check_postgres_url
from penstock.settings.tables import TableSelection
from penstock.settings.units import Duration, Size

_LISTEN = re.compile(r"(\[[0-9A-Fa-f:]+\]|[^:\s]*):[0-9]{1,5}")


def _only_postgres(kind: str) -> str:
    if kind != "postgres":
        raise mistake(f"sources of type {kind} are not in this version yet; use type: postgres")
    return kind


def _publication_names(value: Any) -> Any:
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list | tuple) and names and all(isinstance(name, str) and name for name in names):
        return value
    raise mistake("expected a publication's name or a list of names; leave the key out to have one made")


class CopySettings(Section):
    workers: int = Field(default=4, ge=1)
    chunk_bytes: Size = Field(default=64 << 20, ge=1)
    max_connections: int | None = Field(default=None, ge=1)
    rows_per_second: int | None = Field(default=None, ge=1)

    @property
    def connections(self) -> int:
        """How many connections read rows at the same time, at most."""
        return min(self.workers, self.max_connections or self.workers)


class SourceSettings(Section):
    type: Annotated[Literal["postgres", "kafka", "nats"], AfterValidator(_only_postgres)] = "postgres"
    url: Annotated[SecretStr, AfterValidator(check_postgres_url)]
    mode: Literal["stream", "copy", "copy_and_stream"] = "stream"
    tables: TableSelection = TableSelection()
    publication: Annotated[str | tuple[str, ...] | None, BeforeValidator(_publication_names)] = None
    copying: CopySettings = Field(default=CopySettings(), alias="copy")  # `copy` is a method of every pydantic model
    heartbeat: Duration = 30.0

    @property
    def copies(self) -> bool:
        """Whether tables are imported: the rows that were there before, not their changes alone."""
        return self.mode != "stream"

    @property
    def publications(self) -> tuple[str, ...]:
        """The user's own publications; empty when Penstock makes and manages one."""
        return (self.publication,) if isinstance(self.publication, str) else self.publication or ()


class LogSettings(Section):
    acknowledge: Literal["sinks", "log"] = "sinks"
    linger: Duration = 0.1
    segment_bytes: Size = Field(default=32 << 20, ge=1)
    retention: Duration = 0.0
    max_bytes: Size = Field(default=20 << 30, ge=1)


def _as_spark_writes_it(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


class SparkSettings(Section):
    master: str = "local[*]"
    conf: dict[str, Annotated[str, BeforeValidator(_as_spark_writes_it)]] = Field(default_factory=dict)


def _host_and_port(listen: str) -> str:
    if not _LISTEN.fullmatch(listen) or int(listen.rpartition(":")[2]) > 65535:
        raise mistake("not an address to listen on; write it like 127.0.0.1:8686")
    return listen


class ApiSettings(Section):
    listen: Annotated[str, AfterValidator(_host_and_port)] = "127.0.0.1:8686"
