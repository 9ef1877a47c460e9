"""However a request ends, it ends once, and gives back all it held: cancelled, too late, or failed."""

import pytest

from dsv4_trt.errors import EngineFault
from tests.runtime.executor.serving import Serving, check_invariants, prompt, request


def crowd(serving, **params):
    """Company that must not notice anything."""
    serving.submit(
        *(request(f"c{n}", prompt(20 * n + 3, n), max_tokens=20, **params) for n in range(4))
    )


def check_others(serving, *cut):
    """The company ended as it should, the requests in `cut` early; no page is lost."""
    serving.finish().check_outputs(cut=cut)
    assert {name: serving.reasons[name, 0] for name in serving.requests if name not in cut} == {
        f"c{n}": "length" for n in range(4)
    }
    serving.check_no_leak()


@pytest.mark.parametrize("steps", [0, 1, 2, 5, 9, 10, 12, 25, 30])
@pytest.mark.parametrize("n", [1, 3])
def test_cancel_at_any_moment(steps, n):
    """Before the first step, in the middle of the prompt (10 steps long), and of the output."""
    serving = Serving(tokens=64)
    crowd(serving)
    serving.submit(request("a", prompt(500, 9), max_tokens=40, n=n, temperature=1.0, seed=1))
    serving.step(steps)
    serving.executor.cancel("a")
    serving.step()
    assert serving.terminal["a"] == 1
    assert serving.reasons["a", 0] == "cancelled"
    check_invariants(serving.executor)
    check_others(serving, "a")
    assert serving.executor.metrics.requests_finished["cancelled"] == 1


def test_cancel_of_what_is_not_there():
    serving = Serving()
    crowd(serving)
    for name in ("unknown", ""):
        serving.executor.cancel(name)
    serving.submit(request("a", prompt(9), max_tokens=50))
    serving.step(3)
    for _ in range(3):
        serving.executor.cancel("a")
    serving.step()
    serving.executor.cancel("a")
    check_others(serving, "a")


def test_a_cancel_means_the_request_of_its_time():
    """One that came late does not end a later request of the same id."""
    serving = Serving()
    serving.finish(request("a", prompt(9)))
    serving.executor.cancel("a")
    serving.clear()
    serving.submit(request("a", prompt(30)))
    serving.step(20)
    serving.check_outputs()


def test_a_deadline_means_the_request_of_its_time():
    serving = Serving()
    serving.finish(request("a", prompt(9), deadline=5))
    serving.clear()
    serving.submit(request("a", prompt(30), max_tokens=20))
    serving.step(2)
    serving.clock.now = 6
    serving.step(20)
    serving.check_outputs()


def test_cancel_all():
    serving = Serving(seqs=3)
    crowd(serving, n=3)
    serving.step(4)
    serving.submit(request("new", prompt(3)))
    serving.executor.cancel_all()
    serving.step()
    assert not serving.executor.has_work
    assert {*serving.reasons.values()} == {"cancelled"}
    serving.check_no_leak()


def test_deadlines():
    """Reached before the first step, while waiting, in the prompt and in the output; or never."""
    serving = Serving(tokens=64, seqs=6)
    crowd(serving)
    serving.clock.now = 100
    serving.submit(
        request("past", prompt(9), deadline=99),
        request("now", prompt(9), deadline=100),
        request("prompt", prompt(900, 1), deadline=102),
        request("output", prompt(9), deadline=110, max_tokens=900, priority=1),
        request("queue", prompt(9), deadline=105, priority=0, max_tokens=900),
        request("rest", prompt(9), deadline=1e9, priority=0, max_tokens=9),
    )
    ends = {}
    for _ in range(20):
        serving.step()
        for name, _ in serving.reasons:
            ends.setdefault(name, serving.clock.now)
        serving.clock.now += 1
        check_invariants(serving.executor)
    late = {name: at for name, at in ends.items() if serving.reasons[name, 0] == "timeout"}
    assert late == {"past": 100, "now": 100, "prompt": 102, "queue": 105, "output": 110}
    assert len(serving.tokens["output", 0]) == 10
    serving.finish().check_outputs(cut=late)
    assert serving.executor.metrics.requests_finished["timeout"] == 5
    serving.check_no_leak()


