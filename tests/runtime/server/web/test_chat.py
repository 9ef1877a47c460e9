"""Conversations: streaming, more turns, stopping, asking again, changing, files."""

import json
import time

from playwright.sync_api import expect

from tests.runtime.server.web.fake_api import DONE, GATE, MODEL, Reply, counts, delta, says, usage


def roles(body):
    return [message["role"] for message in body["messages"]]


def test_an_answer_streams_with_reasoning_and_ends_with_its_numbers(chat, api):
    ends = [delta("stop"), usage(1204, 301, cached=1024, reasoning=58), DONE]
    thinks = [delta(role="assistant"), 0.05, delta(reasoning_content="Let me *think*.")]
    api.replies.append(
        Reply([*thinks, GATE, delta(content="It is **4"), delta(content="2**."), 0.05, *ends])
    )
    chat.send("What is it?")
    reasoning = chat.answer.locator("details")
    expect(reasoning.locator(".text")).to_have_text("Let me think.")
    assert reasoning.get_attribute("open") is not None, "reasoning is open while it streams"
    expect(chat.button("Stop")).to_be_visible()
    expect(chat.page.locator("#announce")).to_have_text("")
    api.gate.set()
    answer = chat.finished()
    expect(answer.locator(".body > .text")).to_have_text("It is 42.")
    expect(answer.locator("strong")).to_have_text("42")
    assert reasoning.get_attribute("open") is None, "and folds when the answer begins"
    foot = answer.locator("footer").inner_text().replace("\n", " ")
    for part in ("TTFT", "tok/s", "in 1,204, 1,024 cached", "out 301, 58 reasoning", "end stop"):
        assert part in foot
    expect(chat.page.locator("#announce")).to_have_text("Answer finished. It is **42**.")


def test_reasoning_that_the_reader_folded_stays_as_he_left_it(chat, api):
    more = [delta(reasoning_content="more"), GATE, delta(content="Yes"), delta("stop"), DONE]
    api.replies.append(Reply([delta(reasoning_content="one "), *more]))
    chat.send("Well?")
    summary = chat.answer.locator("summary")
    summary.click()
    summary.click()
    api.gate.set()
    chat.finished()
    assert chat.answer.locator("details").get_attribute("open") is not None


def test_the_request_and_the_turns_that_follow(chat, api):
    api.replies.extend([says("One.", reasoning="Because."), says("Two.")])
    chat.ask("First\nline")
    chat.ask("Second")
    first, second = api.bodies
    assert first == {
        "model": MODEL,
        "messages": [{"role": "user", "content": "First\nline"}],
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "thinking": {"type": "enabled"},
        "reasoning_effort": "high",
    }
    told = {"role": "assistant", "content": "One.", "reasoning_content": "Because."}
    assert second["messages"] == [*first["messages"], told, {"role": "user", "content": "Second"}]


def test_keys(chat, api):
    api.replies.append(Reply([delta(content="going on"), GATE, DONE]))
    chat.prompt.press("Enter")
    assert api.bodies == [], "an empty message is none"
    chat.prompt.fill("one")
    chat.prompt.press("Shift+Enter")
    chat.prompt.type("two")
    assert api.bodies == []
    chat.prompt.press("Enter")
    expect(chat.answer.locator(".text")).to_have_text("going on")
    assert api.bodies[0]["messages"][0]["content"] == "one\ntwo"
    expect(chat.prompt).to_have_value("")
    chat.page.keyboard.press("Escape")
    chat.finished()
    expect(chat.answer).to_contain_text("stopped")


def test_stop_ends_the_request_and_keeps_what_came(chat, api):
    api.replies.extend(
        [Reply([delta(content="Half an ans", usage=counts(9, 3)), GATE, DONE]), says("wer")]
    )
    chat.send("Tell me")
    expect(chat.answer.locator(".text")).to_have_text("Half an ans")
    chat.button("Stop").click()
    chat.finished()
    until(lambda: api.broken == 1)
    expect(chat.answer.locator("footer")).to_contain_text("3")
    chat.ask("Go on")
    assert api.bodies[1]["messages"][1] == {"role": "assistant", "content": "Half an ans"}


def test_stop_before_the_first_token_leaves_no_empty_answer_in_the_request(chat, api):
    api.replies.extend([Reply([GATE, DONE]), says("Yes.")])
    chat.send("Tell me")
    expect(chat.answer).to_contain_text("waiting for the first token")
    chat.button("Stop").click()
    expect(chat.answer).to_contain_text("Stopped before the first token")
    chat.ask("Again")
    assert roles(api.bodies[1]) == ["user", "user"]


