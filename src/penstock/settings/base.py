"""The base of every part of the config: unknown keys are mistakes, and nothing changes after loading."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator

from penstock.settings.mistakes import in_plain_words


class Settings(BaseModel):
    # Inputs are hidden because pydantic would otherwise print them, and with them passwords, in its errors.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """The keys as a config file writes them."""
        return tuple(field.alias or name for name, field in cls.model_fields.items())

    @model_validator(mode="wrap")
    @classmethod
    def _in_plain_words(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(data)
        except ValidationError as error:
            details = [in_plain_words(detail, cls.keys()) for detail in error.errors(include_url=False)]
            raise ValidationError.from_exception_data(error.title, details, hide_input=True) from None


class Section(Settings):
    """A part of the config in which a key without a value (all below it commented out) means its default."""

    @model_validator(mode="before")
    @classmethod
    def _without_empty_keys(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        known = cls.keys()
        return {key: value for key, value in data.items() if value is not None or key not in known}
