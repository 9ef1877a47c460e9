"""`LLM.generate` on the golden model: prompts in every form, lists, reuse, several sequences, text."""

import math
import subprocess
import sys
from threading import Thread

import pytest

from dsv4_trt.errors import BundleMismatch, ConfigError, RequestError
from dsv4_trt.runtime.bundle import open_bundle
from dsv4_trt.runtime.llm import LLM, KvCacheConfig, RequestOutput, SamplingParams
from dsv4_trt.runtime.text.tokenizer import Tokenizer
from tests.runtime.llm.llms import BUILD, greedy, open_llm, write_tokenizer
from tests.workshop import random_ids

PROMPTS = [random_ids(n, seed=n) for n in (3, 40, 7, 150)]


@pytest.fixture(scope="module")
def tokenizer_dir(tmp_path_factory):
    return write_tokenizer(tmp_path_factory.mktemp("llm") / "tokenizer")


@pytest.fixture(scope="module")
def llm(workshop, tiny_a, tokenizer_dir):
    with open_llm(workshop, tiny_a, tokenizer=tokenizer_dir) as llm:
        yield llm


def ids(request, index=0):
    return request.outputs[index].token_ids


@pytest.fixture(scope="module")
def alone(llm):
    return [ids(llm.generate(prompt, greedy(4))) for prompt in PROMPTS]


def test_prompts_together_equal_prompts_one_by_one(llm, alone):
    together = llm.generate(PROMPTS, greedy(4))
    assert [ids(request) for request in together] == alone
    assert [request.prompt_token_ids for request in together] == PROMPTS
    assert all(request.finished for request in together)
    assert {request.outputs[0].finish_reason for request in together} == {"length"}
    assert len({request.request_id for request in together}) == 4


def test_threads_share_an_llm(llm, alone):
    found = {}

    def run(at):
        found[at] = ids(llm.generate(PROMPTS[at], greedy(4)))

    threads = [Thread(target=run, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[at] for at in range(4)] == alone


def test_each_prompt_of_a_list_may_have_its_own_params(llm, alone):
    first, second = llm.generate(PROMPTS[:2], [greedy(2), greedy(3, logprobs=1)])
    assert (ids(first), ids(second)) == (alone[0][:2], alone[1][:3])
    assert first.outputs[0].logprobs == []
    assert [next(iter(best)) for best in second.outputs[0].logprobs] == ids(second)


def test_log_probabilities_are_by_token_id(llm):
    output = llm.generate(PROMPTS[0], greedy(3, logprobs=2)).outputs[0]
    for token_id, best in zip(output.token_ids, output.logprobs, strict=True):
        assert best[token_id].rank == 1
        assert len(best) == 2
    chosen = [best[i].logprob for i, best in zip(output.token_ids, output.logprobs, strict=True)]
    assert math.isclose(output.cumulative_logprob, sum(chosen))
    unlikely = SamplingParams(max_tokens=1, temperature=0, logit_bias={9: 100.0}, logprobs=1)
    (best,) = llm.generate(PROMPTS[0], unlikely).outputs[0].logprobs
    assert best[9].rank is None
    assert best[9].logprob < min(p.logprob for i, p in best.items() if i != 9)


def test_a_second_turn_finds_the_first_in_the_cache(workshop, tiny_a):
    prompt = random_ids(260, seed=8)
    with open_llm(workshop, tiny_a) as llm:
        cold, warm = (llm.generate(prompt, greedy(3)) for _ in range(2))
        salted = llm.generate_async(prompt, greedy(1), cache_salt="other").result()
        metrics = llm.metrics
    assert [request.cached_tokens for request in (cold, warm, salted)] == [0, 256, 0]
    assert ids(cold) == ids(warm)
    assert (metrics["prompt_tokens"], metrics["cached_tokens"]) == (780, 256)
    assert metrics["requests_finished"]["length"] == 3
    assert (metrics["waiting"], metrics["running"]) == (0, 0)


def test_nothing_is_reused_without_block_reuse(workshop, tiny_a):
    config = KvCacheConfig(enable_block_reuse=False)
    with open_llm(workshop, tiny_a, kv_cache_config=config) as llm:
        runs = [llm.generate(random_ids(260, seed=8), greedy(1)) for _ in range(2)]
    assert [request.cached_tokens for request in runs] == [0, 0]


def test_each_of_several_sequences_draws_its_own_numbers(llm):
    def run(n):
        return llm.generate(PROMPTS[1], SamplingParams(n=n, max_tokens=4, seed=5, ignore_eos=True))

    three = run(3)
    sequences = [ids(three, index) for index in range(3)]
    assert [output.index for output in three.outputs] == [0, 1, 2]
    assert len(set(map(tuple, sequences))) == 3
    assert sequences == [ids(run(3), index) for index in range(3)]
    assert ids(run(1)) == sequences[0]


def test_the_prompt_of_several_sequences_counts_once(workshop, tiny_a):
    """Those that find no place compute it from what the first left in the cache, later."""
    with open_llm(workshop, tiny_a, max_batch_size=1) as llm:
        found = llm.generate(random_ids(260, seed=8), greedy(1, n=2))
    assert found.cached_tokens == 0
    assert ids(found, 0) == ids(found, 1)


def test_text_in_text_out(llm, tokenizer_dir):
    tokenizer = Tokenizer.load(tokenizer_dir)
    request = llm.generate({"prompt": "The sky"}, greedy(8))
    assert request.prompt == "The sky"
    assert request.prompt_token_ids == [0, *tokenizer.encode("The sky")]
    assert request.outputs[0].text == tokenizer.decode(ids(request), skip_special=True)
    same = llm.generate({"prompt_token_ids": request.prompt_token_ids}, greedy(8))
    assert (same.prompt, same.outputs[0].text) == (None, request.outputs[0].text)
    text = request.outputs[0].text
    cut = llm.generate("The sky", greedy(8, stop=[text[4:6], "never"])).outputs[0]
    assert cut.text == text[: text.index(text[4:6])]
    assert (cut.finish_reason, cut.stop_reason) == ("stop", text[4:6])


def test_a_stop_token_is_the_reason(llm, alone):
    output = llm.generate(PROMPTS[0], greedy(6, stop_token_ids=[alone[0][2]])).outputs[0]
    assert output.token_ids == alone[0][: alone[0].index(alone[0][2]) + 1]
    assert (output.finish_reason, output.stop_reason) == ("stop", alone[0][2])


def test_nothing_is_generated_for_no_prompts(llm):
    assert llm.generate([]) == []


@pytest.mark.parametrize(
    ("inputs", "params", "message"),
    [
        ([[3], []], None, "no tokens"),
        ([[3], [512]], None, "token id 512"),
        ([[3], [-1]], None, "token id -1"),
        ([[3], [4] * 1000], None, "max_seq_len 1024"),
        ([[3], [4]], [None], "1 sampling params were given for 2 prompts"),
        ([3], [None], "a list of sampling params"),
        ([3], {"max_tokens": 5}, "expected SamplingParams"),
        ([3], SamplingParams(n=0), "n is 0"),
    ],
)
def test_every_request_is_checked_before_the_first_one_runs(llm, inputs, params, message):
    before = llm.metrics["requests_accepted"]
    with pytest.raises(RequestError, match=message):
        llm.generate(inputs, params)
    assert llm.metrics["requests_accepted"] == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"priority": 1.5}, r"priority is 1\.5"),
        ({"priority": "high"}, "priority is 'high'"),
        ({"cache_salt": 5}, "cache_salt is 5"),
        ({"timeout": -1}, "timeout is -1"),
        ({"timeout": float("nan")}, "timeout is nan"),
        ({"timeout": "5"}, "timeout is '5'"),
    ],
)
def test_illegal_options(llm, options, message):
    with pytest.raises(RequestError, match=message):
        llm.generate_async([3], **options)


