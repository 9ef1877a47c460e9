"""Sequences that follow a grammar: alone and in company, forked, preempted, and however they end."""

import re

import pytest

from dsv4_trt.errors import EngineFault, RequestError
from dsv4_trt.runtime.guided.compiler import GrammarCompiler
from dsv4_trt.runtime.sampling.guided_decoding import GuidedDecodingParams
from dsv4_trt.runtime.sampling.row_state import SampledToken
from dsv4_trt.runtime.text.text_stream import TextStream
from tests.runtime.executor.fake_engine import SPEC, VOCAB, FakeEngine
from tests.runtime.executor.fake_reference import FakeSampler, draw
from tests.runtime.executor.serving import Serving, check_invariants, prompt, request
from tests.runtime.guided.walks import allowed_ids, tiny_tokenizer

PATTERN = "[a-f]{10,30}(xy){0,5}z"


class MaskedSampler(FakeSampler):
    """Takes the next token after the best one that the bitmask allows, as a sampler would one of them."""

    def _one(self, best, row):
        token = super()._one(best, row)
        if isinstance(token, EngineFault) or row.bitmask is None:
            return token
        allowed = set(allowed_ids(row.bitmask))
        if row.must_not_end:
            allowed -= set(row.params.end_token_ids(row.eos_token_id))
        if not allowed:
            return RequestError("no token is left")
        wanted = draw(best, row)
        return SampledToken(min(allowed, key=lambda i: (i - wanted) % VOCAB), 0.0)


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


@pytest.fixture(scope="module")
def grammars(tokenizer):
    compiler = GrammarCompiler(tokenizer, VOCAB, SPEC.eos_token_id)
    yield compiler
    compiler.close()


@pytest.fixture
def serve(grammars, tokenizer):
    def start(*args, **options):
        serving = Serving(*args, **options)
        serving.executor.grammars = grammars
        serving.executor._new_text = lambda params: TextStream(tokenizer, params, SPEC.eos_token_id)
        serving.sampler = serving.executor.sampler = MaskedSampler()
        return serving

    return start


def guided(name, prompt_ids, pattern=PATTERN, *, start_after=None, **params):
    chosen = GuidedDecodingParams(regex=pattern, start_after=start_after)
    options = {"ignore_eos": False, "max_tokens": 200, "guided_decoding": chosen, **params}
    return request(name, prompt_ids, **options)


def text_of(serving, tokenizer, name, index=0):
    return tokenizer.decode(serving.tokens[name, index], skip_special=True)


def test_an_output_matches_and_ends(serve, tokenizer):
    serving = serve().finish(guided("a", prompt(30)))
    assert re.fullmatch(PATTERN, text_of(serving, tokenizer, "a"))
    assert serving.tokens["a", 0][-1] == SPEC.eos_token_id
    assert serving.reasons["a", 0] == "stop"
    assert serving.updates[-1].stop_reason == SPEC.eos_token_id
    serving.check_no_leak()


def test_each_of_n_sequences_follows_its_own(serve, tokenizer):
    serving = serve(seqs=3).finish(guided("a", prompt(200), n=8, temperature=1.0, seed=1))
    texts = [text_of(serving, tokenizer, "a", i) for i in range(8)]
    assert all(re.fullmatch(PATTERN, text) for text in texts)
    assert len(set(texts)) == 8
    assert set(serving.reasons.values()) == {"stop"}
    serving.check_no_leak()


def test_company_is_not_touched(serve, tokenizer):
    alone = serve().finish(guided("g", prompt(9, 1)))
    serving = serve(tokens=64)
    others = [request(f"o{n}", prompt(20 * n + 3, n), max_tokens=30, n=2) for n in range(3)]
    serving.finish(*others, guided("g", prompt(9, 1)), check=True)
    assert serving.tokens["g", 0] == alone.tokens["g", 0]
    del serving.requests["g"]
    serving.check_outputs()


def test_after_being_preempted_it_goes_on_where_it_was(serve, tokenizer):
    pattern = "[a-f]{100}z"
    ask = [guided(f"g{n}", prompt(500, n), pattern) for n in range(4)]
    alone = {one.request_id: serve().finish(one).tokens[one.request_id, 0] for one in ask}
    serving = serve(FakeEngine((1024,) * 2)).finish(*ask)
    assert serving.scheduler.num_preempted > 0
    for name, tokens in alone.items():
        assert serving.tokens[name, 0] == tokens
        assert re.fullmatch(pattern, text_of(serving, tokenizer, name))
    serving.check_no_leak()


