"""The live view: gauges, pools, rates, and a server that drains, refuses or is gone."""

import re

from fastapi.responses import JSONResponse
from playwright.sync_api import expect

from dsv4_trt.runtime.metrics import PoolPages
from tests.runtime.server.web.fake_api import error_body

NONE = "\N{EN DASH}"


def value(chat, term):
    return chat.page.locator(
        "#engine dl > div", has=chat.page.get_by_text(term, exact=True)
    ).locator("dd")


def test_gauges_and_counters(open_page, api):
    metrics = api.metrics
    metrics.running, metrics.waiting, metrics.preemptions, metrics.requests_refused = 41, 7, 3, 12
    metrics.requests_accepted = 18234
    metrics.requests_finished.update(stop=17012, length=1101, cancelled=61, timeout=4, error=1)
    metrics.prompt_tokens, metrics.cached_tokens = 1000, 641
    chat = open_page()
    expected = {
        "waiting": "7",
        "refused": "12",
        "preempted": "3",
        "accepted": "18,234",
        "stop": "17,012",
    }
    expected |= {
        "length": "1,101",
        "cancelled": "61",
        "timeout": "4",
        "error": "1",
        "hit rate": "64.1 %",
    }
    expected |= {"max_batch_size": "64", "max_seq_len": "131,072", "in the last minute": NONE}
    for term, text in expected.items():
        expect(value(chat, term)).to_have_text(text)
    running = chat.page.get_by_role("meter", name="Running")
    expect(running).to_have_attribute("aria-valuenow", "41")
    expect(running).to_have_attribute("aria-valuemax", "64")


def test_the_three_pools(chat, api):
    for name, held, cached, free in (
        ("large", 412, 200, 388),
        ("middle", 130, 60, 810),
        ("small", 18, 0, 982),
    ):
        meter = chat.page.get_by_role("meter", name=name)
        expect(meter).to_have_attribute("aria-valuenow", str(held))
        expect(meter).to_have_attribute("aria-valuemax", "1000")
        words = f"{held} held, {cached} cached, {free} free of 1000 pages"
        expect(meter).to_have_attribute("aria-valuetext", words)
        parts = meter.locator(".part").evaluate_all(
            "parts => parts.map((part) => part.style.width)"
        )
        assert parts == [f"{held / 10:g}%", f"{cached / 10:g}%"]
    api.metrics.pages = {"large": PoolPages(held=1, cached=0, free=3)}
    large = chat.page.get_by_role("meter", name="large")
    expect(large).to_have_attribute("aria-valuetext", "1 held, 0 cached, 3 free of 4 pages")


def test_rates_of_the_last_seconds(chat, api):
    """A second passes between two questions, so that a jump of a counter is the rate."""
    api.metrics.output_tokens += 1000
    api.metrics.prompt_tokens += 400
    api.metrics.cached_tokens += 100
    api.metrics.step_seconds.observe(0.02)
    api.metrics.step_seconds.observe(0.04)
    speed = chat.page.locator(".figure")
    expect(speed).not_to_have_text("0")
    expect(speed).not_to_have_text(NONE)
    assert 300 < float(speed.inner_text().replace(",", "")) <= 1200
    expect(value(chat, "step")).to_have_text("30.0 ms")
    expect(value(chat, "in the last minute")).to_have_text("25.0 %")
    expect(value(chat, "TTFT")).to_have_text(NONE)
    spark = chat.page.get_by_role("img")
    expect(spark).to_have_accessible_name(
        re.compile("Output tokens a second in the last minute: now")
    )
    expect(spark.locator(".spark-line")).to_have_attribute("d", re.compile("^M.*L"))
    api.metrics.output_tokens = 0  # another engine has taken its place: no negative rate
    expect(value(chat, "peak in a minute")).to_have_text("0")


def test_a_server_that_drains(chat, api):
    state, notice = chat.page.locator("#state-text"), chat.page.locator("#engine-problem")
    expect(state).to_have_text("ready")
    expect(notice).to_be_hidden()
    api.is_draining = True
    expect(state).to_have_text("draining")
    expect(notice).to_contain_text("takes nothing new")
    api.is_draining = False
    expect(state).to_have_text("ready")
    expect(notice).to_be_hidden()


def test_an_engine_that_starts_again_and_a_server_that_is_gone(chat, api):
    state, notice = chat.page.locator("#state-text"), chat.page.locator("#engine-problem")
    api.stats_reply = JSONResponse(error_body("the engine starts again"), 503)
    expect(state).to_have_text("takes no requests")
    expect(notice).to_contain_text(
        "the engine starts again. The numbers below are the last that came."
    )
    chat.page.route("**/engine_stats", lambda route: route.abort("connectionrefused"))
    expect(state).to_have_text("no answer")
    expect(notice).to_contain_text("the server does not answer")
    chat.page.unroute_all()
    api.stats_reply = None
    expect(state).to_have_text("ready")
    assert chat.page.locator("#engine-body[data-stale]").count() == 0


def test_stats_of_another_shape_do_not_break_the_page(chat, api):
    api.stats_reply = JSONResponse({"hello": 1})
    expect(chat.page.locator("#state-text")).to_have_text("no answer")
    expect(chat.page.locator("#engine-problem")).to_contain_text("no engine's numbers")
    api.stats_reply = None
    expect(chat.page.locator("#state-text")).to_have_text("ready")
