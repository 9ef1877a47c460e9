"""What must hold of a cache and its model at any moment, whatever was done to it."""

import numpy as np

from dsv4_trt.kv_layout import LOGICAL_BLOCK


class KvChecks:
    """The checks of `KvModel`; each asserts."""

    def owners(self, kv):
        return self.order[kv.cache_class] * 1000 + np.arange(len(kv.layers))

    def check_places(self, kv, pages, entries, history):
        """Entries of pages `[layers, n]` hold just these histories."""
        assert (pages >= 0).all(), f"{kv.cache_class}: a token that is needed has no page"
        pool = self.pools[kv.bucket]
        assert (pool.holders()[pages] + pool.keepers()[pages] > 0).all(), "a free page is needed"
        assert (self.owner[kv.bucket][pages] == self.owners(kv)[:, None]).all(), kv.cache_class
        found = self.written[kv.bucket][pages, entries]
        assert (found == history).all(), f"{kv.cache_class}: wrong contents"

    def check_windows(self, seq, tokens, after=False):
        """Each window, in the ring before or after the step."""
        for kv in self.layout.classes.values():
            if kv.window is not None:
                kept = np.arange(kv.first_token(tokens), tokens)
                columns = kv.window_pages * after + kept // kv.tokens_per_page % kv.window_pages
                pages = self.cache.tables[kv.cache_class][:, seq.row, columns]
                self.check_places(kv, pages, kept % kv.tokens_per_page, seq.history[kept])

    def check_entries(self, seq, tokens):
        """All entries that `tokens` tokens complete."""
        for kv in self.layout.classes.values():
            if kv.window is None:
                entries = np.arange(tokens // kv.ratio)
                columns = entries // kv.entries_per_page
                pages = self.cache.tables[kv.cache_class][:, seq.row, columns]
                last = seq.history[(entries + 1) * kv.ratio - 1]
                self.check_places(kv, pages, entries % kv.entries_per_page, last)

    def check_reads(self, seq):
        tokens = int(self.cache.num_tokens[seq.row])
        assert tokens == len(seq.tokens)
        self.check_entries(seq, tokens)
        for after in (False, True):
            self.check_windows(seq, tokens, after)

    def snapshot(self):
        """Held pages and everything that sequences own."""
        held = {b: pool.num_held for b, pool in self.pools.items()}
        tables = {c: table.copy() for c, table in self.cache.tables.items()}
        holders = {b: pool.holders() for b, pool in self.pools.items()}
        return held, tables, holders, self.cache.num_tokens.copy()

    def check_unchanged(self, before):
        held, tables, holders, num_tokens = before
        assert held == {b: pool.num_held for b, pool in self.pools.items()}
        for cache_class, table in self.cache.tables.items():
            np.testing.assert_array_equal(table, tables[cache_class])
        for bucket, pool in self.pools.items():
            np.testing.assert_array_equal(pool.holders(), holders[bucket])
        np.testing.assert_array_equal(self.cache.num_tokens, num_tokens)

    def check_no_holder_lost(self):
        """The counts that pools keep are those of their pages."""
        for pool in self.pools.values():
            free = pool.free_pages()
            assert np.unique(free).size == free.size
            assert not pool.holders()[free].any()
            assert not pool.keepers()[free].any()
            held, kept = pool.holders() > 0, pool.keepers() > 0
            assert pool.num_held == np.count_nonzero(held)
            assert pool.num_cached == np.count_nonzero(kept & ~held)
            assert pool.num_free + pool.num_held + pool.num_cached == pool.num_pages
            assert pool.num_available == pool.num_free + pool.num_cached

    def check(self):
        """Everything that holds between steps."""
        self.check_no_holder_lost()
        self.check_tables()
        self.check_tree()
        self.check_roles()
        for seq in self.sequences.values():
            self.check_reads(seq)
            self.check_next_pages(seq)

    def check_tables(self):
        """Tables hold pages where the number of tokens says so, -1 everywhere else."""
        assert len(self.sequences) + self.cache.num_free_rows == self.cache.size.max_seqs
        for kv in self.layout.classes.values():
            table = self.cache.tables[kv.cache_class]
            here = np.zeros(table.shape[1:], np.bool_)
            for row in range(table.shape[1]):
                assert self.cache.is_open(row) == (row in self.sequences)
                here[row, self.columns(kv, row)] = True
            assert (table[:, here] >= 0).all(), kv.cache_class
            assert (table[:, ~here] == -1).all(), kv.cache_class
            if kv.window is not None:
                ring = kv.window_pages
                np.testing.assert_array_equal(table[..., :ring], table[..., ring : 2 * ring])

    def logical_pages(self, kv, row):
        tokens = int(self.cache.num_tokens[row])
        return np.arange(kv.first_page(tokens), kv.end_page(tokens))

    def columns(self, kv, row):
        pages = self.logical_pages(kv, row)
        if kv.window is None:
            return pages
        return np.concatenate([pages, pages + 0]) % kv.window_pages + np.repeat(
            [0, kv.window_pages], pages.size
        )

    def check_roles(self):
        """Holders are the places that reach a page; a page has one class, layer and logical page."""
        reach = {b: np.zeros(p.num_pages, np.int64) for b, p in self.pools.items()}
        kept = {b: np.zeros(p.num_pages, np.int64) for b, p in self.pools.items()}
        role = {b: np.full(p.num_pages, -1, np.int64) for b, p in self.pools.items()}
        for kv in self.layout.classes.values():
            for row in self.sequences:
                logical = self.logical_pages(kv, row)
                columns = logical % (kv.window_pages if kv.window is not None else 10**6)
                pages = self.cache.tables[kv.cache_class][:, row, columns]
                np.add.at(reach[kv.bucket], pages, 1)
                self.check_role(kv, role[kv.bucket], pages, logical)
        for block in self.prefix.blocks().values():
            for cache_class, pages in block.pages.items():
                kv = self.layout[cache_class]
                np.add.at(kept[kv.bucket], pages, 1)
                self.check_role(kv, role[kv.bucket], pages[:, None], np.array([block.depth - 1]))
        for tail in self.prefix.tails():
            for cache_class, pages in tail.pages.items():
                kv = self.layout[cache_class]
                np.add.at(kept[kv.bucket], pages, 1)
                first, end = kv.first_page(tail.num_tokens), kv.end_page(tail.num_tokens)
                assert pages.shape == (end - first, len(kv.layers))
                self.check_role(kv, role[kv.bucket], pages.T, np.arange(first, end))
        for bucket, pool in self.pools.items():
            np.testing.assert_array_equal(pool.holders(), reach[bucket])
            np.testing.assert_array_equal(pool.keepers(), kept[bucket])

    def check_role(self, kv, role, pages, logical):
        code = self.owners(kv)[:, None] * 100_000 + logical
        assert np.unique(pages).size == pages.size, f"{kv.cache_class}: one page twice"
        assert ((role[pages] == -1) | (role[pages] == code)).all(), "one page in two roles"
        role[pages] = code

    def check_next_pages(self, seq):
        """What the next token writes to has this holder alone and is not kept."""
        tokens = len(seq.tokens)
        for kv in self.layout.classes.values():
            if tokens % kv.tokens_per_page and kv.pages_for(tokens):
                column = tokens // kv.tokens_per_page
                column = column if kv.window is None else column % kv.window_pages
                pages = self.cache.tables[kv.cache_class][:, seq.row, column]
                assert (self.pools[kv.bucket].holders()[pages] == 1).all(), kv.cache_class
                assert not self.pools[kv.bucket].keepers()[pages].any(), kv.cache_class

    def check_tree(self):
        """Every leaf has a tail; the way to the root is there; contents are the hashes' own."""
        prefix, blocks, children = self.prefix, self.prefix.blocks(), {}
        for block_hash, block in blocks.items():
            assert block.hash == block_hash
            if block.parent is not None:
                assert blocks[block.parent.hash] is block.parent
                children[block.parent.hash] = children.get(block.parent.hash, 0) + 1
            assert block.depth == 1 + (0 if block.parent is None else block.parent.depth)
        for block_hash, block in blocks.items():
            assert block.num_children == children.get(block_hash, 0)
            assert block.num_children or block.tail is not None, "a leaf without a tail"
        tails = {id(b.tail) for b in blocks.values() if b.tail is not None}
        assert tails == {id(tail) for tail in prefix.tails()}
        assert (prefix.num_blocks, prefix.num_tails) == (len(blocks), len(tails))
        for block in blocks.values():
            self.check_block(block)

    def check_block(self, block):
        history = self.block_history[block.hash]
        for cache_class, pages in block.pages.items():
            kv = self.layout[cache_class]
            entries = np.arange(kv.entries_per_page)
            last = history[(entries + 1) * kv.ratio - 1]
            self.check_places(kv, np.repeat(pages[:, None], entries.size, 1), entries, last)
        if block.tail is None:
            return
        end = block.depth * LOGICAL_BLOCK
        for cache_class, pages in block.tail.pages.items():
            kv = self.layout[cache_class]
            kept = np.arange(kv.first_token(end), end)
            where = pages[kept // kv.tokens_per_page - kv.first_page(end)].T
            history_there = history[kept - (end - LOGICAL_BLOCK)]
            self.check_places(kv, where, kept % kv.tokens_per_page, history_there)
