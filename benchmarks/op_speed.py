"""How fast each op is: against its floor, against the best public kernels, against unfused torch.

Every op of the library on shapes of Flash (some of Pro), timed in CUDA graphs with cold and with warm
caches; peers, where this machine has them, in the same run and in turn with ours.
docs/performance.md says how to read the numbers.

    python benchmarks/op_speed.py --quick
    python benchmarks/op_speed.py --ops 'compress|indexer' --no-peers
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import traceback
from typing import Any

import torch
from op_speed_parts import kit, rows, tables
from op_speed_parts.case import Case
from op_speed_parts.timing import device_works
from results_file import circumstances, parser_of, require_gpu, write


def main() -> int:
    args = _arguments()
    if args.build_peer:
        return _build_peer(args.build_peer)
    torch.set_grad_enabled(False)
    cases = [
        c for c in tables.cases() if re.search(args.ops, c.name) and (c.quick or not args.quick)
    ]
    if not cases:
        raise SystemExit(f"no case matches --ops {args.ops!r}; --list shows all")
    if args.list:
        print(*(case.name for case in cases), sep="\n")
        return 0
    require_gpu()
    if args.compile_peers:
        return _compile_peers(cases, *args.compile_peers)
    about = circumstances("op_speed", args.note) | {"gpu": torch.cuda.get_device_name(0)}
    results, failed = _measure(cases, args)
    if results:
        bar = rows.bar(results)
        for name, ratio in bar["below"].items():
            print(f"below the bar of {bar['ratio']}: {name}: {ratio:.2f}")
        about |= {"ops": args.ops, "quick": args.quick, "bar": bar, "failed": failed}
        write(args.name, about | {"rows": results})
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--ops", default="", help="regular expression: op and case of the rows")
    parser.add_argument("--no-peers", action="store_true", help="ours and eager torch alone")
    parser.add_argument("--quick", action="store_true", help="fewer sizes, fewer repeats")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no case after so long")
    parser.add_argument("--list", action="store_true", help="print the cases and stop")
    parser.add_argument(
        "--build-peer", choices=kit.SOURCES, help="compile one of DSV4_PEERS and stop"
    )
    parser.add_argument(
        "--compile-peers",
        type=_share,
        metavar="I/N",
        help="let every N-th peer, from the I-th on, compile its kernels into its cache, and stop",
    )
    return parser.parse_args()


def _measure(
    cases: list[Case], args: argparse.Namespace
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Rows, and what went wrong with cases that have none."""
    from dsv4_trt.runtime.cuda.open import device_library  # needs cuda-python

    library = device_library()
    options = rows.Options(
        rounds=11 if args.quick else 15,
        most_sets=512 if args.quick else 1536,
        peers=not args.no_peers,
    )
    results: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    print(rows.HEADER)
    began = time.monotonic()
    for case in cases:
        if time.monotonic() - began > args.seconds:
            failed[case.name] = "no time was left"
            continue
        torch.manual_seed(0)
        try:
            results.append(rows.measure(library, case, options))
            print(rows.line(results[-1]), flush=True)
        except Exception as error:
            failed[case.name] = f"{type(error).__name__}: {error}".split("\n")[0]
            print(f"{case.name}: {failed[case.name]}", flush=True)
            traceback.print_exc(limit=-4, file=sys.stderr)
            if not device_works():
                break
        rows.free()
    return results, failed


def _share(text: str) -> tuple[int, int]:
    index, _, parts = text.partition("/")
    if not (index.isdecimal() and parts.isdecimal() and int(index) < int(parts)):
        raise argparse.ArgumentTypeError(f"'{text}' is no share; expected I/N like 0/4, I below N")
    return int(index), int(parts)


def _build_peer(name: str) -> int:
    try:
        print(kit.build(name))
    except kit.Missing as error:
        raise SystemExit(f"{name} can not be compiled: {error}") from error
    return 0


def _compile_peers(cases: list[Case], index: int, parts: int) -> int:
    peers = {peer.compiled: peer for case in cases for peer in case.peers if peer.compiled}
    for name in sorted(peers)[index::parts]:
        try:
            peers[name].build(1)[0]()
            torch.cuda.synchronize()
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}".split("\n")[0], file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
