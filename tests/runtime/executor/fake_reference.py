"""What the fake engine must say, from the tokens alone, and a sampler for it. No pages, no batches."""

from dsv4_trt.errors import EngineFault
from dsv4_trt.runtime.sampling.row_state import RowState, SampledToken
from tests.runtime.executor.fake_engine import (
    MASK,
    POWERS,
    SPEC,
    SWA_AGES,
    VOCAB,
    WEIGHTS,
    scramble,
)

_WEIGHTS, _POWERS = WEIGHTS.tolist(), POWERS.tolist()


class History:
    """A sequence's tokens and their running sums."""

    def __init__(self, tokens):
        self.tokens, self.sums = [], [0]
        for token in tokens:
            self.append(token)

    def append(self, token):
        term = _WEIGHTS[token] * _POWERS[len(self.tokens)]
        self.tokens.append(token)
        self.sums.append((self.sums[-1] + term) & MASK)

    def best(self):
        """The token that comes next."""
        tokens, sums, count = self.tokens, self.sums, len(self.tokens)
        digest = scramble(sums[-1])
        for nth, age in enumerate((*SWA_AGES, (sums[-1] >> 20) % 127 + 1)):
            if count > age:
                digest += _WEIGHTS[tokens[-1 - age]] << (nth + 1) & MASK
        for nth, (ratio, pooled) in enumerate(((4, None), (4, 8), (128, 128))):
            if count >= ratio:
                end = ((sums[-1] >> 9 * nth) % (count // ratio) + 1) * ratio
                begin = 0 if pooled is None else max(0, end - pooled)
                digest += scramble((sums[end] - sums[begin]) & MASK) << nth & MASK
        return scramble(digest & MASK) % VOCAB


def expected(prompt, params, index=0):
    """Tokens and finish reason of one sequence that nothing disturbs."""
    history = History(prompt)
    row = RowState(
        name="", params=params, eos_token_id=SPEC.eos_token_id, prompt_ids=prompt, index=index
    )
    ends = params.end_token_ids(SPEC.eos_token_id)
    while len(row.output_ids) < params.max_tokens:
        token = draw(history.best(), row)
        history.append(token)
        row.output_ids.append(token)
        if token in ends and len(row.output_ids) > params.min_tokens:
            return row.output_ids, "stop"
    return row.output_ids, "length"


def draw(best, row):
    """Greedy, or any token at all by the row's own random number."""
    if row.params.temperature == 0:
        return best
    return (best + int(row.uniform() * VOCAB)) % VOCAB


class FakeSampler:
    """See `executor.TokenSampler`. `bad` holds (name, index, output tokens so far) of rows that fail."""

    def __init__(self):
        self.bad = set()
        self.raises = False

    def sample(self, logits, rows):
        if self.raises:
            raise FloatingPointError("the fake sampler was told to fail")
        best = logits.argmax(axis=-1).tolist()
        return [self._one(token, row) for token, row in zip(best, rows, strict=True)]

    def _one(self, best, row):
        if (row.name, row.index, len(row.output_ids)) in self.bad:
            return EngineFault(f"row {row.name} was told to fail")
        return SampledToken(draw(best, row), 0.0)
