"""Attention and MoE of one layer as op calls, the way the graph strings them together."""

from dsv4_trt.kv_layout import CacheClass
from dsv4_trt.model_spec import LayerKind
from tests.plugins.op_call import call


class AttentionModule:
    """One layer's attention over paged sequences; `seen` keeps what the last step computed."""

    def __init__(self, weights, precision, paged, layer):
        self.weights, self.precision, self.paged, self.layer = weights, precision, paged, layer
        self.spec = weights.spec
        self.kind = LayerKind(self.spec.compress_ratios[layer])
        self.inv_freq = weights.inv_freq(self.kind)
        self.at = f"layers.{layer}.attn"
        self.act = {"weight_format": "fp8", "act": precision.linear_act}
        self.dtype = str(precision.dtype)
        self.seen = {}

    def __call__(self, x, step):
        spec, at, seen = self.spec, self.at, self.seen
        stacked = self.linear(x, f"{at}.wq_a", f"{at}.wkv")
        normed = call(
            "qkv_norm",
            x=stacked,
            q_weight=self.weights[f"{at}.q_norm.weight"],
            kv_weight=self.weights[f"{at}.kv_norm.weight"],
            eps=spec.rms_norm_eps,
        )
        seen |= self.insert(self.linear(normed["qr"], f"{at}.wq_b"), normed["kv"], step)
        seen["qr"] = normed["qr"]
        if self.kind is LayerKind.CSA:
            seen["topk"] = self.index(x, normed["qr"], step)
        if self.kind is not LayerKind.SWA:
            self.compress(x, f"{at}.compressor", self.entries, step)
        seen["out"] = self.attend(step)
        grouped = call(
            "grouped_linear",
            **self.group_inputs(seen["out"], step),
            **self.weights.fp8(f"{at}.wo_a"),
            groups=spec.o_groups,
            act=self.precision.wo_a_act,
            out_dtype=self.dtype,
        )
        return self.linear(grouped, f"{at}.wo_b")

    @property
    def entries(self):
        return CacheClass.CSA if self.kind is LayerKind.CSA else CacheClass.HCA

    @property
    def quantized(self):
        """Whether the grouped projection takes e4m3, rotated back by the op that quantizes."""
        return self.precision.wo_a_act == "act8_128"

    def group_inputs(self, out, step):
        if not self.quantized:
            return {"x": out}
        found = call("inv_rope_quant", x=out, inv_freq=self.inv_freq, positions=step.positions)
        return {"x": found["out"], "x_scale": found["scale"]}

    def linear(self, x, *prefixes):
        return call("linear", x=x, **self.weights.fp8(*prefixes), **self.act, out_dtype=self.dtype)

    def bf16(self, x, *prefixes, out_dtype):
        weight = self.weights.stacked(*prefixes)
        return call(
            "linear", x=x, weight=weight, weight_format="bf16", act="none", out_dtype=out_dtype
        )

    def row(self, cls):
        return self.paged.layout[cls].layers.index(self.layer)

    def common(self, step):
        names = ("positions", "seq_ids", "table_rows", "query_start", "seq_lens")
        return {n: getattr(step, n) for n in names}

    def insert(self, q, kv, step):
        swa = CacheClass.SWA
        return call(
            "qkv_rope_insert",
            q=q,
            kv=kv,
            inv_freq=self.inv_freq,
            positions=step.positions,
            seq_ids=step.seq_ids,
            table_rows=step.table_rows,
            slot_mapping=step.slots[swa],
            block_table=step.tables[swa],
            pool=self.paged.pool(swa),
            num_heads=self.spec.num_attention_heads,
            D=self.spec.head_dim,
            eps=self.spec.rms_norm_eps,
            format=self.precision.kv,
            layer_row=self.row(swa),
            entries_per_page=self.paged.layout[swa].entries_per_page,
            window_pages=self.paged.layout[swa].window_pages,
        )

    def compress(self, x, prefix, cls, step):
        state = CacheClass(f"{cls}_state")
        layout = self.paged.layout
        index = cls is CacheClass.INDEXER
        call(
            "compress",
            kv_gate=self.bf16(x, f"{prefix}.wkv", f"{prefix}.wgate", out_dtype="F32"),
            ape=self.weights[f"{prefix}.ape"],
            norm_weight=self.weights[f"{prefix}.norm.weight"],
            inv_freq=self.inv_freq,
            **self.common(step),
            state_slot_mapping=step.slots[state],
            state_block_table=step.tables[state],
            state_pool=self.paged.pool(state),
            slot_mapping=step.slots[cls],
            block_table=step.tables[cls],
            pool=self.paged.pool(cls),
            ratio=int(self.kind),
            overlap=2 if self.kind is LayerKind.CSA else 1,
            width=self.spec.index_head_dim if index else self.spec.head_dim,
            hadamard=index,
            act_dtype=self.dtype,
            format=layout[cls].format,
            eps=self.spec.rms_norm_eps,
            layer_row=self.row(cls),
            entries_per_page=layout[cls].entries_per_page,
            state_entries_per_page=layout[state].entries_per_page,
            state_window_pages=layout[state].window_pages,
        )

    def index(self, x, qr, step):
        spec, at, cls = self.spec, f"{self.at}.indexer", CacheClass.INDEXER
        self.compress(x, f"{at}.compressor", cls, step)
        heads, dim, format = spec.index_n_heads, spec.index_head_dim, self.precision.indexer
        queries = call(
            "indexer_q",
            q=self.linear(qr, f"{at}.wq_b"),
            weights=self.bf16(x, f"{at}.weights_proj", out_dtype=self.dtype),
            inv_freq=self.inv_freq,
            positions=step.positions,
            num_heads=heads,
            head_dim=dim,
            row=dim // 2 if format == "fp4" else dim,
            format=format,
            scale=dim**-0.5 * heads**-0.5,
        )
        self.seen["index_q"] = (queries["q"], queries.get("q_scale"))
        self.seen["index_weights"] = queries["weights"]
        return call(
            "index_topk",
            **queries,
            **self.common(step),
            decode_carrier=step.decode_carrier,
            block_table=step.tables[cls],
            pool=self.paged.pool(cls),
            topk=spec.index_topk,
            ratio=int(self.kind),
            head_dim=dim,
            format=format,
            score_dtype=str(self.precision.score_dtype),
            layer_row=self.row(cls),
            entries_per_page=self.paged.layout[cls].entries_per_page,
        )

    def attend(self, step):
        swa, layout = CacheClass.SWA, self.paged.layout
        more = {"layer_row": 0, "entries_per_page": 0}
        if self.kind is not LayerKind.SWA:
            more = {
                "block_table": step.tables[self.entries],
                "pool": self.paged.pool(self.entries),
                "layer_row": self.row(self.entries),
                "entries_per_page": layout[self.entries].entries_per_page,
            }
        return call(
            "sparse_attention",
            q=self.seen["q"],
            kv=self.seen["kv"],
            sinks=self.weights[f"{self.at}.attn_sink"],
            inv_freq=self.inv_freq,
            **self.common(step),
            decode_carrier=step.decode_carrier,
            swa_block_table=step.tables[swa],
            swa_pool=self.paged.pool(swa),
            topk=self.seen.get("topk"),
            ratio=int(self.kind),
            sm_scale=self.spec.head_dim**-0.5,
            window=self.spec.sliding_window,
            format=self.precision.kv,
            prob_dtype=str(self.precision.prob_dtype),
            inverse_rope=not self.quantized,
            swa_layer_row=self.row(swa),
            swa_entries_per_page=layout[swa].entries_per_page,
            swa_window_pages=layout[swa].window_pages,
            **more,
        )


