"""What goes wrong: errors of the API before and in a stream, broken streams, a server that is gone."""

from playwright.sync_api import expect

from tests.runtime.server.web.fake_api import DONE, MODEL, Reply, delta, error_body, says

STATUSES = {
    400: "The server refused the request",
    429: "The queue is full",
    500: "The server failed",
    503: "The server takes no requests now",
}


def test_an_error_is_told_and_can_be_tried_again(chat, api):
    notice = chat.page.get_by_role("alert")
    error = error_body("these are the server's words", param="messages[0].content")
    headers = {"Retry-After": "2"}
    api.replies.extend(Reply(status=status, error=error, headers=headers) for status in STATUSES)
    api.replies.append(says("Yes."))
    chat.send("Hello")
    for title in STATUSES.values():
        for text in (title, "these are the server's words", "messages[0].content", "wait 2 s"):
            expect(notice).to_contain_text(text)
        chat.button("Try again").click()
    expect(chat.answer).to_contain_text("Yes.")
    expect(notice).to_have_count(0)
    assert api.bodies[0] == api.bodies[1]


def test_an_error_in_mid_stream_keeps_what_came(chat, api):
    begin = [delta(content="It begins "), error_body("the engine failed", "internal_error"), DONE]
    api.replies.extend([Reply(begin), says("Yes.")])
    chat.send("Hello")
    expect(chat.page.get_by_role("alert")).to_contain_text("The answer broke off")
    expect(chat.page.get_by_role("alert")).to_contain_text("the engine failed")
    expect(chat.answer.locator(".text")).to_have_text("It begins")
    chat.ask("Go on")
    assert api.bodies[1]["messages"][1]["content"] == "It begins "
    expect(chat.button("Try again")).to_have_count(0)  # only the last answer can be asked for again


def test_streams_that_are_none(chat, api):
    for events, said in (
        ([delta(content="half")], "ended before its [DONE]"),
        (["<html>"], "no JSON object: <html>"),
        (["12", DONE], "no JSON object: 12"),
    ):
        api.replies.append(Reply(events))
        chat.send("Hello")
        expect(chat.page.get_by_role("alert").last).to_contain_text(said)
        expect(chat.button("Send")).to_be_visible()


def test_a_page_of_a_proxy_instead_of_an_error(chat, api):
    chat.page.route(
        "**/v1/chat/completions", lambda route: route.fulfill(status=502, body="<h1>Bad</h1>")
    )
    chat.send("Hello")
    expect(chat.page.get_by_role("alert")).to_contain_text("<h1>Bad</h1>")


def test_a_server_that_does_not_answer(chat, api):
    chat.page.route("**/v1/chat/completions", lambda route: route.abort("connectionrefused"))
    chat.send("Hello")
    expect(chat.page.get_by_role("alert")).to_contain_text("the server does not answer")


def test_a_key_is_asked_for_and_then_sent(open_page, api):
    api.key = "sesame"
    chat = open_page()
    expect(chat.page.locator("#state-text")).to_have_text("API key wanted")
    chat.send("Hello")
    expect(chat.page.get_by_role("alert")).to_contain_text("The server wants an API key")
    chat.button("Enter the key").click()
    expect(chat.field("API key")).to_be_focused()
    chat.page.keyboard.type("sesame")
    chat.page.keyboard.press("Tab")
    expect(chat.page.locator("#state-text")).to_have_text("ready")
    expect(chat.page.locator("#model")).to_have_text(MODEL)
    api.replies.append(says("Yes."))
    chat.button("Try again").click()
    expect(chat.answer).to_contain_text("Yes.")
    kept = chat.page.evaluate("[JSON.stringify(localStorage), JSON.stringify(sessionStorage)]")
    assert ["sesame" in text for text in kept] == [False, True]
    chat.page.reload()
    expect(chat.page.locator("#model")).to_have_text(MODEL)


def test_a_refused_field_of_the_settings_is_marked(chat, api):
    error = error_body("temperature is 2.5; this model takes less", param="temperature")
    api.replies.append(Reply(status=400, error=error))
    chat.ask("Hello")
    field = chat.field("Temperature")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_have_accessible_description("temperature is 2.5; this model takes less")
