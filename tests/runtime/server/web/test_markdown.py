"""What a model writes, as it is shown: a subset of Markdown, never markup, the same at every split."""

import random

import pytest
from playwright.sync_api import expect

from tests.runtime.server.web.fake_api import DONE, Reply, call, delta, says

HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\"> <script>document.title='owned'</script>\n\n"
    "- <b onclick=alert(1)>item</b>\n\n# <svg onload=alert(1)>\n\n"
    "| <i>a</i> |\n|---|\n| <iframe src=javascript:alert(1)> |\n\n"
    "[link](javascript:alert(1)) `<u>` **<s>**\n\n"
    "```<style>\n</code></pre><img src=x onerror=alert(1)>\n```\n"
)
DOCUMENT = """\
# Head **bold**
Text with `code`, **bold *both* bold**, *it*, 2 * 3 * 4, snake_case_name, ***all***, `` a ` b ``,
a second line \\*plain\\* and an open **strong that never ends.

1. one
2. two
   - deep *one*
   - deep two
     going on

   a paragraph of two
3. three
   ```python
   def f():
       return "*not*"
   ```
4. four

* star
+ plus

> quoted `x`
> more

---
before the table:
| a | b \\| c |
|---|:--:|
| 1 | **2** |
| only |
after
~~~~
```
~~~
**raw** <b>
~~~~
#hashtag -5 and 2024. A sentence.
- last **unclosed `mix*
```js
no end
"""


def test_the_subset(chat):
    def html(text):
        return chat.markdown(text)

    assert html("a **b** *c* `d*`") == "<p>a <strong>b</strong> <em>c</em> <code>d*</code></p>"
    assert html("a\nb\n\nc") == "<p>a\nb</p><p>c</p>"
    assert html("# A\n### B\n###### C") == "<h3>A</h3><h5>B</h5><h6>C</h6>"
    assert (
        html("- a\n- b\n  - c\n- d") == "<ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul>"
    )
    assert html("3. a\n4. b") == '<ol start="3"><li>a</li><li>b</li></ol>'
    assert html("> a\n> b") == "<blockquote>a\nb</blockquote>"
    assert html("***a***") == "<p><strong><em>a</em></strong></p>"
    assert html("2 * 3 * 4 a*b*c **x") == "<p>2 * 3 * 4 a*b*c **x</p>"
    assert html("a\n\n***\n\nb") == "<p>a</p><hr><p>b</p>"
    assert "<tbody><tr><td>1</td><td>2</td></tr></tbody>" in html("|a|b|\n|-|-|\n|1|2|")
    code = html("```py x\na\n\n  b\n```\nc")
    assert "<span>py</span>" in code
    assert "<code>a\n\n  b</code>" in code
    assert code.endswith("<p>c</p>")


def test_the_same_at_every_split(chat):
    whole = chat.markdown(DOCUMENT)
    assert chat.markdown("", list(DOCUMENT)) == whole
    for seed in range(20):
        rng, rest, pieces = random.Random(seed), DOCUMENT, []
        while rest:
            size = rng.choice((1, 2, 3, 7, 40))
            pieces.append(rest[:size])
            rest = rest[size:]
        assert chat.markdown("", pieces) == whole, f"seed {seed}"


def test_delimiters_without_partner_cost_no_more_than_their_reach(chat):
    script = """async (text) => {
        const { MarkdownView } = await import("/web/markdown.js");
        const root = document.createElement("div");
        const view = new MarkdownView(root);
        const begin = performance.now();
        for (let i = 0; i < text.length; i += 100) view.push(text.slice(i, i + 100));
        view.finish();
        return [root.textContent === text, performance.now() - begin];
    }"""
    for text in ("*a " * 20_000, "**" + "a " * 20_000, "a" + "`" * 30_001, "a`" + "b " * 20_000):
        same, ms = chat.page.evaluate(script, text)
        assert same
        assert ms < 5000


@pytest.mark.parametrize("split", ["whole", "characters"])
def test_hostile_output_is_text(chat, api, split):
    pieces = [HOSTILE] if split == "whole" else list(HOSTILE)
    text = [delta(content=piece) for piece in pieces]
    thought = [delta(reasoning_content=piece) for piece in pieces]
    calls = [call(0, "x", "<img src=x onerror=alert(1)>", '{"a": "<img src=x onerror=alert(1)>"}')]
    api.replies.append(Reply([*thought, *text, *calls, delta("tool_calls"), DONE]))
    chat.page.on("dialog", lambda dialog: pytest.fail(f"a dialog: {dialog.message}"))
    answer = chat.ask("<img src=x onerror=alert(1)>")
    made = "img, script, svg, iframe, style, b, i, u, s, a, [onclick], [onerror], [onload]"
    assert answer.locator(made).count() == 0
    assert chat.turns.first.locator("img").count() == 0
    assert "<img src=x onerror=" in answer.locator(".body > .text").inner_text()
    assert "owned" not in chat.page.title()


def test_markup_is_refused_by_the_page_itself(chat):
    """The second wall: even a script of this page that made HTML of text would fail."""
    tried = """() => {
        try {
            document.createElement("div").innerHTML = "<b>x</b>";
            return "made";
        } catch (error) {
            return error.name;
        }
    }"""
    assert chat.page.evaluate(tried) == "TypeError"
    chat.errors.clear()  # the policy's own report of it


def test_code_and_answers_are_copied_as_they_are(chat, api):
    copied = (
        "window.copied = []; navigator.clipboard.writeText = async (text) => void copied.push(text)"
    )
    chat.page.evaluate(f"() => {{ {copied} }}")
    api.replies.append(says("See **this**:\n```py\na <b>\n  c\n```\n"))
    answer = chat.ask("Show *me*")
    chat.button("Copy code", answer).click()
    expect(chat.button("Copy code", answer)).to_have_text("Copied")
    chat.button("Copy answer", answer).click()
    chat.button("Copy message").click()
    assert chat.page.evaluate("copied") == [
        "a <b>\n  c",
        "See **this**:\n```py\na <b>\n  c\n```\n",
        "Show *me*",
    ]
