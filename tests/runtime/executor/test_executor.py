"""Every request gets what it gets alone, in whatever company and in whatever order it came."""

import pytest

from dsv4_trt.errors import QueueFull, RequestError
from tests.runtime.executor.fake_reference import expected
from tests.runtime.executor.serving import Serving, prompt, request

LENGTHS = (1, 3, 4, 5, 126, 127, 128, 129, 255, 256, 257, 500, 511, 512, 513, 800, 900)


def started(serving):
    """Requests in the order in which they got their first token."""
    return list(dict.fromkeys(u.request_id for u in serving.updates if u.token is not None))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("retention", ["newest", "every", None])
def test_a_request_alone(length, retention):
    serving = Serving(retention=retention)
    serving.finish(request("a", prompt(length), max_tokens=20), check=True).check_outputs()
    serving.check_no_leak()


@pytest.mark.parametrize("retention", ["newest", 2, None])
@pytest.mark.parametrize("tokens", [512, 100, 20])
def test_a_batch_equals_its_requests_alone(tokens, retention):
    """Prompts of many chunks among decodes, all at once."""
    serving = Serving(tokens=tokens, retention=retention)
    requests = [request(f"{n}", prompt(n, n), max_tokens=15) for n in LENGTHS]
    serving.finish(*requests, check=True).check_outputs()
    serving.check_no_leak()


def test_prompts_join_sequences_that_decode():
    serving = Serving(tokens=64)
    serving.submit(request("a", prompt(40), max_tokens=60))
    serving.step(5)
    assert len(serving.tokens["a", 0]) == 5
    serving.submit(request("b", prompt(300, 1)))
    serving.step(3)
    assert len(serving.tokens["a", 0]) == 8, "a decode waits for a prompt"
    assert 0 < serving.scheduler.prefilling[0].num_computed < 300
    serving.finish().check_outputs()


def test_a_cached_beginning_changes_nothing():
    """Second turns of conversations, the last of them edited, and another salt."""
    serving, first = Serving(), prompt(600)
    serving.finish(request("a", first, max_tokens=100))
    history = first + serving.tokens["a", 0]
    serving.finish(
        request("longer", history + prompt(50, 1)),
        request("edited", [*history[:520], *prompt(90, 2)]),
        request("same", first),
        request("salted", history + prompt(50, 1), salt="other"),
        check=True,
    )
    serving.check_outputs()
    hits = {name: serving.num_cached[name, 0] for name in serving.requests}
    assert hits == {"a": 0, "longer": 512, "edited": 512, "same": 512, "salted": 0}
    assert serving.executor.metrics.cached_tokens == 3 * 512


@pytest.mark.parametrize("tokens", [1024, 300])
@pytest.mark.parametrize("length", [256, 257, 400, 512, 513, 768, 790])
def test_hits_at_every_boundary(length, tokens):
    """One chunk leaves several tails behind; a hit leaves at least one token to feed."""
    serving, whole = Serving(tokens=tokens, retention="every"), prompt(900)
    serving.finish(request("a", whole))
    serving.finish(request("hit", whole[:length], max_tokens=30), check=True).check_outputs()
    assert serving.num_cached["hit", 0] == (length - 1) // 256 * 256


def test_first_come_first_served():
    serving = Serving(seqs=2, tokens=32)
    serving.finish(*(request(f"{n}", prompt(40, n), max_tokens=3) for n in range(9)))
    assert started(serving) == [f"{n}" for n in range(9)]


def test_higher_priorities_first_and_each_in_order():
    serving = Serving(seqs=2, tokens=32)
    priorities = {"a": 0.2, "b": 0.9, "c": 0.2, "d": 1, "e": 0.9, "f": 0}
    serving.finish(*(request(name, prompt(30), priority=p) for name, p in priorities.items()))
    assert started(serving) == ["d", "b", "e", "a", "c", "f"]
    serving.check_outputs()


