"""Tool calls: shown while they stream, answered by hand, sent back with their reasoning."""

import json

from playwright.sync_api import expect

from tests.runtime.server.web.fake_api import DONE, GATE, Reply, call, delta, says, usage


def two_calls():
    return Reply(
        [
            delta(role="assistant"),
            delta(reasoning_content="Both at once."),
            delta(content="I look."),
            call(0, "call_a", "get_weather", '{"place": "Reykja'),
            call(0, arguments='vík", "id": 12345678901234567890, "list": [], "o": {"a": "\\"{"}}'),
            GATE,
            call(1, "call_b", "get_time", "{}"),
            delta("tool_calls"),
            usage(50, 40),
            DONE,
        ]
    )


def test_a_loop_of_calls(chat, api):
    api.replies.extend([two_calls(), says("4 degrees at noon.", reasoning="Now I know.")])
    chat.button("Insert an example").click()
    chat.send("Weather and time?")
    arguments = chat.answer.get_by_role("region", name="Arguments").first
    expect(arguments).to_contain_text("12345678901234567890")
    expect(chat.answer.locator(".call-name").first).to_have_text("get_weather")
    api.gate.set()
    chat.finished()
    assert arguments.inner_text() == (
        '{\n  "place": "Reykjavík",\n  "id": 12345678901234567890,\n  "list": [],\n'
        '  "o": {\n    "a": "\\"{"\n  }\n}'
    )
    expect(chat.page.locator("#announce")).to_contain_text(
        "get_weather, get_time and waits for results"
    )
    first, second = chat.field("Result 1 of get_weather"), chat.field("Result 2 of get_time")
    expect(first).to_be_focused()
    chat.send("Hurry")
    expect(chat.page.locator("#toast")).to_contain_text("waits for the results")
    expect(first).to_be_focused()
    first.fill('{"celsius": 4}')
    first.press("Enter")
    expect(second).to_be_focused()
    second.fill("12:00")
    second.press("Enter")
    expect(chat.answer).to_contain_text("4 degrees at noon.")
    chat.finished()
    assert api.bodies[0]["tools"][0]["function"]["name"] == "get_weather"
    assert api.bodies[0]["tool_choice"] == "auto"
    _, answer, *results = api.bodies[1]["messages"]
    assert answer["reasoning_content"] == "Both at once."
    assert answer["content"] == "I look."
    assert [given["id"] for given in answer["tool_calls"]] == ["call_a", "call_b"]
    assert answer["tool_calls"][1]["function"] == {"name": "get_time", "arguments": "{}"}
    assert json.loads(answer["tool_calls"][0]["function"]["arguments"])["place"] == "Reykjavík"
    assert results == [
        {"role": "tool", "tool_call_id": "call_a", "content": '{"celsius": 4}'},
        {"role": "tool", "tool_call_id": "call_b", "content": "12:00"},
    ]
    assert chat.page.get_by_role("region", name="Result").all_inner_texts() == [
        '{"celsius": 4}',
        "12:00",
    ]


def test_a_call_that_was_cut_off_is_shown_and_not_sent_on(chat, api):
    cut = [call(0, "call_a", "get_weather", '{"place": "Rey'), delta("length"), usage(9, 9), DONE]
    api.replies.extend([Reply([delta(content="Well."), *cut]), says("Yes.")])
    answer = chat.ask("Weather?")
    expect(answer).to_contain_text("Cut off")
    expect(answer.get_by_role("region", name="Arguments")).to_have_text('{"place": "Rey')
    expect(chat.button("Send results")).to_have_count(0)
    chat.ask("And now?")
    assert api.bodies[1]["messages"][1] == {"role": "assistant", "content": "Well."}


def test_calls_of_an_imported_conversation_can_be_answered(chat, api, tmp_path):
    function = {"name": "f", "arguments": '{"a":1}'}
    told = {
        "role": "assistant",
        "tool_calls": [{"id": "x", "type": "function", "function": function}],
    }
    path = tmp_path / "messages.json"
    system = {"role": "system", "content": "Short."}
    path.write_text(json.dumps([system, {"role": "user", "content": "Go"}, told]), "utf-8")
    chat.page.locator("#import-file").set_input_files(path)
    api.replies.append(says("Done."))
    chat.field("Result of f").fill("<b>1</b>")
    chat.button("Send results").click()
    expect(chat.answer).to_contain_text("Done.")
    assert [message["role"] for message in api.bodies[0]["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
    ]
