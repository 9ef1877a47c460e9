"""The tensors of a source compared with what its config promises: no gap, no leftover, right types.

Nothing but names, dtypes and shapes is looked at; block scales of one checkpoint have one dtype.
"""

from __future__ import annotations

from collections.abc import Iterable

from dsv4_trt.convert.layout import SourceLayout, is_block_scale, scale_dtype_error
from dsv4_trt.convert.names import MTP_COPIES, official_tensors
from dsv4_trt.convert.source import SHOWN, Source
from dsv4_trt.errors import CheckpointError
from dsv4_trt.model_spec import ModelSpec
from dsv4_trt.rank_tensors import TensorSpec
from dsv4_trt.safetensors_file import StoredTensor

MTP_PREFIX = "mtp."
DSPARK_MARKS = ("main_proj", "markov", "confidence")


def check_tensors(
    source: Source, spec: ModelSpec, layout: SourceLayout, *, keep_mtp: bool
) -> dict[str, TensorSpec]:
    """Check every tensor; returns the official tensors to convert, by name.

    `spec` is the source's own (its `expert_dtype` is the layout's). With `keep_mtp` False everything
    under `mtp.` is ignored.

    Raises `CheckpointError` naming the first tensor that is missing, extra or different.
    """
    if keep_mtp:
        refuse_dspark(source, spec)
    _check_mtp_presence(source, spec, keep_mtp=keep_mtp)
    expected = _expected(
        source,
        official_tensors(spec, scale_dtype=layout.scale_dtype, mtp=keep_mtp and spec.has_mtp),
    )
    _check_extra(source, expected, keep_mtp=keep_mtp)
    for tensor in expected.values():
        _check_tensor(source.tensors[tensor.name], tensor, layout)
    return expected


def refuse_dspark(source: Source, spec: ModelSpec) -> None:
    """Raise `CheckpointError` for a DSpark drafter: its `mtp.*` is another network than the MTP block."""
    for name in sorted(source.tensors):
        if not name.startswith(MTP_PREFIX):
            continue
        stage = name.split(".")[1]
        if stage != "0" or any(mark in name for mark in DSPARK_MARKS):
            raise _dspark(f"it has the tensor '{name}'")
    if spec.num_nextn_predict_layers > 1:
        raise _dspark(f"its num_nextn_predict_layers is {spec.num_nextn_predict_layers}")


def _dspark(reason: str) -> CheckpointError:
    return CheckpointError(
        f"this is a DSpark checkpoint ({reason}): its mtp.* is a block drafter of several stages, not "
        "the MTP block of the preview checkpoints, and can not be converted; "
        "use --mtp skip to convert the model without it"
    )


def _check_mtp_presence(source: Source, spec: ModelSpec, *, keep_mtp: bool) -> None:
    present = any(name.startswith(MTP_PREFIX) for name in source.tensors)
    if not keep_mtp or present == spec.has_mtp:
        return
    found = "has" if present else "has no"
    raise CheckpointError(
        f"{source.model_dir} {found} mtp.* tensors, its config.json says num_nextn_predict_layers "
        f"{spec.num_nextn_predict_layers}; use --mtp skip to convert the model without the MTP block"
    )


def _expected(source: Source, official: Iterable[TensorSpec]) -> dict[str, TensorSpec]:
    """The official tensors by name, all of which the source has.

    Looks no further than the source can go: a config that promises billions of experts is soon refused.
    """
    expected, missing = {}, []
    for tensor in official:
        if tensor.name in source.tensors:
            expected[tensor.name] = tensor
        else:
            missing.append(tensor)
            if len(missing) > len(source.tensors):
                break
    if missing:
        raise _missing(source, missing)
    return expected


def _missing(source: Source, missing: list[TensorSpec]) -> CheckpointError:
    tensor = missing[0]
    first = tensor.name
    what = f"tensor '{first}' is missing"
    if is_block_scale(first) and _weight_of(first) in source.tensors:
        what = f"scale '{first}' of the quantized weight '{_weight_of(first)}' is missing"
    more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
    return CheckpointError(
        f"{source.model_dir}: {what}{more}; expected {tensor.dtype} {list(tensor.shape)}; "
        "fetch the checkpoint again or check that config.json belongs to it"
    )


def _check_extra(source: Source, expected: dict[str, TensorSpec], *, keep_mtp: bool) -> None:
    extra = sorted(
        name
        for name in source.tensors
        if name not in expected
        and not (name in MTP_COPIES if keep_mtp else name.startswith(MTP_PREFIX))
    )
    if not extra:
        return
    more = f" and {len(extra) - SHOWN} more" if len(extra) > SHOWN else ""
    raise CheckpointError(
        f"{source.model_dir} has {len(extra)} tensors that its config.json does not account for: "
        f"{', '.join(extra[:SHOWN])}{more}; every tensor must be used exactly once, check that "
        "config.json belongs to this checkpoint"
    )


def _check_tensor(found: StoredTensor, expected: TensorSpec, layout: SourceLayout) -> None:
    if found.dtype != expected.dtype and is_block_scale(expected.name):
        raise scale_dtype_error(expected.name, found.dtype, expected.dtype, layout.expert_dtype)
    if (found.dtype, found.shape) != (expected.dtype, expected.shape):
        raise CheckpointError(
            f"{found.path}: tensor '{expected.name}' is {found.dtype} {list(found.shape)}; "
            f"expected {expected.dtype} {list(expected.shape)} by config.json"
        )


def check_copies(source: Source) -> list[tuple[StoredTensor, StoredTensor]]:
    """The MTP copies of shared tensors that are there, each with its original, to be compared.

    Raises `CheckpointError` where dtype or shape differ already.
    """
    pairs = []
    for copy, shared in MTP_COPIES.items():
        if copy not in source.tensors:
            continue
        one, other = source.tensors[copy], source.tensors[shared]
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            raise CheckpointError(
                f"'{copy}' is {one.dtype} {list(one.shape)}, '{shared}' is {other.dtype} "
                f"{list(other.shape)}; expected equal copies, use --mtp skip to leave the MTP block out"
            )
        pairs.append((one, other))
    return pairs


def _weight_of(scale: str) -> str:
    return scale.removesuffix(".scale") + ".weight"
