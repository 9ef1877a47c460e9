"""Rotary settings of a config. None has a default: a wrong base shows only after 200 tokens.

The hub spells them `rope_theta`, `compress_rope_theta` and `rope_scaling`; transformers 5 spells them
`rope_parameters.main` and `.compress`. Where both are present they must agree.
"""

from __future__ import annotations

from dsv4_trt.errors import ConfigError
from dsv4_trt.json_fields import Fields
from dsv4_trt.model_spec import RopeSpec
from dsv4_trt.shown import shown

YARN_KEYS = {"factor", "original_max_position_embeddings", "beta_fast", "beta_slow"}
# what may stand beside them; each is checked to change nothing
NEUTRAL_KEYS = {"type", "rope_type", "rope_theta", "partial_rotary_factor", "attention_factor"}


def read_rope(config: Fields, rotary_fraction: float) -> RopeSpec:
    """Rotary settings of both layer kinds; `rotary_fraction` is rotated over all channels of a head."""
    if not config.has("rope_parameters"):
        return _from_hub(config, rotary_fraction)
    rope = _from_transformers(config, rotary_fraction)
    for key, value in (("rope_theta", rope.theta), ("compress_rope_theta", rope.compress_theta)):
        if config.has(key) and config.number(key) != value:
            raise config.refusal(key, config.data[key], f"{value}, as 'rope_parameters' says")
    if config.has("rope_scaling") and _from_hub(config, rotary_fraction) != rope:
        raise ConfigError(
            f"{config.name}: 'rope_scaling' is {shown(config.data['rope_scaling'])} and "
            f"'rope_parameters' is {shown(config.data['rope_parameters'])}; expected the two to agree"
        )
    return rope


def _from_hub(config: Fields, rotary_fraction: float) -> RopeSpec:
    theta = _theta(config, "rope_theta")
    compress_theta = _theta(config, "compress_rope_theta")
    scaling = config.section("rope_scaling", "an object with the YaRN settings")
    return _yarn(scaling, theta, compress_theta, rotary_fraction)


def _from_transformers(config: Fields, rotary_fraction: float) -> RopeSpec:
    both = config.section("rope_parameters", "an object with 'main' and 'compress'")
    main = both.section("main", "the settings of window-only layers")
    compress = both.section("compress", "the YaRN settings of the other layers")
    _check_section(main, "default", rotary_fraction, NEUTRAL_KEYS)
    theta, compress_theta = _theta(main, "rope_theta"), _theta(compress, "rope_theta")
    return _yarn(compress, theta, compress_theta, rotary_fraction)


def _theta(section: Fields, key: str) -> float:
    """A base of the rotation; up to 1 the frequencies would not fall."""
    value = section.number(key)
    if value <= 1:
        raise section.refusal(key, section.data[key], "a number above 1")
    return value


def _yarn(scaling: Fields, theta: float, compress_theta: float, rotary_fraction: float) -> RopeSpec:
    _check_section(scaling, "yarn", rotary_fraction, NEUTRAL_KEYS | YARN_KEYS)
    if scaling.has("rope_theta") and scaling.number("rope_theta") != compress_theta:
        raise scaling.refusal("rope_theta", scaling.data["rope_theta"], f"{compress_theta}")
    return RopeSpec(
        theta=theta,
        compress_theta=compress_theta,
        factor=scaling.number("factor"),
        original_max_position=scaling.integer("original_max_position_embeddings"),
        beta_fast=scaling.number("beta_fast"),
        beta_slow=scaling.number("beta_slow"),
    )


def _check_section(section: Fields, kind: str, rotary_fraction: float, known: set[str]) -> None:
    if not section.has("type"):
        section.value("rope_type", repr(kind))
    section.only("type", kind)
    section.only("rope_type", kind)
    section.only("attention_factor", 1, 1.0)
    section.only("partial_rotary_factor", rotary_fraction)
    unknown = sorted(set(section.data) - known)
    if unknown:
        raise ConfigError(
            f"{section.name}: unknown keys {shown(unknown)}; expected only {sorted(known)}, "
            "because anything else would change the rotation"
        )
