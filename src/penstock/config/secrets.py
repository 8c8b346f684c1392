"""What must never be shown, and how to take it out of a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus, unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict
from pydantic import BaseModel, SecretStr

from penstock.config.mistakes import mistake

HIDDEN = "********"
# The password of a URL reaches to the last @ of the word: people forget to escape one that the password contains.
_IN_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^:@/?#\s]*:)([^\s]*)(?=@)", re.ASCII)
_IN_CONNINFO = re.compile(r"((?:\b|_)(?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&']+)", re.IGNORECASE)
_URL_HINT = "write it like postgresql://user:password@host:5432/database or host=… dbname=…"


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without the passwords of the URLs in it, and without any of these secrets."""
    text = _IN_URL.sub(rf"\1{HIDDEN}", text)
    text = _IN_CONNINFO.sub(rf"\1{HIDDEN}", text)
    # Longest first, so that no tail of a longer secret is left behind.
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def check_postgres_url(url: SecretStr) -> SecretStr:
    """Refuses what libpq could not read. libpq's own message repeats parts of the URL, so it is not passed on."""
    text = url.get_secret_value().strip()
    if not text:
        raise mistake(f"is empty; {_URL_HINT}")
    if "://" in text and not text.startswith(("postgresql://", "postgres://")):
        raise mistake(f"not a Postgres URL; {_URL_HINT}")
    parts = _read(text)
    if not parts:
        raise mistake(f"not a Postgres URL; {_URL_HINT}")
    if not all(port.isascii() and port.isdigit() for port in str(parts.get("port", "5432")).split(",") if port):
        raise mistake("the port is not a number; write it like postgresql://user:password@host:5432/database")
    return url


def secrets_in(value: Any) -> frozenset[str]:
    """The passwords of every URL, and every SecretStr that is not a URL, anywhere in models, mappings and lists."""
    return frozenset(form for secret in _secrets(value) for form in _forms(secret) if form)


def _secrets(value: Any) -> Iterator[str]:
    if isinstance(value, SecretStr):
        text = value.get_secret_value()
        # Of a URL only the password is hidden: host and database are what an operator needs to see.
        yield from _passwords(text) if "://" in text or _read(text) else (text,)
    elif isinstance(value, str):
        yield from _passwords(value)
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _secrets(getattr(value, name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _secrets(key)
            yield from _secrets(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _secrets(item)


def _passwords(text: str) -> set[str]:
    """The passwords in a URL or conninfo, also when it is too broken for libpq to read."""
    found = {match[2] for match in _IN_URL.finditer(text)}
    found |= {match[2].strip("'") for match in _IN_CONNINFO.finditer(text)}
    parts = _read(text)
    found |= {str(parts[word]) for word in ("password", "sslpassword") if parts.get(word)}
    # `postgres:postgres@` is no secret, and hiding that word everywhere would hide the user too. In URLs `redact` does.
    return found - {str(parts[word]) for word in ("user", "host", "dbname") if parts.get(word)}


def _read(conninfo: str) -> Mapping[str, Any]:
    try:
        return conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError:
        return {}


def _forms(secret: str) -> set[str]:
    """As written, and as it looks inside a URL or taken out of one."""
    return {secret, unquote(secret), quote(secret, safe=""), quote(secret), quote_plus(secret)}
