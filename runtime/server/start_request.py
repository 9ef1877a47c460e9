"""From a prompt's token ids to a request that runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from dsv4_trt.errors import RequestError, TooLong
from dsv4_trt.runtime.request import Request
from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
from dsv4_trt.runtime.server.served import Served
from dsv4_trt.runtime.server.token_stream import TokenStream

LONG_TEXT = 20_000  # characters; encoding more takes a thread, so that other streams go on

T = TypeVar("T")


async def start_request(
    served: Served,
    prompt_ids: list[int],
    sampling: dict[str, Any],
    *,
    max_tokens: int | None,
    parameter: str,
    priority: float = 0.5,
    cache_salt: str = "",
    timeout: float | None = None,
) -> TokenStream:
    """Submit a prompt; `max_tokens` None = all that `max_seq_len` leaves. `parameter` names the prompt.

    Raises `TooLong` and `RequestError` for what can not run, `QueueFull`, `Unavailable`, `EngineFault`.
    """
    served.check_open()
    tokens = _output_tokens(served, len(prompt_ids), max_tokens, parameter)
    request = Request(
        request_id=served.client.new_id(),
        prompt_ids=prompt_ids,
        params=SamplingParams(**sampling, max_tokens=tokens),
        priority=priority,
        cache_salt=cache_salt,
    )
    limit = served.config.request_timeout
    if timeout is not None and timeout <= 0:
        raise RequestError(f"timeout is {timeout!r}; expected seconds above 0", parameter="timeout")
    return await served.client.submit(request, limit if timeout is None else min(timeout, limit))


async def in_thread_if_long(size: int, work: Callable[[], T]) -> T:
    """Do the work here, or in a thread if it is for that many characters or more."""
    return work() if size < LONG_TEXT else await asyncio.to_thread(work)


def _output_tokens(served: Served, prompt: int, asked: int | None, parameter: str) -> int:
    """How many tokens may be put out; `TooLong` if the prompt leaves not as many as are asked for."""
    longest = served.info.build.max_seq_len
    left = longest - prompt
    if left < 1:
        raise TooLong(
            f"the prompt has {prompt} tokens, the model's context is {longest} with at least one for the "
            "answer; send a shorter prompt",
            parameter=parameter,
        )
    if asked is not None and asked > left:
        raise TooLong(
            f"the prompt has {prompt} tokens and {asked} more are asked for, together {prompt + asked}; "
            f"the model's context is {longest}: send a shorter prompt, or ask for {left} at most",
            parameter=parameter,
        )
    return left if asked is None else asked
