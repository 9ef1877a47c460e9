"""How many pages sequences will want, where the exact number is not known yet or not worth computing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dsv4_trt.kv_layout import Bucket, CacheClass, ClassLayout
from dsv4_trt.kv_mix import mean_window_pages
from dsv4_trt.runtime.batch import IntArray

Need = dict[Bucket, int]


class Demand:
    """Page counts by bucket over all layers of some classes."""

    def __init__(self, classes: Sequence[ClassLayout]) -> None:
        self._full = [kv for kv in classes if kv.window is None]
        self._windows = [kv for kv in classes if kv.window is not None]
        self._layers = dict.fromkeys(Bucket, 0)
        for kv in classes:
            self._layers[kv.bucket] += len(kv.layers)
        self._most = {kv.cache_class: float(kv.window_pages) for kv in self._windows}
        self._mean = {kv.cache_class: float(mean_window_pages(kv)) for kv in self._windows}

    def most_for_decodes(self, num_seqs: int) -> Need:
        """Upper bound of what a token for each sequence takes: a page in every class and layer."""
        return {bucket: num_seqs * layers for bucket, layers in self._layers.items()}

    def to_finish_prompt(self, num_computed: int, length: int) -> Need:
        """What a sequence takes that goes on from `num_computed` tokens to `length`."""
        need = dict.fromkeys(Bucket, 0)
        for kv in self._full:
            pages = kv.end_page(length) - kv.end_page(num_computed)
            need[kv.bucket] += pages * len(kv.layers)
        for kv in self._windows:
            need[kv.bucket] += (kv.window_pages + kv.tail_pages) * len(kv.layers)
        return need

    def held(self, num_tokens: int) -> Need:
        """What a sequence of that many tokens holds between steps."""
        need = dict.fromkeys(Bucket, 0)
        for kv in (*self._full, *self._windows):
            need[kv.bucket] += kv.pages_for(num_tokens) * len(kv.layers)
        return need

    def to_mean_windows(self, num_tokens: IntArray) -> Need:
        """What these sequences lack if all their windows were as large as they are on average."""
        return self._lack(num_tokens, self._mean)

    def to_most_windows(self, num_tokens: IntArray) -> Need:
        """What these sequences lack if all their windows were as large as they can be."""
        return self._lack(num_tokens, self._most)

    def _lack(self, num_tokens: IntArray, pages: Mapping[CacheClass, float]) -> Need:
        lack = dict.fromkeys(Bucket, 0.0)
        for kv in self._windows:
            missing = num_tokens.size * pages[kv.cache_class] - int(kv.pages_for(num_tokens).sum())
            lack[kv.bucket] += missing * len(kv.layers)
        return {bucket: max(0, round(count)) for bucket, count in lack.items()}


def add(*needs: Need) -> Need:
    """The sum of page counts, bucket by bucket."""
    return {bucket: sum(need[bucket] for need in needs) for bucket in Bucket}
