"""From a file to a Config, or to one ConfigError that names every mistake in it, one line each."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError

from penstock.config import mistakes
from penstock.config.document import parse_document
from penstock.config.model import Config
from penstock.config.secrets import redact, secrets_in
from penstock.config.variables import Expansion
from penstock.errors import ConfigError
from penstock.module_path import look_for_modules_in

_SECRET_KEY = re.compile(r"passw|pwd|secret|token|salt|credential|(api|access|private)_?key", re.IGNORECASE)


def load_config(path: Path, environ: Mapping[str, str] = os.environ) -> Config:
    """The config in this file. Relative paths in it are taken from the file's directory, and modules are found there."""
    file = Path(path)
    directory = file.absolute().parent
    try:
        return parse_config(_read(file), environ, directory).below(directory)
    except ConfigError as error:
        raise ConfigError.of((f"{file}: {mistake}" for mistake in error.sentences), error.advice) from None


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError("no such file; check the path") from None
    except UnicodeDecodeError:
        raise ConfigError("not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}; name a file that you may read") from None


def parse_config(text: str, environ: Mapping[str, str] = os.environ, modules: Path | None = None) -> Config:
    """The config in this text; relative paths in it stay relative. ``modules``: where those of own sinks may be."""
    document = parse_document(text)
    if document is None:
        raise ConfigError("is empty; it needs at least name, source and sinks")
    if not isinstance(document, dict):
        raise ConfigError("expected a mapping; write it as key: value, starting with name, source and sinks")
    expansion = Expansion(environ)
    expanded = expansion.expand(document)
    if modules is not None and _names_modules(expanded):
        look_for_modules_in(modules)
    found = [(path, text) for path, text in expansion.mistakes.items()]
    try:
        config = Config.model_validate(expanded)
    except ValidationError as error:
        # What could not be expanded is not judged a second time by the text that stands in its place.
        found += [(at, text) for at, text in _worded(error, expanded) if at not in expansion.mistakes]
    if found:
        raise ConfigError.of(_line(path, text) for path, text in found)
    return config


def _names_modules(document: Any) -> bool:
    """Whether a sink is somebody's own, ``module:Class``."""
    sinks = document.get("sinks")
    return isinstance(sinks, list) and any(isinstance(one, dict) and ":" in str(one.get("type")) for one in sinks)


def _worded(error: ValidationError, document: Any) -> Iterator[tuple[mistakes.Path, str]]:
    secrets = secrets_in([SecretStr(text) for text in _confidential(document)]) | secrets_in(document)
    for detail in error.errors(include_url=False, include_input=False):
        foreign = detail["type"] == mistakes.FOREIGN
        yield detail["loc"], redact(detail["msg"], secrets) if foreign else detail["msg"]


def _line(path: mistakes.Path, text: str) -> str:
    place = mistakes.show_path(path)
    return f"{place}: {text}" if place else text


def _confidential(value: Any, secret: bool = False) -> Iterator[str]:
    """The values under keys that sound like secrets: the config is not valid, so nobody can say which ones are."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _confidential(item, secret or _SECRET_KEY.search(str(key)) is not None)
    elif isinstance(value, list):
        for item in value:
            yield from _confidential(item, secret)
    elif secret and value is not None:
        yield str(value)
