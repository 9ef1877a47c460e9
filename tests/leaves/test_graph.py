"""A graph survives JSON, and `check` refuses what no engine could run."""

from __future__ import annotations

import json

import pytest

from dsv4_trt.dtypes import DType
from dsv4_trt.errors import BuildError
from dsv4_trt.graph import Graph, Node, Value, ValueKind


def value(name, kind=ValueKind.ACTIVATION, dtype=DType.BF16, shape=("num_tokens", 8)):
    return Value(name=name, kind=kind, dtype=dtype, shape=shape)


def node(name, inputs, outputs, **aliases):
    attrs = {"eps": 1e-6, "n": 2}
    return Node(name=name, op="op", inputs=inputs, outputs=outputs, attrs=attrs, aliases=aliases)


def graph():
    pool = {"dtype": DType.I8, "shape": ("num_pages.large", 576)}
    values = [
        value("ids", ValueKind.INPUT, DType.I32, ("num_tokens",)),
        value("w", ValueKind.WEIGHT, DType.F8_E4M3, (8, 8)),
        value("kv", ValueKind.KV, **pool),
        value("kv.1", **pool),
        value("x"),
        value("y"),
    ]
    return Graph(
        name="g",
        values={v.name: v for v in values},
        nodes=[
            node("embed", {"ids": "ids", "w": "w"}, {"out": "x"}),
            node("insert", {"x": "x", "pool": "kv"}, {"out": "kv.1"}, out="pool"),
            node("attend", {"x": "x", "pool": "kv.1"}, {"out": "y"}),
        ],
        outputs={"logits": "y"},
    )


def test_a_sound_graph_passes_and_survives_json():
    before = graph()
    before.check()
    after = Graph.from_json(json.loads(json.dumps(before.to_json())))
    assert after == before
    assert [v.name for v in after.of_kind(ValueKind.KV)] == ["kv"]
    after.check()


def test_a_value_read_before_it_is_written():
    broken = graph()
    broken.nodes.reverse()
    with pytest.raises(BuildError, match="'attend' reads 'x' as 'x' before it is written"):
        broken.check()


def test_a_value_written_twice():
    broken = graph()
    broken.nodes.append(node("again", {"x": "y"}, {"out": "x"}))
    with pytest.raises(BuildError, match="'x' is written twice, by 'again'"):
        broken.check()


def test_an_input_may_not_be_written():
    broken = graph()
    broken.nodes.append(node("again", {"x": "y"}, {"out": "w"}))
    with pytest.raises(BuildError, match="'w' is written twice"):
        broken.check()


def test_an_unknown_value_is_named():
    broken = graph()
    broken.nodes.append(node("last", {"x": "y"}, {"out": "z"}))
    with pytest.raises(BuildError, match="'last' writes unknown value 'z'"):
        broken.check()


@pytest.mark.parametrize("version", ["kv", "kv.1"])
def test_a_pool_version_has_one_consumer(version):
    broken = graph()
    broken.values["late"] = value("late")
    broken.nodes.append(node("second", {"pool": version}, {"out": "late"}))
    with pytest.raises(BuildError, match=f"pool version '{version}' is read by"):
        broken.check()


def test_an_output_that_nothing_writes():
    broken = graph()
    broken.outputs["logits"] = "nothing"
    with pytest.raises(BuildError, match=r"never writes its outputs \['nothing'\]"):
        broken.check()
