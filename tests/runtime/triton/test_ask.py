"""What tensors ask of the engine."""

import json

import pytest

from dsv4_trt.errors import RequestError
from dsv4_trt.runtime.chat.encoding import encode_segments
from dsv4_trt.runtime.chat.markup import Markup
from dsv4_trt.runtime.sampling.guided_decoding import GuidedDecodingParams
from dsv4_trt.runtime.sampling.sampling_params import SamplingParams
from dsv4_trt.runtime.text.tokenizer import Tokenizer
from dsv4_trt.runtime.triton.ask import read_ask
from dsv4_trt.runtime.triton.failures import UnsupportedInput
from dsv4_trt.runtime.triton.fields import Fields
from dsv4_trt.runtime.triton.model_text import ModelText
from tests.runtime.triton.backends import as_tensor

EOS = 1
MESSAGES = [{"role": "user", "content": "Is </think> a marker?"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


@pytest.fixture(scope="module")
def small(small_tokenizer_dir):
    return ModelText(EOS, Tokenizer.load(small_tokenizer_dir))


@pytest.fixture(scope="module")
def text(marked_tokenizer_dir):
    """With V4's markers."""
    return ModelText(EOS, Tokenizer.load(marked_tokenizer_dir))


def read(text, **tensors):
    arrays = {name: as_tensor(name, value) for name, value in tensors.items()}
    return read_ask(Fields(arrays, {}), text)


def params(text, **tensors):
    (found,) = read(text, text_input="x", **tensors).params
    return found


def test_nothing_said_is_what_sampling_params_default_to(small):
    ask = read(small, text_input="x")
    assert ask.prompts == ["x"]
    assert ask.params == [SamplingParams()]
    assert not ask.streaming
    assert ask.outputs == {
        *("text_output", "batch_index", "sequence_index", "finish_reason", "stop_reason")
    }


def test_every_parameter_of_the_ensemble(small):
    assert params(
        small,
        **{"max_tokens": 9, "min_tokens": 2, "temperature": 0.7, "top_k": 5, "top_p": 0.9},
        **{"min_p": 0.1, "repetition_penalty": 1.1, "presence_penalty": 0.2, "seed": 2**63},
        **{"frequency_penalty": -0.3, "num_return_sequences": 2, "stop_words": ["a", "", "b"]},
        **{"return_log_probs": True, "beam_width": 1, "length_penalty": 1.0, "bad_words": ""},
    ) == SamplingParams(
        **{"max_tokens": 9, "min_tokens": 2, "temperature": 0.7, "top_k": 5, "top_p": 0.9},
        **{"min_p": 0.1, "repetition_penalty": 1.1, "presence_penalty": 0.2, "seed": 2**63},
        **{"frequency_penalty": -0.3, "n": 2, "stop": ["a", "b"], "logprobs": 0},
    )


def test_every_parameter_of_the_llm_api(small):
    names = ("max_tokens", "top_k", "seed", "n")
    asked = {f"sampling_param_{name}": 3 for name in names} | {"sampling_param_top_p": 0.5}
    found = params(small, sampling_param_stop=["a"], sampling_param_stop_token_ids=[7], **asked)
    assert found == SamplingParams(
        max_tokens=3, top_k=3, seed=3, n=3, top_p=0.5, stop=["a"], stop_token_ids=[7]
    )


@pytest.mark.parametrize(
    ("end_id", "ignores_eos", "stops"), [(EOS, False, ()), (-1, True, ()), (9, True, (7, 9))]
)
def test_end_id_takes_the_place_of_the_end_of_sentence(small, end_id, ignores_eos, stops):
    given = {"stop_token_ids": [7]} if stops else {}
    found = params(small, end_id=end_id, **given)
    assert (found.ignore_eos, found.stop_token_ids) == (ignores_eos, stops)


def test_prompts_may_differ_in_all_that_is_sampling(small):
    ask = read(
        small, text_input=[["x"], ["y"]], max_tokens=[[3], [4]], stop_words=[["a", ""], ["b", "c"]]
    )
    assert ask.prompts == ["x", "y"]
    assert [p.max_tokens for p in ask.params] == [3, 4]
    assert [p.stop for p in ask.params] == [("a",), ("b", "c")]


def test_token_ids_in_rows(small):
    assert read(small, input_ids=[4, 5, 6]).prompts == [[4, 5, 6]]
    ask = read(small, input_ids=[[4, 5, 6], [7, 8, 0]], input_lengths=[[3], [2]])
    assert ask.prompts == [[4, 5, 6], [7, 8]]
    assert {"output_ids", "sequence_length"} <= ask.outputs
    assert "output_ids" not in read(small, input_ids=[4], return_output_ids=False).outputs
    with pytest.raises(RequestError, match="input_lengths has 4; input_ids has rows of 3 ids"):
        read(small, input_ids=[4, 5, 6], input_lengths=4)


@pytest.mark.parametrize(
    ("flag", "names"),
    [
        ("return_log_probs", {"cum_log_probs", "output_log_probs", "sequence_length"}),
        ("return_cumulative_logprob", {"cumulative_logprob"}),
        ("return_num_input_tokens", {"num_input_tokens"}),
        ("return_num_output_tokens", {"num_output_tokens"}),
        ("return_output_ids", {"output_ids", "sequence_length"}),
        ("return_finish_reason", {"finish_reason"}),
        ("return_stop_reason", {"stop_reason"}),
    ],
)
def test_each_flag_turns_its_outputs_on_and_off(small, flag, names):
    with_flag = read(small, text_input="x", **{flag: True}).outputs
    without = read(small, text_input="x", **{flag: False}).outputs
    assert with_flag - without == names


def test_words_with_weights_become_biases_of_their_tokens(small):
    tokens = small.tokenizer.encode("ab")
    found = params(small, embedding_bias_words=["ab", "ab"], embedding_bias_weights=[-60.0, 10.5])
    assert found.logit_bias == dict.fromkeys(tokens, -49.5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"embedding_bias_words": "a"}, "embedding_bias_weights is missing"),
        ({"embedding_bias_weights": 1.0}, "embedding_bias_words is missing"),
        ({"embedding_bias_words": ["a", "b"], "embedding_bias_weights": [1.0]}, "has 2 words"),
        ({"embedding_bias_words": ["a", "a"], "embedding_bias_weights": [-60.0] * 2}, "to -120"),
        ({"guided_decoding_guide": "x"}, "guided_decoding_guide_type is missing"),
        ({"guided_decoding_guide_type": "yaml"}, "is 'yaml'; expected json, json_schema"),
        ({"guided_decoding_guide_type": "regex"}, "guided_decoding_guide is empty"),
        (
            {"guided_decoding_guide_type": "json_schema", "guided_decoding_guide": "{"},
            "guided_decoding_guide is no JSON",
        ),
        ({"tools": "[]"}, "tools belongs to messages, and text_input was given"),
        ({"input_ids": [3]}, "text_input and input_ids was given"),
    ],
)
def test_what_does_not_belong_together(small, given, message):
    with pytest.raises(RequestError, match=message):
        params(small, **given)


