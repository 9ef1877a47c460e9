"""JSON objects of a request that are kept as they are: such as can be written again."""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError


def _check(value: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (ValueError, RecursionError) as error:  # NaN, half a surrogate pair, too many levels
        raise PydanticCustomError(
            "json_object", "expected JSON of numbers and whole characters"
        ) from error
    return value


JsonObject: TypeAlias = Annotated[dict[str, Any], AfterValidator(_check)]
