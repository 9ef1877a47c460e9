#!/usr/bin/env bash
# From a random checkpoint in the official format to text, with everything in ./demo. $1: the program.
set -euo pipefail

dsv4=$(realpath "${1:?usage: demo.sh PATH_OF_DSV4_TRT}")
cd "$(dirname "$0")/.."
prompt="The sky is"

step() {
    local shown="dsv4-trt" word
    for word in "$@"; do
        case $word in *' '*) shown+=" \"$word\"" ;; *) shown+=" $word" ;; esac
    done
    if [ -t 1 ]; then shown=$'\033[1m'"$shown"$'\033[0m'; fi
    printf '\n$ %s\n' "$shown"
    "$dsv4" "$@"
}

rm -rf demo/hf demo/checkpoint demo/engine # of an earlier run
mkdir -p demo
step make-checkpoint --preset tiny --seed 0 --output_dir demo/hf
step convert --model_dir demo/hf --output_dir demo/checkpoint
step build --checkpoint_dir demo/checkpoint --output_dir demo/engine --max_seq_len 4096
step generate --engine_dir demo/engine --prompt "$prompt" --max_tokens 16 --seed 0 --device cpu

cat <<TEXT

Weights are random, so the text is noise; the way there is the real one.

  demo/hf           checkpoint in the official layout, with the V4 tokenizer
  demo/checkpoint   rank checkpoint: config.json and rank0.safetensors in kernel layout
  demo/engine       engine bundle: graph, config, manifest, tokenizer, weights

What to run next (. .venv/bin/activate first, or write .venv/bin/dsv4-trt):

  dsv4-trt inspect demo/engine
  dsv4-trt generate --engine_dir demo/engine --prompt "$prompt" --temperature 0 --logprobs 3
  dsv4-trt serve --engine_dir demo/engine        (needs the extra: .venv/bin/pip install -e '.[serve]')
  dsv4-trt convert --model_dir YOUR_CHECKPOINT --output_dir CKPT --tp_size 8 --dry-run
  dsv4-trt doctor
TEXT
