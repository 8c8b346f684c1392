"""What must never be shown, and how to take it out of a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus, unquote

from pydantic import BaseModel, SecretStr

from penstock.settings.mistakes import mistake

HIDDEN = "********"
# The password of a URL reaches to the last @ of the word: people forget to escape one that the password contains.
_IN_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^:@/?#\s]*:)(\S*)(?=@)", re.ASCII)
_IN_QUERY = re.compile(r"([?&](?:ssl)?password=)([^\s&]+)", re.IGNORECASE)
_IN_CONNINFO = re.compile(r"((?<![?&\w])(?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'|\S+)", re.IGNORECASE)
_PLACES = (_IN_URL, _IN_QUERY, _IN_CONNINFO)
# In a value that is a URL and nothing else it may even contain spaces.
_WHOLE_URL = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*://[^:@/?#\s]*:(.*)@", re.ASCII | re.DOTALL)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://", re.ASCII)
_URL_HINT = "write it like postgresql://user:password@host:5432/database or host=… dbname=…"


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without the passwords of the URLs in it, and without any of these secrets."""
    for place in _PLACES:
        text = place.sub(rf"\1{HIDDEN}", text)
    # Longest first, so that no tail of a longer secret is left behind.
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def check_postgres_url(url: SecretStr) -> SecretStr:
    """Refuses what libpq could not read. libpq's own message repeats parts of the URL, so it is not passed on."""
    text = url.get_secret_value().strip()
    if not text:
        raise mistake(f"is empty; {_URL_HINT}")
    if _SCHEME.match(text) and not text.startswith(("postgresql://", "postgres://")):
        raise mistake(f"not a Postgres URL; {_URL_HINT}")
    parts = _read(text)
    if not parts:
        raise mistake(f"not a Postgres URL; {_URL_HINT}{_encoding_hint(text)}")
    if not all(port.isascii() and port.isdigit() for port in str(parts.get("port", "5432")).split(",") if port):
        raise mistake(
            "the port is not a number; write it like postgresql://user:password@host:5432/database"
            f"{_encoding_hint(text)}"
        )
    return url


def _encoding_hint(text: str) -> str:
    """For a URL with a password: its special characters are what most often breaks one."""
    hint = ", and percent-encode special characters of the password (% is %25, / is %2F, @ is %40, : is %3A)"
    return hint if _WHOLE_URL.match(text) else ""


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
    found = {match[2].strip("'") for place in _PLACES for match in place.finditer(text)}
    found |= {match[1] for match in [_WHOLE_URL.match(text)] if match}
    parts = _read(text)
    found |= {str(parts[word]) for word in ("password", "sslpassword") if parts.get(word)}
    # `postgres:postgres@` is no secret, and hiding that word everywhere would hide the user too. In URLs `redact` does.
    return found - {str(parts[word]) for word in ("user", "host", "dbname") if parts.get(word)}


def _read(conninfo: str) -> Mapping[str, Any]:
    import psycopg.conninfo  # a tenth of a second, which `--help` can do without

    try:
        return psycopg.conninfo.conninfo_to_dict(conninfo)
    except (psycopg.ProgrammingError, UnicodeDecodeError):  # the latter: %A7 in it, which is no UTF-8
        return {}


def _forms(secret: str) -> set[str]:
    """As written, as it looks inside a URL or taken out of one, and as a message of one line repeats it."""
    plain = unquote(secret)
    return {secret, plain, quote(plain, safe=""), quote(plain), quote_plus(plain), " ".join(secret.split())}
