"""`dsv4-trt logits`: logits of given token ids into a safetensors file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dsv4_trt.cli.kernels import prepare_kernels
from dsv4_trt.cli.options import (
    PATH,
    checkpoint_dir_option,
    device_option,
    engine_dir_option,
    json_option,
    option,
    precision_option,
)
from dsv4_trt.cli.progress import progress
from dsv4_trt.cli.published import published
from dsv4_trt.errors import CapacityError, RequestError

if TYPE_CHECKING:
    import torch

    from dsv4_trt.runtime.logits_prompt import LogitsPrompt


@click.command()
@engine_dir_option
@option("--prompts", required=True, type=PATH, help="JSON list of prompts.")
@option(
    "--output", required=True, type=PATH, help="A .safetensors file; one that is there is replaced."
)
@precision_option
@option("--positions", type=click.Choice(["all", "last"]), default="all", help="Rows to keep.")
@option("--decode", type=click.IntRange(min=0), default=0, help="Steps of one token each.")
@option("--chunk", type=click.IntRange(min=0), default=0, help="Prefill tokens a step; 0 = most.")
@click.option("--mtp", is_flag=True, help="Also the logits of the MTP block.")
@device_option
@checkpoint_dir_option
@json_option
def command(
    engine_dir: Path,
    prompts: Path,
    output: Path,
    precision: str,
    positions: str,
    decode: int,
    chunk: int,
    mtp: bool,
    device: str,
    checkpoint_dir: Path | None,
    as_json: bool,
) -> None:
    """Write the logits of prompts given as token ids.

    PROMPTS is a JSON list of {"id": "a", "token_ids": [0, 17], "forced_ids": [5]}; forced_ids are
    optional and are fed while decoding instead of the greedy tokens. The output holds fp32 tensors
    ID, ID.decode, ID.mtp and ID.mtp_decode, each [positions, vocabulary].

    \b
    Example:
      dsv4-trt logits --engine_dir ENGINE --prompts P.json --output OUT.safetensors --decode 4
    """
    from dsv4_trt.kv_plan import plan_for_sequences
    from dsv4_trt.runtime.bundle import open_bundle
    from dsv4_trt.runtime.logits_prompt import LogitsOptions, check_prompt

    wanted = read_prompts(prompts)
    options = LogitsOptions(all_positions=positions == "all", decode=decode, chunk=chunk, mtp=mtp)
    bundle = open_bundle(engine_dir, precision=precision, checkpoint_dir=checkpoint_dir)
    for prompt in wanted:
        check_prompt(bundle, prompt, options)

    from dsv4_trt.runtime.logits import (
        prompt_logits,  # torch takes seconds; prompts are checked first
    )
    from dsv4_trt.runtime.open import open_engine

    prepare_kernels(bundle, device)
    longest = max(len(prompt.token_ids) for prompt in wanted) + decode
    tensors: dict[str, torch.Tensor] = {}
    tokens = sum(len(prompt.token_ids) + decode for prompt in wanted)
    with published("--output", output, ".safetensors") as partial:
        plan = plan_for_sequences(bundle.layout, [longest])
        engine = open_engine(bundle, plan, device=device)
        with progress("prompts", tokens, unit="tokens") as advance:
            for prompt in wanted:
                tensors |= prompt_logits(engine, prompt, options)
                advance(len(prompt.token_ids) + decode)
        _save(tensors, partial)
    if as_json:
        shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
        click.echo(json.dumps({"output": str(output), "tensors": shapes}))
    else:
        click.echo(f"wrote {len(tensors)} tensors to {output}")


def _save(tensors: dict[str, torch.Tensor], path: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    mode = path.stat().st_mode
    try:
        save_file({name: t.cpu().contiguous() for name, t in tensors.items()}, path)
    except SafetensorError as error:
        raise CapacityError(f"{path} can not be written: {error}") from error
    path.chmod(mode)  # the library replaces the file by one that only its owner can read


def read_prompts(path: Path) -> list[LogitsPrompt]:
    """Read and check the prompts file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(f"--prompts {path} can not be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise RequestError(f"--prompts {path} is not JSON: {error}") from None
    if not isinstance(data, list) or not data:
        raise RequestError(
            f"{path} holds no prompts; expected a list of objects with id, token_ids"
        )
    found = [_prompt(path, item) for item in data]
    names = [prompt.id for prompt in found]
    if len(set(names)) != len(names):
        raise RequestError(f"{path} uses an id twice; ids name tensors and must differ")
    return found


def _prompt(path: Path, item: object) -> LogitsPrompt:
    from dsv4_trt.runtime.logits_prompt import SUFFIXES, LogitsPrompt

    keys = {"id", "token_ids", "forced_ids"}
    if not isinstance(item, dict) or not {"id", "token_ids"} <= set(item) or set(item) - keys:
        raise RequestError(
            f"{path} holds {json.dumps(item)[:80]}; expected the keys id, token_ids and, if wanted, "
            "forced_ids"
        )
    for key in ("token_ids", "forced_ids"):
        ids = item.get(key, [])
        if not isinstance(ids, list) or any(type(token) is not int for token in ids):
            raise RequestError(f"{key} of prompt '{item['id']}' is not a list of whole numbers")
    name = item["id"]
    if not isinstance(name, str) or not name:
        raise RequestError(f"{path} has the id {name!r}; expected a non-empty string")
    if name.endswith(SUFFIXES) or name == "__metadata__" or not name.isprintable():
        raise RequestError(
            f"{path} has the id {name!r}, which can not name tensors of the output; expected "
            f"printable text that is not __metadata__ and ends in none of {', '.join(SUFFIXES)}"
        )
    return LogitsPrompt(
        id=name,
        token_ids=tuple(item["token_ids"]),
        forced_ids=tuple(item.get("forced_ids", [])),
    )
