"""Typed reading of a JSON object that a user gave us: every refusal names key, found and expected."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsv4_trt.errors import CheckpointError, ConfigError
from dsv4_trt.shown import shown

LARGEST_INTEGER = 2**31 - 1  # ops and kernels take sizes and ids as int32
FLOAT32 = (2.0**-126, 2.0**128)  # what float32 holds in full precision: at least, below


@dataclass(frozen=True, slots=True)
class Fields:
    """One JSON object and how to call it in messages (`config.json`, `config.json: rope_scaling`)."""

    name: str
    data: dict[str, Any]

    def has(self, key: str) -> bool:
        """Whether the key is there and not null; null means the same as absent."""
        return self.data.get(key) is not None

    def value(self, key: str, expected: str) -> Any:
        """The value as it is; a missing key raises `ConfigError`."""
        if not self.has(key):
            raise ConfigError(f"{self.name}: '{key}' is missing; expected {expected}")
        return self.data[key]

    def integer(self, key: str, *, minimum: int = 1) -> int:
        """An integer of at least `minimum` that int32 holds; floats and booleans are refused."""
        expected = f"an integer of at least {minimum} and below 2^31"
        value = self.value(key, expected)
        if type(value) is not int or not minimum <= value <= LARGEST_INTEGER:
            raise self.refusal(key, value, expected)
        return value

    def number(self, key: str) -> float:
        """A finite number above 0 that float32 holds."""
        expected = "a finite number above 0 that float32 holds"
        value = self.value(key, expected)
        if type(value) not in (int, float) or not FLOAT32[0] <= value < FLOAT32[1]:
            raise self.refusal(key, value, expected)
        return float(value)

    def sequence(self, key: str, expected: str) -> list[Any]:
        """A list of anything."""
        value = self.value(key, expected)
        if not isinstance(value, list):
            raise self.refusal(key, value, expected)
        return value

    def section(self, key: str, expected: str) -> Fields:
        """A nested object."""
        value = self.value(key, expected)
        if not isinstance(value, dict):
            raise self.refusal(key, value, expected)
        return Fields(f"{self.name}: {key}", value)

    def only(self, key: str, *legal: object) -> None:
        """Refuse any value but `legal` ones; an absent key passes."""
        if not self.has(key):
            return
        value = self.data[key]
        if not any(type(value) is type(item) and value == item for item in legal):
            raise self.refusal(key, value, " or ".join(repr(item) for item in legal))

    def refusal(self, key: str, found: object, expected: str) -> ConfigError:
        """The error for an illegal value."""
        return ConfigError(f"{self.name}: '{key}' is {shown(found)}; expected {expected}")


def parse_json(text: bytes) -> Any:
    """JSON in UTF-8; raises `ValueError` for anything else and for a key that an object has twice."""
    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key, value in pairs:
        if key in data:
            raise ValueError(f"it names {shown(key)} twice")
        data[key] = value
    return data


def read_object(path: Path, expected: str) -> Fields:
    """Read a JSON file that holds an object; `expected` says what the file should be.

    Raises `CheckpointError` when there is no such file and `ConfigError` when it is not a JSON object.
    """
    try:
        data = parse_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(f"{path} does not exist; expected {expected}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} can not be read as JSON: {error}; expected {expected}"
        ) from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} holds a {type(data).__name__}; expected an object, {expected}")
    return Fields(str(path), data)