def test_regenerate_asks_again_with_the_same_turns(chat, api):
    api.replies.extend([says("One."), says("Two."), says("Three.")])
    chat.ask("First")
    chat.ask("Second")
    expect(chat.button("Regenerate")).to_have_count(1)  # the last answer's
    chat.button("Regenerate").click()
    expect(chat.answer).to_contain_text("Three.")
    assert api.bodies[2] == api.bodies[1]
    expect(chat.turns).to_have_count(4)


def test_a_changed_message_is_sent_again_and_what_followed_can_be_had_back(chat, api):
    api.replies.extend([says("One."), says("Two."), says("Three.")])
    chat.ask("First")
    chat.ask("Second")
    chat.button("Edit", chat.turns.first).click()
    field = chat.field("Message, changed")
    field.fill("nothing of this")
    field.press("Escape")
    expect(chat.turns.first).to_contain_text("First")
    expect(chat.button("Edit", chat.turns.first)).to_be_focused()
    chat.page.keyboard.press("Enter")
    field.fill("Changed")
    field.press("Enter")
    expect(chat.answer).to_contain_text("Three.")
    assert api.bodies[2]["messages"] == [{"role": "user", "content": "Changed"}]
    expect(chat.turns).to_have_count(2)
    chat.button("Undo").click()
    expect(chat.turns).to_have_count(4)
    expect(chat.answer).to_contain_text("Two.")


def test_clear_and_undo(chat, api):
    api.replies.append(says("One."))
    chat.ask("First")
    chat.button("Clear").click()
    expect(chat.turns).to_have_count(0)
    expect(chat.page.get_by_text("No messages yet")).to_be_visible()
    chat.button("Undo").click()
    expect(chat.turns).to_have_count(2)


def test_clear_while_an_answer_streams_stops_it(chat, api):
    api.replies.extend([Reply([delta(content="long"), GATE, DONE]), says("New.")])
    chat.send("First")
    expect(chat.answer.locator(".text")).to_have_text("long")
    chat.button("Clear").click()
    until(lambda: api.broken == 1)
    chat.ask("Second")
    assert roles(api.bodies[1]) == ["user"]
    expect(chat.turns).to_have_count(2)


def test_a_conversation_goes_into_a_file_and_comes_back(chat, api, tmp_path):
    api.replies.extend([says("One *bold* step.", reasoning="Hm."), says("Two.")])
    chat.field("System prompt").fill("Be brief.")
    chat.field("API key").fill("secret")
    chat.ask("First")
    with chat.page.expect_download() as download:
        chat.button("Export").click()
    path = tmp_path / "conversation.json"
    download.value.save_as(path)
    file = json.loads(path.read_text("utf-8"))
    assert (file["format"], file["version"], file["model"]) == ("dsv4-trt.conversation", 1, MODEL)
    assert "secret" not in path.read_text("utf-8")
    chat.button("Clear").click()
    chat.field("System prompt").fill("")
    chat.page.locator("#import-file").set_input_files(path)
    expect(chat.turns).to_have_count(2)
    expect(chat.field("System prompt")).to_have_value("Be brief.")
    expect(chat.answer.locator("em")).to_have_text("bold")
    chat.ask("Second")
    assert api.bodies[1]["messages"][:-1] == [
        *api.bodies[0]["messages"],
        {"role": "assistant", "content": "One *bold* step.", "reasoning_content": "Hm."},
    ]


def test_a_reload_of_the_tab_keeps_the_conversation(chat, api):
    api.replies.extend([says("One.", reasoning="Hm."), says("Two.")])
    chat.ask("First")
    chat.page.reload()
    expect(chat.turns).to_have_count(2)
    chat.ask("Second")
    assert api.bodies[1]["messages"][1]["reasoning_content"] == "Hm."
    chat.button("Clear").click()
    chat.page.reload()
    expect(chat.page.get_by_text("No messages yet")).to_be_visible()


def test_files_that_are_no_conversation_change_nothing(chat, api, tmp_path):
    api.replies.append(says("One."))
    chat.ask("First")
    call = {"id": "a", "function": {"name": "f", "arguments": 3}}
    for given, said in (
        ("{", "the file is no JSON"),
        ('{"a": 1}', "no list of messages"),
        ('{"format": "x", "messages": []}', "expected dsv4-trt.conversation 1"),
        ('[{"role": "owner", "content": ""}]', 'messages[0].role is "owner"'),
        ('[{"role": "user", "content": 12}]', "messages[0].content is 12"),
        ('[{"role": "user"}]', "messages[0].content is missing"),
        (json.dumps([{"role": "assistant", "tool_calls": [call]}]), "function.arguments is 3"),
        ('[{"role": "tool", "tool_call_id": "a", "content": ""}]', 'the result of "a" does not'),
    ):
        path = tmp_path / "file.json"
        path.write_text(given, "utf-8")
        chat.page.locator("#import-file").set_input_files(path)
        expect(chat.page.locator("#toast")).to_contain_text(said)
        expect(chat.turns).to_have_count(2)


def until(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)
