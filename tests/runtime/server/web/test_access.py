"""Keyboard, screen readers, small screens, and answers that are long."""

from itertools import pairwise

import pytest
from playwright.sync_api import expect

from tests.runtime.server.web.fake_api import DONE, Reply, call, counts, delta, says, usage


def test_landmarks_headings_and_names(chat, api):
    api.replies.append(
        Reply([delta(content="Hi"), call(0, "a", "f", "{}"), delta("tool_calls"), DONE])
    )
    chat.ask("Hello")
    page = chat.page
    for role, name in (("banner", None), ("main", None), ("navigation", "Panels")):
        assert page.get_by_role(role, name=name).count() == 1
    for name in ("Settings", "Engine"):
        assert page.get_by_role("complementary", name=name).count() == 1
    assert page.locator("h1").count() == 1
    levels = page.locator("h1, h2, h3, h4").evaluate_all(
        "all => all.map((h) => Number(h.localName[1]))"
    )
    assert all(after <= before + 1 for before, after in pairwise(levels)), levels
    nameless = """() => [...document.querySelectorAll("button, input, textarea, select, summary")]
        .filter((node) => !node.hidden)
        .filter((node) => !(node.labels?.length || node.ariaLabel || node.textContent.trim()))
        .map((node) => node.outerHTML)"""
    assert page.evaluate(nameless) == []
    duplicates = "() => { const ids = [...document.querySelectorAll('[id]')].map((n) => n.id);"
    assert (
        page.evaluate(f"{duplicates} return ids.filter((id, i) => ids.indexOf(id) !== i); }}") == []
    )


def test_everything_is_reached_by_tab_and_shows_it(chat, api):
    api.replies.append(says("```\ncode\n```", reasoning="Hm."))
    chat.ask("Hello")
    page = chat.page
    page.evaluate("() => document.activeElement.blur()")
    wanted = set(
        page.locator("button, input:not([type=file]), textarea, select, summary").evaluate_all(
            "all => all.filter((n) => n.checkVisibility() && (n.type !== 'radio' || n.checked))"
            ".map((n, i) => (n.dataset.n = String(i)))"
        )
    )
    reached, ring = (
        set(),
        """() => {
        const node = document.activeElement;
        if (node === document.body) return ["", true, "the browser's own controls"];
        const shown = [node, node.nextElementSibling, node.closest(".composer")].filter(Boolean);
        const seen = shown.some((n) => {
            const style = getComputedStyle(n);
            const outline = style.outlineStyle !== "none" && style.outlineColor !== "rgba(0, 0, 0, 0)";
            return outline || style.boxShadow !== "none";
        });
        return [node.dataset.n ?? "", seen, node.id || node.textContent];
    }""",
    )
    for _ in range(len(wanted) + 12):
        page.keyboard.press("Tab")
        number, seen, name = page.evaluate(ring)
        assert seen, f"{name} shows no focus"
        reached.add(number)
    assert wanted <= reached


def test_panels_fold_and_the_skip_link_leads_to_the_message(chat):
    chat.button("Settings").click()
    expect(chat.page.locator("#settings")).to_be_hidden()
    expect(chat.button("Settings")).to_have_attribute("aria-expanded", "false")
    chat.page.get_by_role("link", name="Skip to the message field").focus()
    chat.page.keyboard.press("Enter")
    expect(chat.prompt).to_be_focused()


@pytest.mark.parametrize(
    ("width", "height"), [(360, 640), (640, 400)], ids=["360 px", "1280 px at 200 %"]
)
def test_narrow(chat, api, width, height):
    page = chat.page
    page.set_viewport_size({"width": width, "height": height})
    long = "a" * 300
    api.replies.append(
        says(f"{long}\n\n```\n{long}\n```\n\n|{'x|' * 30}\n|{'-|' * 30}\n|{'y|' * 30}\n")
    )
    chat.ask(long)
    expect(page.locator("#settings")).to_be_hidden()
    wide = "() => document.documentElement.scrollWidth - innerWidth"
    assert page.evaluate(wide) <= 0
    assert not page.locator("#composer").evaluate("form => form.inert")
    log = "() => { const log = document.getElementById('log'); return log.scrollWidth - log.clientWidth; }"
    assert page.evaluate(log) <= 0
    for name in ("Settings", "Engine"):
        chat.button(name).click()
        expect(page.get_by_role("complementary")).to_have_count(1)
        assert page.evaluate(wide) <= 0
        panel = "(id) => { const p = document.getElementById(id); return p.scrollWidth - p.clientWidth; }"
        assert page.evaluate(panel, name.lower()) <= 0
    assert page.locator("#composer").evaluate("form => form.inert"), (
        "what is covered is out of reach"
    )
    page.keyboard.press("Escape")
    expect(chat.button("Engine")).to_be_focused()
    expect(chat.prompt).to_be_visible()


