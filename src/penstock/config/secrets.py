"""What must never be shown, and how to take it out of a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus, unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict
from pydantic import BaseModel, SecretStr
from pydantic_core import PydanticCustomError

HIDDEN = "********"
_URL_HINT = "write it like postgresql://user@host:5432/database or host=… dbname=…"
_URL_PASSWORD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^:@/?#\s]*:([^\s]*)@", re.ASCII)
_WORD_PASSWORD = re.compile(r"(?:password|sslpassword)\s*=\s*('(?:[^'\\]|\\.)*'|[^\s&]+)", re.IGNORECASE)


def redact(text: str, secrets: Iterable[str]) -> str:
    """The text with every secret replaced, longest first so that no tail of a longer one is left behind."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def check_postgres_url(url: SecretStr) -> SecretStr:
    """Refuses what libpq could not read. libpq's own message repeats parts of the URL, so it is not passed on."""
    text = url.get_secret_value().strip()
    if "://" in text and not text.startswith(("postgresql://", "postgres://")):
        raise PydanticCustomError("url", "not a Postgres URL; {hint}", {"hint": _URL_HINT})
    try:
        parts = conninfo_to_dict(text)
    except psycopg.ProgrammingError:
        raise PydanticCustomError("url", "not a Postgres URL; {hint}", {"hint": _URL_HINT}) from None
    if not parts:
        raise PydanticCustomError("url", "is empty; {hint}", {"hint": _URL_HINT})
    return url


def secrets_in(value: Any) -> frozenset[str]:
    """The passwords of every URL, and every SecretStr that is not a URL, anywhere in models, mappings and lists."""
    return frozenset(form for secret in _secrets(value) for form in _forms(secret) if form)


def _secrets(value: Any) -> Iterator[str]:
    if isinstance(value, SecretStr):
        text = value.get_secret_value()
        # A URL as a whole is hidden by hiding its password: host and database are what an operator needs to see.
        yield from _passwords(text) if _is_address(text) else (text,)
    elif isinstance(value, str):
        yield from _passwords(value)
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _secrets(getattr(value, name))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _secrets(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _secrets(item)


def _passwords(text: str) -> set[str]:
    """The passwords in a URL or conninfo, also when it is too broken for libpq to read."""
    found = {match[1] for match in _URL_PASSWORD.finditer(text)}
    found |= {match[1].strip("'") for match in _WORD_PASSWORD.finditer(text)}
    try:
        parts = conninfo_to_dict(text)
    except psycopg.ProgrammingError:
        return found
    return found | {str(parts[word]) for word in ("password", "sslpassword") if parts.get(word)}


def _is_address(text: str) -> bool:
    if "://" in text:
        return True
    try:
        return bool(conninfo_to_dict(text))
    except psycopg.ProgrammingError:
        return False


def _forms(secret: str) -> set[str]:
    """As written, and as it looks inside a URL or taken out of one."""
    return {secret, unquote(secret), quote(secret, safe=""), quote(secret), quote_plus(secret)}
