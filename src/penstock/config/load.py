"""From a file to a Config, or to one ConfigError that names every mistake in it, one line each.

``${VAR}`` and ``${VAR:-default}`` in the values of a parsed document, so that a value never alters its structure.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError

from penstock.config.model import Config
from penstock.config.module_path import look_for_modules_in
from penstock.errors import ConfigError
from penstock.settings import mistakes
from penstock.settings.document import parse_document
from penstock.settings.mistakes import Location
from penstock.settings.secrets import redact, secrets_in

_REFERENCE = re.compile(r"\$(?:\$|\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}|\{)", re.ASCII)


class Expansion:
    """Expands a document. ``mistakes``: what could not be expanded, by its path."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.mistakes: dict[Location, str] = {}
        self._environ = environ
        self._open: set[int] = set()  # containers being walked: an anchor can make one contain itself

    def expand(self, value: Any, path: Location = ()) -> Any:
        if isinstance(value, str):
            return self._expand_text(value, path)
        if not isinstance(value, dict | list):
            return value
        if id(value) in self._open:
            raise ConfigError("an anchor contains an alias of itself; write it out")
        self._open.add(id(value))
        try:
            if isinstance(value, dict):
                return {key: self.expand(item, (*path, str(key))) for key, item in value.items()}
            return [self.expand(item, (*path, index)) for index, item in enumerate(value)]
        finally:
            self._open.discard(id(value))

    def _expand_text(self, text: str, path: Location) -> str:
        missing: list[str] = []

        def replacement(match: re.Match[str]) -> str:
            name, has_default, default = match.groups()
            if match[0] == "$$":
                return "$"
            if name is None:
                missing.append("not a variable; write ${NAME} or ${NAME:-default}, or $$ for a dollar sign")
                return match[0]
            # As in a shell, `:-` stands in for an empty variable too.
            value = self._environ.get(name, "") or default if has_default else self._environ.get(name)
            if value is None:
                missing.append(f"variable {name} is not set; set it or write ${{{name}:-default}}")
                return match[0]
            return value

        expanded = _REFERENCE.sub(replacement, text)
        if missing:
            self.mistakes[path] = missing[0]
        return expanded


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


def _worded(error: ValidationError, document: Any) -> Iterator[tuple[mistakes.Location, str]]:
    secrets = secrets_in([SecretStr(text) for text in _confidential(document)]) | secrets_in(document)
    for detail in error.errors(include_url=False, include_input=False):
        foreign = detail["type"] == mistakes.FOREIGN
        yield detail["loc"], redact(detail["msg"], secrets) if foreign else detail["msg"]


def _line(path: mistakes.Location, text: str) -> str:
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