def test_a_wrong_setting_opens_its_panel_where_it_is_hidden(chat):
    chat.page.set_viewport_size({"width": 360, "height": 640})
    chat.button("Settings").click()
    chat.field("Top p").fill("7")
    chat.page.keyboard.press("Escape")
    chat.send("Hello")
    expect(chat.field("Top p")).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(chat, api, scheme):
    chat.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    pairs = chat.page.evaluate(CONTRASTS)
    assert min(ratio for *_, ratio in pairs) >= 4.5, [pair for pair in pairs if pair[2] < 4.5]
    moving = "() => getComputedStyle(document.getElementById('send')).transitionDuration"
    assert chat.page.evaluate(moving) in ("0s", "0s, 0s, 0s")
    chat.page.emulate_media(color_scheme="light", reduced_motion="no-preference")


CONTRASTS = """() => {
    const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const light = (name) => {
        const style = getComputedStyle(document.documentElement);
        probe.fillStyle = style.getPropertyValue(name);
        probe.fillRect(0, 0, 1, 1);
        const parts = [...probe.getImageData(0, 0, 1, 1).data].slice(0, 3).map((byte) => {
            const share = byte / 255;
            return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
    };
    const grounds = ["--paper", "--panel", "--raised", "--tint"];
    const inks = ["--ink", "--soft", "--accent", "--bad"];
    const pairs = inks.flatMap((ink) => grounds.map((ground) => [ink, ground]));
    return [...pairs, ["--warn", "--warn-tint"], ["--accent-ink", "--accent"]].map(([ink, ground]) => {
        const [low, high] = [light(ink), light(ground)].sort((a, b) => a - b);
        return [ink, ground, (high + 0.05) / (low + 0.05)];
    });
}"""


def test_twenty_thousand_tokens_do_not_freeze_the_page(chat, api):
    line = "The **scheduler** plans `one step` at a time; prompts are cut into chunks. "
    words = (line * 8 + "\n\n- one\n- two\n\n```py\nx = 1\n```\n\n").split(" ")
    tokens = [f"{words[i % len(words)]} " for i in range(20_000)]
    chunks = [delta(content=token, usage=counts(5, i + 1)) for i, token in enumerate(tokens)]
    api.replies.append(Reply([*chunks, delta("stop"), usage(5, len(tokens)), DONE]))
    chat.page.evaluate(FRAMES)
    chat.send("Long, please")
    expect(chat.answer.locator("dl")).to_be_visible(timeout=60_000)
    expect(chat.answer.locator("footer")).to_contain_text("20,000")
    longest = chat.page.evaluate("window.longest")
    assert longest < 1000, f"the page stood still for {longest:.0f} ms"
    text = chat.answer.locator(".body > .text").evaluate("node => node.textContent")
    assert text.count("scheduler") == sum(token.count("scheduler") for token in tokens)
    far = "log => log.scrollHeight - log.scrollTop - log.clientHeight"
    assert chat.page.locator("#log").evaluate(far) < 2, "the end stays in sight"


FRAMES = """() => {
    window.longest = 0;
    let last = performance.now();
    const tick = (now) => {
        window.longest = Math.max(window.longest, now - last);
        last = now;
        requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
}"""


def test_a_reader_who_scrolled_up_is_left_there(chat, api):
    api.replies.append(Reply([delta(content="line\n\n" * 200), delta("stop"), DONE]))
    chat.ask("Long")
    api.replies.append(
        Reply(
            [
                delta(content="more\n\n" * 50),
                0.3,
                *[delta(content="more\n\n")] * 20,
                delta("stop"),
                DONE,
            ]
        )
    )
    chat.send("Again")
    expect(chat.answer.locator(".text")).to_contain_text("more")
    chat.page.locator("#log").evaluate("log => (log.scrollTop = 100)")
    expect(chat.button("Latest ↓")).to_be_visible()
    chat.finished()
    assert chat.page.locator("#log").evaluate("log => log.scrollTop") == 100
    chat.button("Latest ↓").click()
    expect(chat.button("Latest ↓")).to_be_hidden()
