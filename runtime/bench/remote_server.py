"""What a load tool asks a server before the load: which model it has, and how it counts tokens."""

from __future__ import annotations

from contextlib import suppress

import httpx

from dsv4_trt.errors import ConfigError
from dsv4_trt.runtime.bench.http_sender import headers_of

TIMEOUT = 60.0  # seconds of one call


class RemoteEncoder:
    """The /tokenize of a server, in vLLM's protocol, which this project's server speaks too.

    Within `with`, so that its connection is closed.
    """

    def __init__(self, base_url: str, model: str, api_key: str | None) -> None:
        self._url, self._model = base_url + "/tokenize", model
        self._client = httpx.Client(headers=headers_of(api_key), timeout=TIMEOUT, trust_env=False)

    def __enter__(self) -> RemoteEncoder:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`; `ConfigError` where the server does not tell them."""
        body = {"model": self._model, "prompt": text, "add_special_tokens": False}
        try:
            answer = self._client.post(self._url, json=body)
            _check(answer)
            return [int(token) for token in answer.json()["tokens"]]
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
            raise ConfigError(
                f"{self._url} does not tell token ids ({type(error).__name__}: {error}); name a "
                "bundle with the model's tokenizer: --engine_dir"
            ) from error


def served_model(base_url: str, api_key: str | None) -> str:
    """The first model that a server lists; raises where nothing answers, or no model is listed."""
    url = base_url + "/v1/models"
    try:
        answer = httpx.get(url, headers=headers_of(api_key), timeout=TIMEOUT, trust_env=False)
    except httpx.TransportError as error:
        raise ConfigError(
            f"nothing answers at {base_url} ({type(error).__name__}: {error}); start the server, or "
            "name another one with --base_url"
        ) from error
    try:
        _check(answer)
        return str(answer.json()["data"][0]["id"])
    except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(
            f"{url} names no model ({type(error).__name__}: {error}); name it with --model"
        ) from error


def _check(answer: httpx.Response) -> None:
    """Raise `ConfigError` for what the server refuses, in its own words."""
    if answer.status_code == 401:
        raise ConfigError(f"{answer.url} wants an API key, or another one: give it with --api_key")
    if answer.is_client_error:
        with suppress(ValueError, LookupError, TypeError):  # else the status has to do
            said = answer.json()["error"]["message"]
            raise ConfigError(f"{answer.url} answers {answer.status_code}: {said}")
    answer.raise_for_status()