def moe(weights, precision, layer, x, token_ids):
    """Router, routed experts and shared expert; returns everything by name."""
    spec, at = weights.spec, f"layers.{layer}.ffn"
    choice = {"by": "score", "bias": weights.tensors.get(f"{at}.gate.bias")}
    if spec.is_hash_layer(layer):
        choice = {
            "by": "token",
            "tid2eid": weights[f"{at}.gate.tid2eid"].int(),
            "token_ids": token_ids,
        }
    routed = call(
        "router",
        x=x,
        gate=weights[f"{at}.gate.weight"],
        **choice,
        topk=spec.num_experts_per_tok,
        route_scale=spec.routed_scaling_factor,
    )
    swiglu = {"width": spec.moe_intermediate_size, "swiglu_limit": spec.swiglu_limit}
    w13, w13_scale = weights.expert_bank(at, "w1", "w3")
    w2, w2_scale = weights.expert_bank(at, "w2")
    fp4 = spec.expert_dtype == "fp4"
    experts = call(
        "experts",
        x=x,
        **routed,
        expert_map=token_ids.new_tensor(range(spec.n_routed_experts)),
        w13=w13,
        w13_scale=w13_scale,
        w2=w2,
        w2_scale=w2_scale,
        weight_format=spec.expert_dtype,
        pack=2 if fp4 else 1,
        scale_rows=1 if fp4 else 128,
        scale_cols=32 if fp4 else 128,
        act=precision.expert_act,
        **swiglu,
    )
    up = weights.fp8(f"{at}.shared_experts.w1", f"{at}.shared_experts.w3")
    down = weights.fp8(f"{at}.shared_experts.w2")
    shared = call(
        "shared_expert",
        x=x,
        w13=up["weight"],
        w13_scale=up["scale"],
        w2=down["weight"],
        w2_scale=down["scale"],
        act=precision.linear_act,
        out_dtype=str(precision.dtype),
        **swiglu,
    )
    out = call("add", a=experts, b=shared, out_dtype=str(precision.dtype))
    return {**routed, "shared": shared, "out": out}