def test_nobody_overtakes_who_has_no_room():
    """A small request behind large ones waits until the last of them has its pages."""
    serving = Serving(seqs=8)
    large = [request(f"large{n}", prompt(900, n), max_tokens=100) for n in range(8)]
    serving.submit(*large, request("small", prompt(3), max_tokens=1))
    while not serving.tokens["small", 0]:
        serving.step()
        stopped = [s.request.request_id for s in serving.scheduler.waiting]
        running = serving.scheduler.num_running
        assert "small" in stopped or not stopped, "it came before one that has no room"
        assert running, "pages are free and nobody has them"
    serving.finish().check_outputs()


def test_stop_tokens_and_counts():
    base, _ = expected(prompt(9), request("", [2], max_tokens=60).params)
    stop = base[20]
    first = base.index(stop)
    serving = Serving()
    serving.finish(
        request("stop", prompt(9), max_tokens=60, stop_token_ids=(stop,)),
        request("min", prompt(9), max_tokens=60, stop_token_ids=(stop,), min_tokens=first + 1),
        request("one", prompt(9), max_tokens=1),
        request("eos", prompt(9), max_tokens=400, ignore_eos=False),
        request("most", prompt(800), max_tokens=224),
    )
    serving.check_outputs()
    assert serving.tokens["stop", 0] == base[: first + 1]
    assert len(serving.tokens["min", 0]) > first + 1
    assert [serving.reasons[name, 0] for name in ("stop", "one", "eos", "most")] == [
        "stop",
        "length",
        "stop",
        "length",
    ]
    ends = {u.request_id: u.stop_reason for u in serving.updates if u.finish_reason}
    assert ends["stop"] == stop
    assert ends["eos"] == serving.engine.spec.eos_token_id
    assert ends["one"] is None


def test_a_full_queue_refuses_and_takes_more_later():
    serving = Serving(seqs=2, max_queue_size=3)
    serving.submit(*(request(f"{n}", prompt(4)) for n in range(3)))
    with pytest.raises(QueueFull, match="3 sequences wait, the queue holds 3"):
        serving.submit(request("late", prompt(4)))
    serving.step()
    serving.submit(request("late", prompt(4)), request("later", prompt(4)))
    with pytest.raises(QueueFull):
        serving.submit(request("last", prompt(4)))
    assert serving.executor.metrics.requests_refused == 2
    serving.finish().check_outputs()
    serving.finish(request("last", prompt(4))).check_outputs()


def test_an_id_is_used_by_one_request_at_a_time():
    serving = Serving()
    serving.submit(request("a", prompt(4)))
    with pytest.raises(RequestError, match="'a' is running already"):
        serving.submit(request("a", prompt(9)))
    serving.step()
    with pytest.raises(RequestError, match="'a' is running already"):
        serving.submit(request("a", prompt(9)))
    serving.finish().check_outputs()
    serving.executor.submit(request("a", prompt(4)))  # its end makes room for the next one


@pytest.mark.parametrize(
    "bad",
    [
        {"prompt_ids": []},
        {"prompt_ids": [64]},
        {"prompt_ids": [-1]},
        {"prompt_ids": prompt(1017)},
        {"priority": 1.5},
        {"priority": float("nan")},
        {"deadline": float("nan")},
        {"deadline": float("inf")},
        {"n": 0},
        {"stop": "text"},
        {"salt": None},
    ],
)
def test_a_bad_request_leaves_nothing_behind(bad):
    serving = Serving()
    with pytest.raises(RequestError):
        serving.submit(request("a", **{"prompt_ids": prompt(4), **bad}))
    assert not serving.executor.has_work
    serving.finish(request("a", prompt(4))).check_outputs()


def test_nothing_to_do_does_nothing():
    serving = Serving()
    serving.step(3)
    assert serving.updates == []
    assert serving.engine.num_steps == 0
    assert not serving.executor.has_work
