"""Which token ids a growing text holds and how often, each new token at a constant cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


class TokenCounts:
    """Distinct token ids with their counts: those of `first` sorted, then new ones as they come."""

    def __init__(self, first: Sequence[int] = ()) -> None:
        self._ids, self._counts = np.unique(np.asarray(first, dtype=np.int64), return_counts=True)
        self._counts = self._counts.astype(np.int64, copy=False)
        self._place = {token_id: at for at, token_id in enumerate(self._ids.tolist())}
        self._num_followed = 0

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        """Each id once `[num_ids]`; a view, to be read before the next `follow`."""
        return self._ids[: len(self._place)]

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """How often each of `ids` came, at least 1 `[num_ids]`; a view as well."""
        return self._counts[: len(self._place)]

    def follow(self, growing: Sequence[int]) -> None:
        """Count what was appended to a list, always the same one, since the last call."""
        done, self._num_followed = self._num_followed, len(growing)
        assert done <= len(growing), f"{done} tokens were counted, {len(growing)} are left"
        for token_id in growing[done:]:
            self._add(token_id)

    def _add(self, token_id: int) -> None:
        at = self._place.get(token_id)
        if at is not None:
            self._counts[at] += 1
            return
        at = len(self._place)
        if at == len(self._ids):
            self._grow(max(2 * at, 16))
        self._place[token_id] = at
        self._ids[at], self._counts[at] = token_id, 1

    def _grow(self, size: int) -> None:
        """Room for `size` ids; doubling makes the copies cost a constant per id."""
        more = (0, size - len(self._ids))
        self._ids, self._counts = np.pad(self._ids, more), np.pad(self._counts, more)
