"""The layer schedule of a config: what each layer attends to, and which layers route by token id.

The hub spells it `compress_ratios` and `num_hash_layers`; transformers 5 spells it `layer_types` with
`compress_rates`, and `mlp_layer_types`. Either is read; where both are present they must agree.
"""

from __future__ import annotations

from dsv4_trt.errors import ConfigError
from dsv4_trt.json_fields import Fields
from dsv4_trt.model_spec import LayerKind

LAYER_TYPES = {
    "sliding_attention": LayerKind.SWA,
    "compressed_sparse_attention": LayerKind.CSA,
    "heavily_compressed_attention": LayerKind.HCA,
}
# entries past the layers: none, one for the MTP block, three for the stages of a DSpark drafter
TRAILING = (0, 1, 3)


def read_compress_ratios(config: Fields, num_layers: int) -> tuple[int, ...]:
    """Compress ratio of each trunk layer."""
    named = _from_layer_types(config, num_layers) if config.has("layer_types") else None
    if named is not None and not config.has("compress_ratios"):
        return named
    listed = _from_ratios(config, num_layers)
    if named is not None and named != listed:
        layer = next(i for i in range(num_layers) if named[i] != listed[i])
        raise ConfigError(
            f"{config.name}: 'layer_types' gives layer {layer} the ratio {named[layer]}, "
            f"'compress_ratios' gives it {listed[layer]}; expected the two to agree"
        )
    return listed


def _from_ratios(config: Fields, num_layers: int) -> tuple[int, ...]:
    legal = tuple(int(kind) for kind in LayerKind)
    lengths = ", ".join(str(num_layers + extra) for extra in TRAILING)
    expected = f"a list of {lengths} entries, each one of {legal}"
    ratios = config.sequence("compress_ratios", expected)
    for at, ratio in enumerate(ratios):
        if type(ratio) is not int or ratio not in legal:
            raise config.refusal(f"compress_ratios[{at}]", ratio, f"one of {legal}")
    if len(ratios) - num_layers not in TRAILING:
        raise ConfigError(
            f"{config.name}: 'compress_ratios' has {len(ratios)} entries; "
            f"expected {lengths} for {num_layers} layers"
        )
    for at in range(num_layers, len(ratios)):
        if ratios[at] != 0:
            raise config.refusal(
                f"compress_ratios[{at}]", ratios[at], f"0 past the {num_layers} layers"
            )
    return tuple(ratios[:num_layers])


def _from_layer_types(config: Fields, num_layers: int) -> tuple[int, ...]:
    rates = config.section("compress_rates", "the ratio of each compressed layer type")
    for name, kind in LAYER_TYPES.items():
        if kind is not LayerKind.SWA and rates.value(name, str(int(kind))) != kind:
            raise rates.refusal(name, rates.data[name], str(int(kind)))
    types = _typed_layers(config, "layer_types", tuple(LAYER_TYPES), num_layers)
    return tuple(int(LAYER_TYPES[name]) for name in types)


def read_num_hash_layers(config: Fields, num_layers: int) -> int:
    """How many of the first layers take their experts from the token-id table."""
    named = _from_mlp_types(config, num_layers) if config.has("mlp_layer_types") else None
    if named is not None and not config.has("num_hash_layers"):
        return named
    count = config.integer("num_hash_layers", minimum=0)
    if count > num_layers:
        raise config.refusal("num_hash_layers", count, f"at most the {num_layers} layers")
    if named is not None and named != count:
        raise config.refusal("num_hash_layers", count, f"{named}, as 'mlp_layer_types' says")
    return count


def _from_mlp_types(config: Fields, num_layers: int) -> int:
    types = _typed_layers(config, "mlp_layer_types", ("hash_moe", "moe"), num_layers)
    count = types.count("hash_moe")
    if "hash_moe" in types[count:]:
        raise config.refusal("mlp_layer_types", types, "every 'hash_moe' before every 'moe'")
    return count


def _typed_layers(config: Fields, key: str, legal: tuple[str, ...], num_layers: int) -> list[str]:
    types = config.sequence(key, f"a list of {num_layers} layer types")
    for at, name in enumerate(types):
        if name not in legal:
            raise config.refusal(f"{key}[{at}]", name, f"one of {', '.join(legal)}")
    if len(types) != num_layers:
        raise ConfigError(f"{config.name}: '{key}' has {len(types)} entries; expected {num_layers}")
    return types