@pytest.mark.parametrize("name", ["text_input", "input_ids", "messages"])
def test_a_prompt_has_to_be_there(small, name):
    with pytest.raises(RequestError, match="no prompt was given"):
        read(small, max_tokens=3)
    with pytest.raises(RequestError, match=f"{name} is empty"):
        read(small, **{name: []})


@pytest.mark.parametrize(
    ("guide_type", "guide", "expected"),
    [
        ("json", "", {"json_object": True}),
        ("json_schema", '{"type": "object"}', {"json": {"type": "object"}}),
        ("regex", "a+", {"regex": "a+"}),
        ("ebnf_grammar", 'root ::= "a"', {"grammar": 'root ::= "a"'}),
        ("structural_tag", '{"format": {}}', {"structural_tag": {"format": {}}}),
    ],
)
def test_guides(small, guide_type, guide, expected):
    found = params(small, guided_decoding_guide_type=guide_type, guided_decoding_guide=guide)
    assert found.guided_decoding == GuidedDecodingParams(**expected)
    found.guided_decoding.check(512)


@pytest.mark.parametrize("thinking", [None, True, False])
def test_conversations_are_encoded_by_segments(text, thinking):
    markup = Markup.resolve(text.tokenizer)
    given = {} if thinking is None else {"thinking": thinking}
    ask = read(
        text,
        messages=json.dumps(MESSAGES),
        tools=json.dumps(TOOLS),
        guided_decoding_guide_type="json",
        **given,
    )
    thinks = thinking is not False
    segments = encode_segments(MESSAGES, TOOLS, thinks)
    assert ask.prompts == [markup.encode(segments, text.tokenizer)]
    assert ask.prompts[0][-1] == (markup.think if thinks else markup.end_think)
    (found,) = ask.params
    assert found.guided_decoding.start_after == (markup.end_think if thinks else None)


def test_each_conversation_has_its_own_effort(text):
    said = json.dumps(MESSAGES)
    ask = read(text, messages=[said, said], reasoning_effort=["max", ""])
    high, plain = ask.prompts
    assert len(high) > len(plain)


def test_illegal_conversations(text, small):
    with pytest.raises(RequestError, match="messages is no JSON"):
        read(text, messages="[")
    with pytest.raises(RequestError) as caught:
        read(text, messages='[{"role": "user", "content": 5}]')
    assert caught.value.parameter == "messages[0].content"
    with pytest.raises(UnsupportedInput, match="messages can not be used: the tokenizer has no"):
        read(small, messages=json.dumps(MESSAGES))
    with pytest.raises(RequestError, match="messages needs a tokenizer and this engine has none"):
        read(ModelText(EOS, None), messages=json.dumps(MESSAGES))
