"""Small official checkpoints that tests can take apart and write back wrong."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from dsv4_trt.convert.conversion import ConvertOptions, prepare
from dsv4_trt.convert.pipeline import convert
from dsv4_trt.convert.random_checkpoint import write_random_checkpoint
from dsv4_trt.dtypes import DType
from dsv4_trt.mapping import Mapping
from dsv4_trt.presets import TINY
from dsv4_trt.safetensors_file import read_header

# every kind of layer, hash and score routing, MTP; legal for tp 1, 2 and any ep
MICRO = replace(
    TINY,
    vocab_size=64,
    hidden_size=128,
    num_hidden_layers=3,
    num_hash_layers=1,
    num_attention_heads=4,
    head_dim=128,
    q_lora_rank=128,
    o_groups=4,
    o_lora_rank=128,
    index_n_heads=2,
    index_head_dim=64,
    n_routed_experts=4,
    num_experts_per_tok=2,
    moe_intermediate_size=256,
    compress_ratios=(0, 4, 128),
    expert_dtype="fp4",
)
MICRO_FP8 = replace(MICRO, expert_dtype="fp8")
LAYOUTS = {
    "instruct": {"spec": MICRO},
    "base": {"spec": MICRO_FP8, "scale_dtype": DType.F32, "base_copies": True},
    "fp8-e8m0": {"spec": MICRO_FP8},
}


def make(folder, layout="instruct", **changes):
    arguments = {**LAYOUTS[layout], "seed": 3, "shard_bytes": 1 << 20, **changes}
    write_random_checkpoint(arguments.pop("spec"), folder, **arguments)
    return folder


@dataclass
class Loose:
    """A checkpoint in memory: tensors as (dtype, shape, bytes), the shard of each, the config."""

    tensors: dict = field(default_factory=dict)
    shards: dict = field(default_factory=dict)
    config: dict = field(default_factory=dict)
    extra_index: dict = field(default_factory=dict)

    @staticmethod
    def load(folder):
        loose = Loose(config=json.loads((folder / "config.json").read_text()))
        for path in sorted(folder.glob("*.safetensors")):
            data = path.read_bytes()
            for t in read_header(path).tensors:
                loose.tensors[t.name] = (
                    str(t.dtype),
                    t.shape,
                    data[t.start : t.start + t.nbytes],
                )
                loose.shards[t.name] = path.name
        return loose

    def remove(self, name):
        del self.tensors[name], self.shards[name]

    def add(self, name, dtype, array, shard=None):
        self.tensors[name] = (dtype, array.shape, np.ascontiguousarray(array).tobytes())
        self.shards.setdefault(name, shard or min(self.shards.values()))

    def array(self, name, dtype):
        _, shape, data = self.tensors[name]
        return np.frombuffer(data, dtype).reshape(shape).copy()

    def write(self, folder, index=True):
        folder.mkdir()
        for shard in set(self.shards.values()):
            mine = {n: t for n, t in self.tensors.items() if self.shards[n] == shard}
            write_safetensors(folder / shard, mine)
        if index:
            weight_map = {**self.shards, **self.extra_index}
            (folder / "model.safetensors.index.json").write_text(
                json.dumps({"metadata": {}, "weight_map": weight_map})
            )
        (folder / "config.json").write_text(json.dumps(self.config))
        return folder


def header_bytes(entries):
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


def write_safetensors(path: Path, tensors):
    entries, blobs, at = {}, [], 0
    for name, (dtype, shape, data) in tensors.items():
        entries[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [at, at + len(data)],
        }
        blobs.append(data)
        at += len(data)
    path.write_bytes(header_bytes(entries) + b"".join(blobs))


def options(model_dir, output_dir, tp=1, ep=1, **choices):
    mapping = Mapping(tp_size=tp, moe_ep_size=ep)
    return ConvertOptions(model_dir=model_dir, output_dir=output_dir, mapping=mapping, **choices)


def run(model_dir, output_dir, **choices):
    return convert(prepare(options(model_dir, output_dir, **choices)))


def left_behind(folder):
    """Names in the folder of an output, hidden ones too."""
    return sorted(path.name for path in folder.iterdir())
