"""Names of logical blocks: a chain of hashes, each of which stands for all tokens up to its end."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from dsv4_trt.kv_layout import LOGICAL_BLOCK
from dsv4_trt.runtime.batch import IntArray

_DIGEST_BYTES = 16  # 2**64 blocks until two are expected to collide


def extend_hashes(hashes: list[bytes], token_ids: IntArray, salt: str) -> None:
    """Append the hashes of the complete blocks of `token_ids [n]` that are not in `hashes` yet.

    Requests with different salts never share a block.
    """
    assert token_ids.dtype == np.int32, f"tokens are {token_ids.dtype}; they are hashed as int32"
    for block in range(len(hashes), len(token_ids) // LOGICAL_BLOCK):
        before = hashes[-1] if hashes else b"salt:" + salt.encode("utf-8", "surrogatepass")
        first = block * LOGICAL_BLOCK
        tokens = token_ids[first : first + LOGICAL_BLOCK]
        digest = blake2b(tokens.tobytes(), digest_size=_DIGEST_BYTES)
        digest.update(before)
        hashes.append(digest.digest())
