"""Text that can not be written as UTF-8, which JSON's escapes can bring in."""

from __future__ import annotations

from dsv4_trt.errors import RequestError


def check_unicode(text: str, parameter: str | None = None) -> None:
    """Raise `RequestError` for text with a lone surrogate, which no UTF-8 can hold."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError(
            f"{parameter or 'text'} has a lone surrogate {text[error.start]!r} at character "
            f"{error.start}; expected text that can be written as UTF-8",
            parameter=parameter,
        ) from error
