import threading

import pytest

from dsv4_trt.convert.job_pool import JobPool, Stopped


def test_results_come_in_the_order_of_the_jobs():
    with JobPool(4) as pool:
        assert pool.run([lambda at=at: at * at for at in range(100)]) == [i * i for i in range(100)]


def test_no_job_begins_after_a_failure():
    """Not even while the caller has not noticed it yet."""
    begun = []

    def fails():
        raise KeyError("first")

    with pytest.raises(KeyError, match="first"), JobPool(1) as pool:
        pool.run([fails, *(lambda at=at: begun.append(at) for at in range(1000))])
    assert begun == []


def test_a_long_job_gives_up_and_the_failure_is_what_is_raised():
    def long(pool, failed):
        failed.wait()
        while True:
            pool.check()

    def fails(failed):
        failed.set()
        raise KeyError("first")

    failed = threading.Event()
    with pytest.raises(KeyError, match="first"), JobPool(3) as pool:
        pool.run([lambda: long(pool, failed), lambda: long(pool, failed), lambda: fails(failed)])
    with pytest.raises(Stopped):
        pool.check()