def test_reasoning_first(serve, tokenizer):
    """Free, never ended by the end of text, until the marker; then the grammar."""
    (mark,) = tokenizer.encode("!")
    serving = serve().finish(
        *(guided(f"g{n}", prompt(20, n), "ab", start_after=mark, max_tokens=400) for n in range(5))
    )
    for n in range(5):
        ids = serving.tokens[f"g{n}", 0]
        start = ids.index(mark)
        assert SPEC.eos_token_id not in ids[:start]
        assert tokenizer.decode(ids[start + 1 :], skip_special=True) == "ab"
        assert serving.reasons[f"g{n}", 0] == "stop"
    assert len({serving.tokens[f"g{n}", 0].index(mark) for n in range(5)}) > 1


@pytest.mark.parametrize("params", [{"ignore_eos": True}, {"min_tokens": 50}])
def test_a_complete_output_ends_even_where_no_token_may_end_it(serve, tokenizer, params):
    serving = serve().finish(guided("a", prompt(30), "abc", **params))
    assert text_of(serving, tokenizer, "a") == "abc"
    assert len(serving.tokens["a", 0]) == 3
    assert serving.reasons["a", 0] == "stop"
    assert serving.updates[-1].stop_reason is None
    assert "".join(update.text for update in serving.updates) == "abc"


def test_min_tokens_where_the_grammar_can_go_on(serve, tokenizer):
    serving = serve().finish(guided("a", prompt(30), "a+", min_tokens=25, max_tokens=60))
    assert len(serving.tokens["a", 0]) >= 25
    assert set(text_of(serving, tokenizer, "a")) == {"a"}


def test_stop_strings_and_token_limits_end_it_early(serve, tokenizer):
    serving = serve().finish(
        guided("stop", prompt(30), "abcdef", stop="cd"), guided("full", prompt(9), max_tokens=5)
    )
    assert serving.reasons == {("stop", 0): "stop", ("full", 0): "length"}
    assert text_of(serving, tokenizer, "stop") == "abcd"
    assert len(serving.tokens["full", 0]) == 5
    ends = {update.request_id: update for update in serving.updates if update.finished}
    assert ends["stop"].stop_reason == "cd"


def test_a_token_that_the_grammar_does_not_allow_ends_its_sequence_alone(serve, tokenizer):
    serving = serve()
    good, bad = guided("good", prompt(30)), guided("bad", prompt(30), "abcabcabc", n=2)

    class Blind(MaskedSampler):
        def _one(self, best, row):
            if (row.name, row.index, len(row.output_ids)) == ("bad", 1, 4):
                return SampledToken(tokenizer.encode("!")[0], 0.0)
            return super()._one(best, row)

    serving.executor.sampler = Blind()
    serving.finish(good, bad)
    assert isinstance(serving.errors.pop(("bad", 1)), EngineFault)
    assert not serving.errors
    assert text_of(serving, tokenizer, "bad") == "abcabcabc"
    assert len(serving.tokens["bad", 1]) == 4
    assert serving.reasons["good", 0] == "stop"
    serving.check_no_leak()


def test_what_is_no_grammar_is_refused_before_it_is_queued(serve):
    serving = serve()
    with pytest.raises(RequestError, match="parenthesis") as caught:
        serving.submit(guided("a", prompt(9), "(a"))
    assert caught.value.parameter == "guided_decoding.regex"
    assert not serving.executor.has_work
    assert serving.executor.metrics.requests_accepted == 0


def test_without_a_tokenizer_it_is_refused():
    serving = Serving()
    with pytest.raises(RequestError, match="needs a tokenizer") as caught:
        serving.submit(guided("a", prompt(9)))
    assert caught.value.parameter == "guided_decoding"


def test_cancelled_in_the_middle(serve):
    serving = serve()
    serving.submit(guided("a", prompt(30), n=3, temperature=1.0, seed=3))
    serving.step(6)
    serving.executor.cancel("a")
    serving.step()
    assert set(serving.reasons.values()) == {"cancelled"}
    check_invariants(serving.executor)
    serving.check_no_leak()
