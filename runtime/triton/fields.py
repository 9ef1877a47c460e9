"""The input tensors of one request as plain Python values, by field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.triton.failures import UnsupportedInput
from dsv4_trt.runtime.triton.tensors import FIELD_OF, FIELDS, REFUSED

Array = npt.NDArray[Any]
PARAMETERS = (
    "id",
    "timeout",
)  # that a request may have beside tensors; id: in the body of `generate`


class Fields:
    """What a request says. Every field but the prompts is for one prompt each, or for all."""

    def __init__(self, tensors: Mapping[str, Array], parameters: Mapping[str, object]) -> None:
        """Take a request's tensors by name and its parameters.

        Raises `RequestError` for names that nobody knows and for two names that disagree, and
        `UnsupportedInput` for what can not be served.
        """
        _check_parameters(parameters)
        self._arrays: dict[str, tuple[str, Array]] = {}
        for name, array in tensors.items():
            if name in REFUSED:
                _check_refused(name, array)
            else:
                self._take(name, array)

    def __contains__(self, key: str) -> bool:
        return key in self._arrays

    def name(self, key: str) -> str:
        """The tensor that gave a field, or the first one that could have."""
        return self._arrays[key][0] if key in self._arrays else FIELDS[key].names[0]

    def array(self, key: str) -> Array:
        """A field's tensor as it came."""
        return self._arrays[key][1]

    def values(self, key: str) -> list[Any]:
        """All values of a field in order."""
        name, array = self._arrays[key]
        return [plain(name, value) for value in array.reshape(-1)]

    def for_each(self, key: str, num_prompts: int) -> list[Any]:
        """A value for each prompt, where one or as many were given."""
        found = self.values(key)
        if len(found) not in (1, num_prompts):
            raise self.error(
                key,
                f"has {len(found)} values for {num_prompts} prompts; give one for all, or one each",
            )
        return found * num_prompts if len(found) == 1 else found

    def for_all(self, key: str, default: Any = None) -> Any:
        """The one value of a field that holds for the whole request."""
        if key not in self:
            return default
        found = set(self.values(key))
        if len(found) != 1:
            raise self.error(
                key, f"has the values {sorted(found)}; expected one value for the whole request"
            )
        return found.pop()

    def lists(self, key: str, num_prompts: int) -> list[list[Any]]:
        """A list for each prompt: the tensor's rows where they are as many, else all of it for each."""
        name, array = self._arrays[key]
        if array.ndim == 2 and len(array) == num_prompts:
            return [[plain(name, value) for value in row] for row in array]
        if array.ndim == 2 and len(array) != 1:
            raise self.error(
                key,
                f"has {len(array)} rows for {num_prompts} prompts; give one for all, or one each",
            )
        return [self.values(key) for _ in range(num_prompts)]

    def error(self, key: str, message: str) -> RequestError:
        """A `RequestError` about the tensor that gave a field."""
        name = self.name(key)
        return RequestError(f"{name} {message}", parameter=name)

    def _take(self, name: str, array: Array) -> None:
        key = FIELD_OF.get(name)
        if key is None:
            raise RequestError(
                f"input '{name}' is unknown; the model's config.pbtxt lists those that there are",
                parameter=name,
            )
        if key in self._arrays:
            other, values = self._arrays[key][0], self.values(key)
            if values != [plain(name, value) for value in array.reshape(-1)]:
                raise RequestError(
                    f"{other} and {name} are two names of one input and differ; give one of them",
                    parameter=name,
                )
        self._arrays[key] = (name, array)


def plain(name: str, value: Any) -> Any:
    """A tensor's value as Python has it: text, a truth value, a whole number, or a number.

    A single-precision number becomes the shortest one that is written like it: 0.7, not 0.699999988.
    """
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RequestError(
                f"{name} is no UTF-8 at byte {error.start}; expected text", parameter=name
            ) from None
    if isinstance(value, np.floating):
        return float(str(value))
    return value.item() if isinstance(value, np.generic) else value


def _check_parameters(parameters: Mapping[str, object]) -> None:
    for name in parameters:
        if name not in PARAMETERS and not name.startswith("triton_"):
            raise RequestError(
                f"'{name}' is no input of this model; its config.pbtxt lists those that there are",
                parameter=name,
            )


def _check_refused(name: str, array: Array) -> None:
    refused = REFUSED[name]
    for value in array.reshape(-1):
        if plain(name, value) not in refused.neutral:
            raise UnsupportedInput(
                f"{name} is {plain(name, value)!r}: {refused.remedy}", parameter=name
            )
