"""The settings: what of them a request says, what is refused before it goes out, what is kept."""

import json

from playwright.sync_api import expect

from tests.runtime.server.web.fake_api import says

TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"maximum": 18446744073709551615}},
}
SCHEMA = '{"type": "object", "properties": {"n": {"maximum": 1e400}}}'


def body_of(chat, api):
    api.replies.append(says("Yes."))
    chat.ask("Hello")
    return api.bodies[-1]


def test_every_setting_reaches_the_request_as_it_was_written(chat, api):
    values = {
        "System prompt": "Be brief.",
        "Temperature": ".60",
        "Top p": "0.95",
        "Top k": "40",
        "Min p": "1e-2",
        "Max tokens": "0512",
        "Seed": "18446744073709551615",
        "Presence": "-2",
        "Frequency": "+0.5",
        "Repetition": "1.1",
        "Stop strings": 'END\n"\\n\\n"\n  two words',
    }
    for label, value in values.items():
        chat.field(label).fill(value)
    chat.page.get_by_text("Max", exact=True).click()
    chat.field("Format").select_option("json_schema")
    chat.field("Schema").fill(SCHEMA)
    chat.page.locator("#tools").fill(json.dumps([TOOL]))
    chat.field("Choice").select_option("f")
    body = body_of(chat, api)
    schema = {"name": "answer", "schema": json.loads(SCHEMA), "strict": True}
    assert body == {
        "model": body["model"],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "thinking": {"type": "enabled"},
        "reasoning_effort": "max",
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": 40,
        "min_p": 0.01,
        "max_tokens": 512,
        "seed": 18446744073709551615,
        "presence_penalty": -2,
        "frequency_penalty": 0.5,
        "repetition_penalty": 1.1,
        "stop": ["END", "\n\n", "  two words"],
        "tools": [TOOL],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_schema", "json_schema": schema},
    }
    assert SCHEMA.encode() in api.raw_bodies[-1], "the schema goes out as it was written"


def test_thinking_off_json_object_and_tool_choice(chat, api):
    chat.page.get_by_text("Off", exact=True).click()
    chat.field("Format").select_option("json_object")
    chat.button("Insert an example").click()
    chat.field("Choice").select_option("required")
    body = body_of(chat, api)
    assert body["thinking"] == {"type": "disabled"}
    assert "reasoning_effort" not in body
    assert body["response_format"] == {"type": "json_object"}
    assert body["tool_choice"] == "required"


def test_a_wrong_value_is_told_and_nothing_goes_out(chat, api):
    for label, value, said in (
        ("Temperature", "warm", "expected a number from 0 to 100"),
        ("Temperature", "1,5", "expected a number"),
        ("Temperature", "0x10", "expected a number"),
        ("Temperature", "1e999", "expected a number"),
        ("Top p", "0", "expected a number above 0, to 1"),
        ("Top p", "1.5", "expected a number above 0, to 1"),
        ("Top k", "1.5", "expected a whole number"),
        ("Max tokens", "0", "expected a whole number from 1"),
        ("Seed", "18446744073709551616", "to 18446744073709551615"),
        ("Presence", "-2.1", "from -2 to 2"),
        ("Stop strings", '""', "a stop string is empty"),
        ("Stop strings", '"\\q"', "no JSON"),
    ):
        field = chat.field(label)
        field.fill(value)
        chat.send("Hello")
        expect(field).to_be_focused()
        expect(field).to_have_attribute("aria-invalid", "true")
        assert said in chat.page.locator(f"#{field.get_attribute('id')}-problem").inner_text()
        expect(chat.prompt).to_have_value("Hello")
        field.fill("")
        expect(field).not_to_have_attribute("aria-invalid", "true")
    assert api.bodies == []


def test_tools_and_schemas_are_checked_while_they_are_written(chat):
    tools, problem = chat.page.locator("#tools"), chat.page.locator("#tools-problem")
    one = '{"type": "function", "function": {"name": "f"}}'
    for given, said in (
        ('[{"type": "function",\n  "function" 1}]', "at line 2, column"),
        ("{}", "expected a list"),
        ("[1]", 'tool 1: expected {"type"'),
        ('[{"type": "function", "function": {}}]', "tool 1: function.name is missing"),
        ('[{"type": "function", "function": {"name": "a b"}}]', 'function.name is "a b"'),
        (f"[{one}, {one}]", "two tools are called f"),
        (
            '[{"type": "function", "function": {"name": "f", "parameters": 1}}]',
            "f: parameters must be",
        ),
    ):
        tools.fill(given)
        expect(problem).to_contain_text(said)
    tools.fill(f"[{one}]")
    expect(problem).to_have_text("")
    assert chat.page.locator("#tool_choice option").all_inner_texts()[-1] == "f"
    expect(chat.field("Schema")).to_be_hidden()
    chat.field("Format").select_option("json_schema")
    chat.field("Schema").fill("[]")
    expect(chat.page.locator("#schema-problem")).to_contain_text("expected a JSON schema")


def test_settings_stay_and_can_be_put_back(chat, api):
    chat.button("Insert an example").click()
    chat.field("Choice").select_option("get_weather")
    chat.field("Top k").fill("7")
    chat.page.get_by_text("Off", exact=True).click()
    chat.page.reload()
    expect(chat.field("Top k")).to_have_value("7")
    expect(chat.field("Choice")).to_have_value("named:get_weather")
    assert chat.page.get_by_role("radio", name="Off").is_checked()
    chat.button("Back to defaults").click()
    body = body_of(chat, api)
    assert not {"top_k", "tools", "tool_choice"} & set(body)
    assert body["thinking"] == {"type": "enabled"}