@pytest.mark.parametrize("fails_at", [{1}, {2, 3}, {5}, {12}])
@pytest.mark.parametrize("n", [1, 3])
def test_a_failing_step_ends_its_sequences_and_no_others(fails_at, n):
    serving = Serving(seqs=3, tokens=64)
    serving.engine.fails_at = fails_at
    requests = [
        request(f"{i}", prompt(90 * i + 3, i), n=n, temperature=1.0, seed=i) for i in range(8)
    ]
    serving.finish(*requests, check=True)
    failed = {name for name, _ in serving.errors}
    assert failed
    assert len(failed) < 8
    for error in serving.errors.values():
        assert isinstance(error, EngineFault)
        assert isinstance(error.__cause__, FloatingPointError)
    serving.check_outputs(cut=failed)
    assert serving.executor.metrics.requests_finished["error"] == len(failed)
    serving.check_no_leak()
    serving.finish(request("after", prompt(700)))
    assert serving.reasons["after", 0] == "length"


def test_a_failing_step_spoils_no_cached_page():
    """Pages that others may hit are not those that the failed step wrote."""
    serving = Serving()
    serving.finish(request("a", prompt(700)))
    serving.engine.fails_at = {serving.engine.num_steps + 1}
    serving.finish(request("bad", prompt(800)))
    assert serving.reasons["bad", 0] == "error"
    serving.finish(request("b", prompt(700) + prompt(50, 1)), request("c", prompt(900)))
    serving.check_outputs(cut=["bad"])
    assert serving.num_cached["b", 0] == 512


def test_a_row_without_token_ends_its_sequence():
    serving = Serving()
    crowd(serving)
    serving.submit(request("a", prompt(9), n=3, temperature=1.0, seed=1, max_tokens=9))
    serving.sampler.bad = {("a", 1, 4)}
    check_others(serving, "a")
    assert [serving.reasons["a", i] for i in range(3)] == ["length", "error", "length"]
    assert [len(serving.tokens["a", i]) for i in range(3)] == [9, 4, 9]
    assert serving.executor.metrics.requests_finished["error"] == 1


@pytest.mark.parametrize("broken", ["sampler", "copies"])
def test_what_breaks_after_the_engine_ends_the_requests_of_its_step(broken, monkeypatch):
    serving = Serving()
    crowd(serving, n=2, temperature=1.0, seed=1)
    if broken == "copies":
        monkeypatch.setattr(serving.engine, "copy_pages", None)
    else:
        serving.step(2)
        serving.sampler.raises = True
    serving.step(2)
    serving.finish()
    assert "error" in serving.reasons.values()
    serving.check_no_leak()
    monkeypatch.undo()
    serving.sampler.raises = False
    serving.finish(request("after", prompt(300)))
    assert serving.reasons["after", 0] == "length"


def test_an_end_is_told_even_if_the_step_breaks(monkeypatch):
    """What `step` could not return because it raised, `abort` does, and everything ends."""
    serving = Serving()
    crowd(serving)
    serving.step(2)
    serving.executor.cancel("c0")
    monkeypatch.setattr(serving.scheduler, "schedule", None)
    with pytest.raises(TypeError) as raised:
        serving.step()
    serving.submit(request("new", prompt(3)))
    serving.take(serving.executor.abort(raised.value))
    assert not serving.executor.has_work
    assert serving.reasons["new", 0] == "error"
    serving.check_no_leak()
    monkeypatch.undo()
    serving.finish(request("after", prompt(300)))
    assert serving.reasons["after", 0] == "length"


def test_requests_that_ended_are_not_remembered():
    """Neither their deadlines, nor their places in a queue that something else is first in."""
    serving = Serving(seqs=1, max_queue_size=2000)
    serving.submit(request("first", prompt(300), max_tokens=700, priority=1))
    serving.step()
    for number in range(500):
        serving.submit(request(f"{number}", prompt(3), deadline=1e9))
    serving.step()
    for number in range(1, 500):
        serving.executor.cancel(f"{number}")
    serving.step(2)
    assert len(serving.scheduler.waiting._heap) < 100
    assert len(serving.executor._deadlines) < 100
    serving.finish()
    assert serving.reasons["0", 0] == "length"
