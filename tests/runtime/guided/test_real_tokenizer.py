"""The tokenizer of the release: what a good model would say is allowed, token by token."""

import json

import pytest

from dsv4_trt.runtime.guided.compiler import GrammarCompiler
from dsv4_trt.runtime.guided.tool_grammar import required_tools_tag
from dsv4_trt.runtime.sampling.guided_decoding import GuidedDecodingParams
from tests.runtime.guided.walks import allowed_ids, params

VOCAB, EOS = 129280, 1
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "born": {"type": "integer"},
        "works": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "born"],
}
TOOLS = [
    {"type": "function", "function": {"name": "write", "parameters": PERSON}},
    {"type": "function", "function": {"name": "now"}},
]
CALLS = """

<｜DSML｜tool_calls>
<｜DSML｜invoke name="write">
<｜DSML｜parameter name="name" string="true">Ada </b> "Lovelace"\n\t日本</｜DSML｜parameter>
<｜DSML｜parameter name="born" string="false">1815</｜DSML｜parameter>
<｜DSML｜parameter name="works" string="false">["notes", "\\n"]</｜DSML｜parameter>
</｜DSML｜invoke>
<｜DSML｜invoke name="now">

</｜DSML｜invoke>
</｜DSML｜tool_calls>"""


@pytest.fixture(scope="module")
def real(tokenizer):
    compiler = GrammarCompiler(tokenizer, VOCAB, EOS)
    yield compiler
    compiler.close()


def marks_allowed(guide, tokenizer):
    return tokenizer.added_ids & set(allowed_ids(guide.bitmask))


def test_json_as_models_write_it(real, tokenizer):
    guided = GuidedDecodingParams(json=PERSON)
    value = {"name": 'Ada "L" </think>', "born": 1815, "works": ["日本", "a\nb\tc"]}
    for indent, ascii in ((None, False), (2, True)):
        guide = real.compile(guided).begin(params(guided))
        for token_id in tokenizer.encode(json.dumps(value, indent=indent, ensure_ascii=ascii)):
            if token_id in tokenizer.added_ids:  # a text that spells one has it spelled otherwise
                for part in (*tokenizer.encode("</"), *tokenizer.encode("think>")):
                    assert part in allowed_ids(guide.bitmask)
                    guide.advance(part)
                continue
            assert token_id in allowed_ids(guide.bitmask), tokenizer.decode([token_id])
            assert not marks_allowed(guide, tokenizer)
            guide.advance(token_id)
        assert allowed_ids(guide.bitmask) == [EOS]


def test_tool_calls_as_the_model_writes_them(real, tokenizer):
    (dsml,) = tokenizer.encode("｜DSML｜")
    tag = required_tools_tag(TOOLS, dsml_token_id=dsml)
    guided = GuidedDecodingParams(structural_tag=tag)
    guide = real.compile(guided).begin(params(guided))
    for token_id in tokenizer.encode(CALLS):
        allowed = allowed_ids(guide.bitmask)
        assert token_id in allowed, tokenizer.decode([token_id])
        assert tokenizer.added_ids & set(allowed) <= {dsml}
        guide.advance(token_id)
    assert allowed_ids(guide.bitmask) == [EOS]
