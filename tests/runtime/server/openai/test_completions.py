"""Completions: prompts in all their forms, several runs as one, the answer in both ways."""

import asyncio
from types import SimpleNamespace

import pytest

from dsv4_trt.errors import EngineFault, QueueFull, RequestError
from dsv4_trt.runtime.sampling.guided_decoding import GuidedDecodingParams
from dsv4_trt.runtime.server.failures import Refusal
from dsv4_trt.runtime.server.openai import text_runs
from dsv4_trt.runtime.server.openai.completions_answer import CompletionAnswer
from dsv4_trt.runtime.server.openai.completions_request import CompletionRequest
from dsv4_trt.runtime.server.openai.completions_response import Completion, CompletionChunk
from dsv4_trt.runtime.server.openai.text_runs import TextRuns
from dsv4_trt.runtime.server.text_run import TextDelta
from tests.runtime.server.openai.bodies import accepts, refusal
from tests.runtime.server.openai.runs import HEAD, StoredRun, collect, tiny_tokenizer, tokens


def body(**fields):
    return CompletionRequest.model_validate({"prompt": "x"} | fields)


def options(**fields):
    return body(**fields).options()


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("", [""]),
        ("a b", ["a b"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
    ],
)
def test_prompts(prompt, prompts):
    assert body(prompt=prompt).prompts() == prompts


@pytest.mark.parametrize(
    ("prompt", "parameter"),
    [
        (None, "prompt"),
        (5, "prompt"),
        ([], "prompt"),
        ([[]], "prompt[0]"),
        ([1, "a"], "prompt[1]"),
        ([-1], "prompt[0]"),
        (["a", 1], "prompt[1]"),
        ([[1], "a"], "prompt[1]"),
        (["a"] * 1025, "prompt"),
    ],
)
def test_illegal_prompts(prompt, parameter):
    assert refusal(body, prompt=prompt)[0] == parameter


def test_a_prompt_must_be_there():
    assert refusal(CompletionRequest.model_validate, obj={}) == (
        "prompt",
        "prompt is missing: Field required",
    )


def test_options():
    assert options() == {
        "sampling": {"guided_decoding": None},
        "max_tokens": 16,
        "priority": 0.5,
        "cache_salt": "",
    }
    found = options(logprobs=0, n=2, max_tokens=3, guided_regex="a", priority=1, cache_salt="s")
    guided = GuidedDecodingParams(regex="a")
    assert found["sampling"] == {"n": 2, "logprobs": 0, "guided_decoding": guided}
    assert (found["max_tokens"], found["priority"], found["cache_salt"]) == (3, 1, "s")


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"echo": True, "logprobs": 1}, "logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stream_options": {}}, "stream_options"),
    ],
)
def test_refusals(fields, parameter):
    assert refusal(options, **fields)[0] == parameter


class LateRun(StoredRun):
    """Gives a step only once it may."""

    def __init__(self, *steps, turns, **fields):
        super().__init__(*steps, **fields)
        self.turns = turns

    async def __aiter__(self):
        async for step in super().__aiter__():
            await self.turns.get()
            yield step


def delta(index, text, ids=(), **fields):
    return TextDelta(index=index, text=text, tokens=tokens(*ids), **fields)


def test_runs_come_as_they_do_and_are_numbered_through():
    async def main():
        first, second = asyncio.Queue(), asyncio.Queue()
        runs = TextRuns(
            [
                LateRun([delta(0, "a")], [delta(1, "b")], turns=first),
                LateRun([delta(1, "c")], [delta(0, "d")], turns=second),
            ],
            num_each=2,
        )
        seen = []
        for queue in (second, first, first, second):
            queue.put_nowait(None)
        second_only = asyncio.create_task(anext(aiter(runs)))
        seen += await second_only
        return [(d.index, d.text) for d in seen]

    assert asyncio.run(main())[0] in [(0, "a"), (3, "c")]


def test_every_run_is_read_to_its_end():
    async def main():
        runs = TextRuns(
            [StoredRun(*[[delta(0, f"{i}{k}")] for k in range(5)]) for i in range(3)], 1
        )
        texts = {0: "", 1: "", 2: ""}
        async for deltas in runs:
            for each in deltas:
                texts[each.index] += each.text
        return texts

    assert asyncio.run(main()) == {i: "".join(f"{i}{k}" for k in range(5)) for i in range(3)}


def test_an_error_of_one_run_ends_the_reading():
    async def main():
        runs = TextRuns([StoredRun([delta(0, "a")]), StoredRun(error=EngineFault("x"))], 1)
        async for _ in runs:
            pass

    with pytest.raises(EngineFault):
        asyncio.run(main())


