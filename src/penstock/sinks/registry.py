"""The sinks by the word that a config's ``type`` uses. Adding a sink adds one line here.

Loaded on first use, so that nobody needs the client library of a sink that they don't use.
"""

from __future__ import annotations

import difflib
import importlib
import re
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError
from penstock.settings.mistakes import quoted

if TYPE_CHECKING:
    from penstock.sinks.contract import Sink

SINKS = {
    "duckdb": "penstock.sinks.duckdb.sink:DuckDBSink",
    "file": "penstock.sinks.file.sink:FileSink",
    "postgres": "penstock.sinks.postgres.sink:PostgresSink",
    "stdout": "penstock.sinks.stdout:StdoutSink",
}

_OWN = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def sink_class(type: str) -> type[Sink[Any, Any]]:
    """The class of a known sink, or of anybody's own as ``package.module:Class``."""
    target = SINKS.get(type) or (type if _OWN.fullmatch(type) else None)
    if target is None:
        raise ConfigError(f"unknown sink type{quoted(type)}; {_remedy(type)}")
    module_name, _, class_name = target.partition(":")
    found = getattr(_import(type, module_name), class_name, None)
    if found is None:
        raise ConfigError(f'module "{module_name}" has no "{class_name}"; name a class in it')
    return _a_sink(target, found)


def _import(type: str, module_name: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if type in SINKS:
            raise ConfigError(f'sink type "{type}" needs "{missing}"; pip install "penstock[{type}]"') from error
        raise ConfigError(
            f'cannot import "{missing}" for sink type "{type}"; put the module beside the config file, or install it'
        ) from error


def _a_sink(target: str, found: Any) -> type[Sink[Any, Any]]:
    from penstock.sinks.contract import Sink

    if not (isinstance(found, type) and issubclass(found, Sink)):
        raise ConfigError(f'"{target}" is not a sink; derive it from penstock.Sink')
    return found


def _remedy(type: str) -> str:
    near = difflib.get_close_matches(type.lower(), SINKS, n=1)
    if near:
        return f'did you mean "{near[0]}"?'
    return f"known: {', '.join(SINKS)}, or your own as package.module:Class"
