"""Which pages hold the beginnings of earlier sequences.

A tree of logical blocks, named by the hash chain. A node keeps one page per layer of every class that
keeps all tokens. A *tail* at a node keeps the window pages at the end of its block: only there a later
sequence can begin, so every leaf has a tail, and a block without a tail below it is forgotten.

Tails are forgotten least recently used first (made, hit, or left behind by a sequence that ended).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dsv4_trt.kv_layout import LOGICAL_BLOCK, Bucket, CacheClass
from dsv4_trt.runtime.batch import IntArray
from dsv4_trt.runtime.kv.pool import PagePool
from dsv4_trt.runtime.kv.retention import Retention

PageIds = dict[CacheClass, IntArray]  # by class: [layers] of a block, [pages, layers] of a tail


@dataclass(slots=True, eq=False)
class Block:
    """One cached logical block and its way to the root."""

    hash: bytes
    depth: int  # blocks from the root, itself included
    parent: Block | None
    pages: PageIds
    num_children: int = 0
    tail: Tail | None = None


@dataclass(slots=True, eq=False)
class Tail:
    """The window pages at the end of `block`, where later sequences can begin."""

    block: Block
    pages: PageIds
    maker: tuple[int, int] | None = None  # arrival and index of the sequence that made it
    is_shared: bool = False  # others came by

    @property
    def num_tokens(self) -> int:
        """Tokens that a hit here saves."""
        return self.block.depth * LOGICAL_BLOCK


@dataclass(slots=True)
class PrefixCache:
    """Blocks by hash, tails by age, over the pools that hold their pages."""

    pools: Mapping[Bucket, PagePool]
    bucket_of: Mapping[CacheClass, Bucket]
    _blocks: dict[bytes, Block] = field(init=False, default_factory=dict)
    _tails: OrderedDict[int, Tail] = field(init=False, default_factory=OrderedDict)  # oldest first

    @property
    def num_blocks(self) -> int:
        """Logical blocks in the cache."""
        return len(self._blocks)

    @property
    def num_tails(self) -> int:
        """Tails in the cache."""
        return len(self._tails)

    def blocks(self) -> dict[bytes, Block]:
        """All cached blocks by hash."""
        return dict(self._blocks)

    def tails(self) -> list[Tail]:
        """All tails, least recently used first."""
        return list(self._tails.values())

    def find(self, hashes: Sequence[bytes], max_tokens: int) -> Tail | None:
        """The longest hit of at most `max_tokens` tokens for a sequence with these block hashes."""
        depth = 0
        for block_hash in hashes[: max_tokens // LOGICAL_BLOCK]:
            if block_hash not in self._blocks:
                break
            depth += 1
        for block_hash in reversed(hashes[:depth]):
            tail = self._blocks[block_hash].tail
            if tail is not None:
                return tail
        return None

    def path(self, tail: Tail) -> list[Block]:
        """The blocks from the root to a tail."""
        found: list[Block] = []
        block: Block | None = tail.block
        while block is not None:
            found.append(block)
            block = block.parent
        return found[::-1]

    def add(
        self, hashes: Sequence[bytes], pages_of: Callable[[int], PageIds], tail_pages: PageIds
    ) -> Tail:
        """A tail at the end of the blocks `hashes`, or the one that is there already.

        `pages_of(i)` gives the pages of block i, asked for those that the cache does not have.
        """
        known = len(hashes)
        while known and hashes[known - 1] not in self._blocks:
            known -= 1
        block = self._blocks[hashes[known - 1]] if known else None
        for index in range(known, len(hashes)):
            block = self._add_block(hashes[index], block, pages_of(index))
        assert block is not None, "a tail needs at least one block"
        if block.tail is None:
            block.tail = Tail(block, tail_pages)
            self._keep(tail_pages)
        self.touch(block.tail)
        return block.tail

    def use(self, tail: Tail, user: tuple[int, int]) -> None:
        """A sequence, named by arrival and index, made this tail or begins or passes there."""
        if tail.maker is None:
            tail.maker = user
        tail.is_shared |= tail.maker != user
        self.touch(tail)

    def touch(self, tail: Tail) -> None:
        """This tail is the most recently used one."""
        if tail.block.tail is tail:
            self._tails[id(tail)] = tail
            self._tails.move_to_end(id(tail))

    def forget(self, tail: Tail) -> None:
        """Let go of a tail and of the blocks that lead to no other; nothing if it is gone already."""
        if self._tails.pop(id(tail), None) is None:
            return
        self._let_go(tail.pages)
        tail.block.tail = None
        block: Block | None = tail.block
        while block is not None and block.tail is None and not block.num_children:
            del self._blocks[block.hash]
            self._let_go(block.pages)
            block = block.parent
            if block is not None:
                block.num_children -= 1

    def replace(self, old: Tail | None, new: Tail, retention: Retention) -> None:
        """A sequence that left `old` behind has left `new`: it keeps both only if the policy says so.

        What others use stays.
        """
        if old is None or old is new or old.is_shared or retention.is_lasting(old.num_tokens):
            return
        self.forget(old)

    def make_room(self, need: Mapping[Bucket, int]) -> None:
        """Forget tails, oldest first, until the pools have `need` pages free or nothing is left."""
        while self._tails and any(self.pools[b].num_free < n for b, n in need.items()):
            self.forget(next(iter(self._tails.values())))

    def clear(self) -> None:
        """Forget everything."""
        while self._tails:
            self.forget(next(iter(self._tails.values())))

    def _add_block(self, block_hash: bytes, parent: Block | None, pages: PageIds) -> Block:
        depth = 1 if parent is None else parent.depth + 1
        block = Block(block_hash, depth, parent, pages)
        if parent is not None:
            parent.num_children += 1
        self._blocks[block_hash] = block
        self._keep(pages)
        return block

    def _keep(self, pages: PageIds) -> None:
        for cache_class, ids in pages.items():
            self.pools[self.bucket_of[cache_class]].keep(ids)

    def _let_go(self, pages: PageIds) -> None:
        for cache_class, ids in pages.items():
            self.pools[self.bucket_of[cache_class]].forget(ids)
