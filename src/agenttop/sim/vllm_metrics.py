"""`/metrics` of vLLM 0.32 from the state of a simulated engine: names, labels and types as captured.

Left out is what the simulation does not know: FLOPs, tokens per iteration, preemptions by request, and the
families of the web framework. Times are simulated; the time stamps of `_created` are the wall clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agenttop.sim.books import Histogram
from agenttop.sim.wire import Facts, View

_Rows = Sequence[tuple[str, float]]


class _Page:
    """A text exposition in the making."""

    def __init__(self, model: str, created: float) -> None:
        self.model = f'model_name="{model}"'
        self._created = created
        self._lines: list[str] = []

    def bytes(self) -> bytes:
        """The page."""
        return ("\n".join(self._lines) + "\n").encode()

    def line(self, text: str) -> None:
        """A line as it is."""
        self._lines.append(text)

    def head(self, name: str, kind: str, text: str) -> None:
        """A family begins."""
        self._lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]

    def row(self, name: str, value: float, more: str = "") -> None:
        """One series. `more`: labels beside the common ones, written as they are."""
        self._lines.append(f"{name}{{{self._joined(more)}}} {value!r}")

    def gauge(self, name: str, text: str, rows: _Rows) -> None:
        """A gauge; each row: further labels and value."""
        self.head(name, "gauge", text)
        for more, value in rows:
            self.row(name, float(value), more)

    def counter(self, name: str, text: str, rows: _Rows) -> None:
        """A counter, and the twin that tells since when it counts."""
        self.head(f"{name}_total", "counter", text)
        for more, value in rows:
            self.row(f"{name}_total", float(value), more)
        self._twin(name, text, [more for more, _ in rows])

    def histogram(self, name: str, text: str, values: Histogram) -> None:
        """A histogram with its buckets, count and sum."""
        self.head(name, "histogram", text)
        below = 0
        bounds = [repr(bound) for bound in values.bounds] + ["+Inf"]
        for bound, count in zip(bounds, values.counts, strict=True):
            below += count
            self.row(f"{name}_bucket", float(below), f'le="{bound}"')
        self.row(f"{name}_count", float(below))
        self.row(f"{name}_sum", float(values.total))
        self._twin(name, text, [""])

    def _twin(self, name: str, text: str, labels: Sequence[str]) -> None:
        self.head(f"{name}_created", "gauge", text)
        for more in labels:
            self.row(f"{name}_created", self._created, more)

    def _joined(self, more: str) -> str:
        """All labels in the order of their names, as vLLM prints them."""
        return ",".join(sorted(filter(None, ('engine="0"', self.model, more))))


def exposition(facts: Facts, view: View) -> bytes:
    """The whole page."""
    model = facts.model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    page = _Page(model, view.started_unix)
    page.head("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.")
    page.line(f"process_start_time_seconds {view.started_unix!r}")
    _requests(page, view)
    _cache(page, view)
    _tokens(page, view)
    for name, text, values in _histograms(view):
        page.histogram(f"vllm:{name}", text, values)
    _cache_config(page, facts)
    return page.bytes()


def _requests(page: _Page, view: View) -> None:
    state = view.state
    page.gauge("vllm:num_requests_running", "Requests in the batch.", [("", state.running)])
    page.gauge("vllm:num_requests_waiting", "Requests in the queue.", [("", state.waiting)])
    page.gauge(
        "vllm:num_requests_waiting_by_reason",
        "Requests in the queue by reason.",
        [('reason="capacity"', state.waiting), ('reason="deferred"', 0)],
    )
    page.gauge(
        "vllm:engine_sleep_state",
        "Whether the engine sleeps.",
        [
            ('sleep_state="awake"', 1),
            ('sleep_state="weights_offloaded"', 0),
            ('sleep_state="discard_all"', 0),
        ],
    )


def _cache(page: _Page, view: View) -> None:
    state = view.state
    used = state.kv_used_tokens / state.kv_total_tokens if state.kv_total_tokens else 0.0
    page.gauge("vllm:kv_cache_usage_perc", "KV cache in use, 1 is all of it.", [("", min(1.0, used))])
    for name, text, value in (
        ("prefix_cache_queries", "Tokens looked up in the prefix cache.", state.prefix_queries_total),
        ("prefix_cache_hits", "Tokens found in the prefix cache.", state.prefix_hits_total),
        ("external_prefix_cache_queries", "Tokens looked up in an external prefix cache.", 0),
        ("external_prefix_cache_hits", "Tokens found in an external prefix cache.", 0),
        ("mm_cache_queries", "Items looked up in the multi-modal cache.", 0),
        ("mm_cache_hits", "Items found in the multi-modal cache.", 0),
        ("num_preemptions", "Preemptions.", state.preemptions_total),
    ):
        page.counter(f"vllm:{name}", text, [("", value)])


def _tokens(page: _Page, view: View) -> None:
    state = view.state
    computed = max(0, state.prompt_tokens_total - state.cached_tokens_total)
    page.counter("vllm:prompt_tokens", "Prompt tokens processed.", [("", state.prompt_tokens_total)])
    sources = {
        "local_compute": computed,
        "local_cache_hit": state.cached_tokens_total,
        "external_kv_transfer": 0,
    }
    page.counter("vllm:prompt_tokens_by_source", "Prompt tokens by source.", _by("source", sources))
    page.counter(
        "vllm:prompt_tokens_cached", "Prompt tokens from a cache.", [("", state.cached_tokens_total)]
    )
    tiers = {"device": state.cached_tokens_total, "host": 0, "p2p": 0, "disk": 0, "external_unspecified": 0}
    page.counter("vllm:prompt_tokens_cached_by_source", "Prompt tokens by cache tier.", _by("source", tiers))
    page.counter("vllm:generation_tokens", "Output tokens.", [("", state.generation_tokens_total)])
    ended = {**view.books.ended, "repetition": 0}
    page.counter("vllm:request_success", "Requests by how they ended.", _by("finished_reason", ended))
    # This family has no engine label, as admission comes before the engines.
    page.head("vllm:admission_rejections_total", "counter", "Requests rejected by a limit of the queue.")
    for reason in ("max_num_queued_reqs", "max_num_queued_tokens"):
        page.line(f'vllm:admission_rejections_total{{{page.model},reason="{reason}"}} 0.0')


def _by(label: str, values: Mapping[str, int]) -> list[tuple[str, float]]:
    return [(f'{label}="{name}"', value) for name, value in values.items()]


def _histograms(view: View) -> list[tuple[str, str, Histogram]]:
    books = view.books
    return [
        ("request_prompt_tokens", "Prompt tokens of a request.", books.prompt_tokens),
        ("request_generation_tokens", "Output tokens of a request.", books.output_tokens),
        (
            "request_max_num_generation_tokens",
            "Output tokens of a request, all choices.",
            books.output_tokens,
        ),
        ("request_params_max_tokens", "max_tokens as asked.", books.asked_tokens),
        ("time_to_first_token_seconds", "Time to the first token.", books.first_token),
        ("inter_token_latency_seconds", "Time between two tokens.", books.between_tokens),
        ("request_time_per_output_token_seconds", "Mean time of an output token.", books.per_output_token),
        ("e2e_request_latency_seconds", "Time of a whole request.", books.whole),
        ("request_queue_time_seconds", "Time in the queue.", books.queued),
        ("request_inference_time_seconds", "Time from the queue to the end.", books.inference),
        ("request_prefill_time_seconds", "Time from the queue to the first token.", books.prefill),
        ("request_decode_time_seconds", "Time from the first to the last token.", books.decode),
        ("request_prefill_kv_computed_tokens", "Prompt tokens computed.", books.computed_tokens),
    ]


def _cache_config(page: _Page, facts: Facts) -> None:
    options = facts.options
    labels = {
        "block_size": options.block_tokens,
        "cache_dtype": "auto" if options.kv_type in ("f16", "bf16") else options.kv_type,
        "effective_attention_block_size": options.block_tokens,
        "enable_prefix_caching": options.prefix_cache,
        "engine": 0,
        "gpu_memory_utilization": options.gpu_memory_utilization,
        "kv_cache_max_concurrency": round(facts.pool_tokens / facts.context_limit, 3),
        "kv_cache_size_tokens": facts.pool_tokens,
        "num_gpu_blocks": facts.pool_tokens // options.block_tokens,
        "num_gpu_blocks_override": None,
        "prefix_caching_hash_algo": "sha256",
    }
    page.head("vllm:cache_config_info", "gauge", "How the KV cache is set up.")
    text = ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
    page.line(f"vllm:cache_config_info{{{text}}} 1.0")
