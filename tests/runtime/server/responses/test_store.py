"""The store of responses is bounded, and forgets the one that was not used for longest."""

from dsv4_trt.runtime.server.responses.store import PART_BYTES, ResponseStore, Stored


def stored(number, size=0):
    item = {"type": "message", "id": f"msg_{number}"}
    response = {"id": f"resp_{number}", "output": [item]}
    return Stored(response=response, messages=[{"role": "user", "content": "x" * size}])


def test_what_is_put_is_found_with_its_items():
    store = ResponseStore()
    store.put(stored(1))
    assert store.get("resp_1") == stored(1)
    assert store.item("msg_1") == {"type": "message", "id": "msg_1"}
    assert store.get("resp_2") is None
    assert store.item("msg_2") is None


def test_what_is_dropped_is_gone_once():
    store = ResponseStore()
    store.put(stored(1))
    assert store.drop("resp_1")
    assert not store.drop("resp_1")
    assert store.item("msg_1") is None


def test_the_one_that_was_not_used_for_longest_goes_first():
    store = ResponseStore(max_responses=2)
    store.put(stored(1))
    store.put(stored(2))
    store.get("resp_1")
    store.put(stored(3))
    assert [store.get(f"resp_{i}") is not None for i in (1, 2, 3)] == [True, False, True]
    assert store.item("msg_2") is None


def test_bytes_are_bounded_and_given_back():
    store = ResponseStore(max_bytes=3000 + 4 * PART_BYTES)
    for number in range(100):
        store.put(stored(number, 1000))
        assert len(store) <= 2
    store.put(
        stored(100, 4000 + 4 * PART_BYTES)
    )  # too large: not kept, and nothing else lost for it
    assert store.get("resp_100") is None
    assert store.get("resp_99") is not None
    for number in range(101):
        store.drop(f"resp_{number}")
    assert store._num_bytes == len(store) == len(store._items) == 0


def test_many_small_messages_count_as_what_they_take():
    messages = [{"role": "user", "content": "x"}] * 1000
    many = Stored(response={"id": "resp_1", "output": []}, messages=messages)
    assert many.num_bytes > 1000 * PART_BYTES