def served(max_queue_size):
    return SimpleNamespace(config=SimpleNamespace(max_queue_size=max_queue_size))


def test_all_prompts_start_or_none(monkeypatch):
    started = []

    async def start_text(served, prompt, **options):
        if prompt == "c":
            raise QueueFull("full")
        started.append(StoredRun())
        return started[-1]

    monkeypatch.setattr(text_runs, "start_text", start_text)
    with pytest.raises(QueueFull):
        asyncio.run(TextRuns.start(served(8), body(prompt=["a", "b", "c", "d"])))
    assert [run.is_cancelled for run in started] == [True, True]


def test_more_sequences_than_can_ever_wait_are_no_full_queue():
    with pytest.raises(RequestError, match=r"9 sequences .* holds 8") as caught:
        asyncio.run(TextRuns.start(served(8), body(prompt=["a", "b", "c"], n=3)))
    assert caught.value.parameter == "prompt"


class WholeRun(StoredRun):
    async def whole(self):
        found = {}
        async for deltas in self:
            for each in deltas:
                found.setdefault(each.index, TextDelta(index=each.index)).take(each)
        return [found[index] for index in sorted(found)]


def answer(tokenizer, *runs, **fields):
    asked = body(**fields)
    return CompletionAnswer(HEAD, TextRuns([*runs], asked.n or 1), asked, tokenizer)


def test_whole(tmp_path):
    runs = [
        WholeRun(
            [delta(0, "a", (5,))], [delta(0, "b", (6,), finish_reason="stop", stop_reason="X")]
        ),
        WholeRun([delta(0, "c", (7,), finish_reason="length")], prompt_ids=(4,), cached=1),
    ]
    tokenizer = tiny_tokenizer(tmp_path)
    fields = {"prompt": ["P", "Q"], "echo": True, "return_token_ids": True}
    found = asyncio.run(answer(tokenizer, *runs, **fields).whole())
    assert accepts(Completion, found)
    assert [c["text"] for c in found["choices"]] == ["Pab", "Qc"]
    assert [c["finish_reason"] for c in found["choices"]] == ["stop", "length"]
    assert [c["stop_reason"] for c in found["choices"]] == ["X", None]
    assert [c["token_ids"] for c in found["choices"]] == [[5, 6], [7]]
    assert [c["prompt_token_ids"] for c in found["choices"]] == [[0, 1, 2], [4]]
    assert found["usage"]["prompt_tokens"] == 4
    assert found["usage"]["completion_tokens"] == 3
    assert found["usage"]["prompt_tokens_details"] == {"cached_tokens": 1}


def test_stream(tmp_path):
    tokenizer = tiny_tokenizer(tmp_path)
    run = StoredRun(
        [delta(0, "a", (5,)), delta(1, "", (6,))],
        [delta(1, "b", (7,))],
        [delta(0, "", (8,), finish_reason="stop"), delta(1, "c", (9,), finish_reason="length")],
    )
    fields = {"prompt": [300, 301], "n": 2, "echo": True}
    fields |= {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, last = asyncio.run(collect(answer(tokenizer, run, **fields).events()))
    assert last == "[DONE]"
    assert all(accepts(CompletionChunk, chunk) for chunk in chunks)
    told = [(c["index"], c["text"], c["finish_reason"]) for k in chunks for c in k["choices"]]
    echo = tokenizer.decode([300, 301])
    assert told == [
        (0, echo + "a", None),
        (1, echo + "b", None),
        (0, "", "stop"),
        (1, "c", "length"),
    ]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 5


def test_log_probabilities_of_a_step_without_text_are_told(tmp_path):
    tokenizer = tiny_tokenizer(tmp_path)
    run = StoredRun([delta(0, "", (5,))], [delta(0, "ab", (6,), finish_reason="length")])
    chunks = asyncio.run(collect(answer(tokenizer, run, logprobs=0, stream=True).events()))
    lists = [chunk["choices"][0]["logprobs"] for chunk in chunks[:-1]]
    assert [each["token_logprobs"] for each in lists] == [[-5.0], [-6.0]]
    assert [each["text_offset"] for each in lists] == [[0], [1]]


def test_a_sequence_that_the_server_ended_is_an_error(tmp_path):
    tokenizer = tiny_tokenizer(tmp_path)
    steps = [delta(0, "a", (5,), finish_reason="timeout")]
    with pytest.raises(Refusal):
        asyncio.run(answer(tokenizer, WholeRun(steps)).whole())
    seen = []

    async def read():
        async for chunk in answer(tokenizer, StoredRun(steps), stream=True).events():
            seen.append(chunk)

    with pytest.raises(Refusal):
        asyncio.run(read())
    assert '"text":"a"' in seen[0]
    assert '"timeout"' not in seen[0]
