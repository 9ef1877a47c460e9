"""The tensors of the Triton model as data: what clients may send, under which names, and what they get.

Names are those of TensorRT-LLM's two repositories, the ensemble with its raw model and the one over the
LLM API, and a few of our own.
"""

from __future__ import annotations

from dataclasses import dataclass

STRING, BOOL, INT32, UINT64, FP32 = (
    "TYPE_STRING",
    "TYPE_BOOL",
    "TYPE_INT32",
    "TYPE_UINT64",
    "TYPE_FP32",
)


@dataclass(frozen=True, slots=True)
class Field:
    """One thing that a request may say, and the input tensors that say it."""

    data_type: str
    names: tuple[str, ...]


def _sampling(data_type: str, name: str, *more: str) -> Field:
    return Field(data_type, (name, *more, f"sampling_param_{name}"))


FIELDS = {
    # prompts: exactly one of the three
    "text": Field(STRING, ("text_input",)),
    "input_ids": Field(INT32, ("input_ids",)),
    "messages": Field(STRING, ("messages",)),
    "input_lengths": Field(INT32, ("input_lengths",)),
    # `messages`
    "tools": Field(STRING, ("tools",)),
    "thinking": Field(BOOL, ("thinking",)),
    "reasoning_effort": Field(STRING, ("reasoning_effort",)),
    # how the request is served
    "streaming": Field(BOOL, ("stream", "streaming")),
    "stop": Field(BOOL, ("stop",)),
    "priority": Field(FP32, ("priority",)),
    "cache_salt": Field(STRING, ("cache_salt",)),
    # how tokens are chosen
    "max_tokens": _sampling(INT32, "max_tokens", "request_output_len"),
    "min_tokens": _sampling(INT32, "min_tokens", "min_length"),
    "temperature": _sampling(FP32, "temperature"),
    "top_k": _sampling(INT32, "top_k", "runtime_top_k"),
    "top_p": _sampling(FP32, "top_p", "runtime_top_p"),
    "min_p": _sampling(FP32, "min_p"),
    "repetition_penalty": _sampling(FP32, "repetition_penalty"),
    "presence_penalty": _sampling(FP32, "presence_penalty"),
    "frequency_penalty": _sampling(FP32, "frequency_penalty"),
    "seed": _sampling(UINT64, "seed", "random_seed"),
    "n": Field(INT32, ("num_return_sequences", "n", "sampling_param_n")),
    "bias_words": Field(STRING, ("embedding_bias_words",)),
    "bias_weights": Field(FP32, ("embedding_bias_weights",)),
    "guide_type": Field(STRING, ("guided_decoding_guide_type",)),
    "guide": Field(STRING, ("guided_decoding_guide",)),
    # when it ends
    "stop_words": Field(STRING, ("stop_words", "sampling_param_stop")),
    "stop_token_ids": _sampling(INT32, "stop_token_ids"),
    "end_id": _sampling(INT32, "end_id"),
    "ignore_eos": _sampling(BOOL, "ignore_eos"),
    # what comes back
    "excludes_prompt": Field(
        BOOL,
        (
            "exclude_input_in_output",
            "exclude_input_from_output",
            "sampling_param_exclude_input_from_output",
        ),
    ),
    "pad_id": _sampling(INT32, "pad_id"),
    "return_log_probs": Field(BOOL, ("return_log_probs",)),
    "return_cumulative_logprob": Field(BOOL, ("return_cumulative_logprob",)),
    "return_finish_reason": Field(BOOL, ("return_finish_reason",)),
    "return_stop_reason": Field(BOOL, ("return_stop_reason",)),
    "return_num_input_tokens": Field(BOOL, ("return_num_input_tokens",)),
    "return_num_output_tokens": Field(BOOL, ("return_num_output_tokens",)),
    "return_output_ids": Field(BOOL, ("return_output_ids",)),
}

FIELD_OF = {name: key for key, field in FIELDS.items() for name in field.names}


@dataclass(frozen=True, slots=True)
class Refused:
    """An input of TensorRT-LLM's that is only accepted where it asks for nothing."""

    data_type: str
    neutral: tuple[object, ...]  # values that ask for nothing
    remedy: str


_BEAMS = "there is no beam search; use num_return_sequences for several sequences"
_LORA = "there are no LoRA adapters; merge the adapter into the checkpoint before it is converted"
_LOGITS = "logits are not served; use `dsv4-trt logits`, or return_log_probs"
_PERF = "it is not reported by request; Triton's metrics have the engine's"
_LISTS = "token lists are not taken; give stop_words, or stop_token_ids"

REFUSED = {
    "beam_width": Refused(INT32, (0, 1), _BEAMS),
    "length_penalty": Refused(FP32, (0.0, 1.0), _BEAMS),
    "len_penalty": Refused(FP32, (0.0, 1.0), _BEAMS),
    "early_stopping": Refused(BOOL, (False,), _BEAMS),
    "beam_search_diversity_rate": Refused(FP32, (0.0,), _BEAMS),
    "sampling_param_best_of": Refused(INT32, (0, 1), _BEAMS),
    "bad_words": Refused(
        STRING,
        ("",),
        "words are not banned; embedding_bias_words with a weight of -100 keeps their tokens away",
    ),
    "bad_words_list": Refused(INT32, (), _LISTS),
    "stop_words_list": Refused(INT32, (), _LISTS),
    "return_context_logits": Refused(BOOL, (False,), _LOGITS),
    "return_generation_logits": Refused(BOOL, (False,), _LOGITS),
    "return_perf_metrics": Refused(BOOL, (False,), _PERF),
    "sampling_param_return_perf_metrics": Refused(BOOL, (False,), _PERF),
    "return_kv_cache_reuse_stats": Refused(BOOL, (False,), _PERF),
    "lora_task_id": Refused(UINT64, (), _LORA),
    "lora_id": Refused(UINT64, (), _LORA),
    "lora_name": Refused(STRING, ("",), _LORA),
    "lora_path": Refused(STRING, ("",), _LORA),
    "decoder_text_input": Refused(STRING, ("",), "the model has no encoder; use text_input"),
    "image_url": Refused(STRING, ("",), "the model reads text alone; leave it out"),
}

INPUT_TYPES = {name: FIELDS[key].data_type for name, key in FIELD_OF.items()} | {
    name: refused.data_type for name, refused in REFUSED.items()
}


@dataclass(frozen=True, slots=True)
class Output:
    """An output tensor: one value for each sequence in a response, or a row of them."""

    data_type: str
    is_row: bool = False  # one further dimension: tokens


OUTPUTS = {
    "text_output": Output(STRING),
    "batch_index": Output(INT32),
    "sequence_index": Output(INT32),
    "finish_reason": Output(STRING),
    "stop_reason": Output(STRING),
    "cum_log_probs": Output(FP32),
    "cumulative_logprob": Output(FP32),
    "output_log_probs": Output(FP32, is_row=True),
    "num_input_tokens": Output(INT32),
    "num_output_tokens": Output(INT32),
    "output_ids": Output(INT32, is_row=True),
    "sequence_length": Output(INT32),
}