def test_an_opened_bundle_can_be_given(workshop, tiny_a):
    bundle = open_bundle(workshop.bundle_dir(tiny_a, build=BUILD), precision="exact")
    for option in ({"precision": "exact"}, {"checkpoint_dir": "x"}):
        with pytest.raises(ConfigError, match="when a bundle is opened"):
            LLM(bundle, **option)
    with LLM(bundle, max_seq_len=64, max_batch_size=2, max_num_tokens=16, device="cpu") as llm:
        assert (llm.build.max_seq_len, llm.build.max_num_tokens) == (64, 16)
        assert llm.bundle.precision.name == "exact"
        assert llm.generate([5] * 40, greedy(2)).outputs[0].length == 2
        with pytest.raises(RequestError, match="max_seq_len 64"):
            llm.generate([5] * 63, greedy(2))
        with pytest.raises(RequestError, match="has no tokenizer"):
            llm.generate("text")
        with pytest.raises(RequestError, match="which needs a tokenizer"):
            llm.generate([[5], [5]], [greedy(1), SamplingParams(stop="x")])
        assert llm.metrics["requests_accepted"] == 1


@pytest.mark.parametrize("name", ["max_queue_size", "max_batch_size"])
def test_illegal_sizes(workshop, tiny_a, name):
    with pytest.raises(ConfigError, match=f"{name} is 0"):
        open_llm(workshop, tiny_a, **{name: 0})


def test_a_tokenizer_of_another_model_is_refused(workshop, tiny_a, tmp_path):
    with pytest.raises(BundleMismatch, match="512 token ids and the tokenizer has no token 300"):
        open_llm(workshop, tiny_a, tokenizer=write_tokenizer(tmp_path, 300))


def test_importing_the_api_loads_no_torch():
    code = "import sys, dsv4_trt.runtime.llm; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_results_do_not_keep_the_engine(llm):
    """What a result refers to leads to no executor."""
    request = llm.generate([3], greedy(1))
    assert isinstance(request, RequestOutput)
    assert request._cancel is None
    request.abort()


def test_ranks_in_one_process_generate_what_one_rank_does(workshop, tiny_a):
    params = SamplingParams(n=2, max_tokens=3, seed=5, ignore_eos=True)
    runs = []
    for size in (1, 2):
        engine_dir = workshop.bundle_dir(tiny_a, tp=size, ep=size, build=BUILD)
        with LLM(engine_dir, device="cpu", precision="exact", max_batch_size=4) as llm:
            runs.append(llm.generate(PROMPTS[1], params))
    assert [ids(run, index) for run in runs for index in (0, 1)] == [
        ids(runs[0], index) for index in (0, 1, 0, 1)
    ]
