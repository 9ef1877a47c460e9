"""The engine's process from the server's side: requests, refusals, deaths, restarts."""

import asyncio
import os
import signal
from contextlib import asynccontextmanager, suppress

import pytest

from dsv4_trt.errors import ConfigError, EngineFault, QueueFull, RequestError, Unavailable
from dsv4_trt.runtime.server import engine_client
from dsv4_trt.runtime.server.engine_client import EngineClient
from tests.runtime.executor.fake_reference import expected
from tests.runtime.executor.serving import prompt, request
from tests.runtime.server.fake_engines import DEADLY_TOKEN, FAULTY_TOKEN, open_fake


@asynccontextmanager
async def running(**options):
    client = EngineClient(open_fake, options)
    try:
        await client.start()
        yield client
    finally:
        await client.stop()
        assert not client._link.process.is_alive()


async def read(stream):
    updates = []
    while news := await stream.read():
        updates += news
    return updates


def tokens_of(updates, index=0):
    return [u.token.token_id for u in updates if u.index == index and u.token is not None]


async def send(client, token):
    """A request that the engine may not live to accept."""
    with suppress(EngineFault):
        await client.submit(request(client.new_id(), [token]))


async def until(condition, seconds=10):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def test_many_requests_get_what_they_get_alone():
    async def main():
        async with running() as client:
            asks = [
                request(client.new_id(), prompt(20 + 7 * i, seed=i), n=1 + i % 3, max_tokens=10)
                for i in range(12)
            ]
            streams = await asyncio.gather(*(client.submit(ask) for ask in asks))
            found = await asyncio.gather(*(read(stream) for stream in streams))
            for ask, updates in zip(asks, found, strict=True):
                assert [u.finished for u in updates] == [False] * (len(updates) - 1) + [True]
                for index in range(ask.params.n):
                    want, reason = expected(ask.prompt_ids, ask.params, index)
                    assert tokens_of(updates, index) == want
                    reasons = [u.finish_reason for u in updates if u.index == index]
                    assert reasons[-1] == reason
            metrics = await client.metrics()
            assert metrics["requests_accepted"] == 12
            assert client.num_running == 0

    asyncio.run(main())


def test_refusals_are_errors_of_submit():
    async def main():
        async with running(serving={"max_queue_size": 2, "seqs": 1}, step_seconds=0.05) as client:
            with pytest.raises(RequestError, match="top_p is 7") as found:
                await client.submit(request(client.new_id(), [5], top_p=7.0))
            assert found.value.parameter == "top_p"
            asks = [request(client.new_id(), [5] * 9, max_tokens=100) for _ in range(20)]
            results = await asyncio.gather(*map(client.submit, asks), return_exceptions=True)
            refused = [r for r in results if isinstance(r, Exception)]
            assert refused
            assert all(isinstance(error, QueueFull) for error in refused)
            assert client.num_running == 20 - len(refused)

    asyncio.run(main())


def test_cancel_ends_a_request_within_two_steps():
    async def main():
        async with running(step_seconds=0.02) as client:
            stream = await client.submit(request(client.new_id(), [5] * 9, max_tokens=900))
            await stream.read()
            stream.cancel()
            rest = await read(stream)
            assert rest[-1].finish_reason == "cancelled"
            assert len(rest) <= 4  # two steps, and what was on its way
            assert (await client.metrics())["requests_finished"]["cancelled"] == 1
            stream.cancel()  # nothing happens

    asyncio.run(main())


def test_a_caller_that_is_cancelled_leaves_no_request():
    async def main():
        async with running(step_seconds=0.02) as client:
            for _ in range(5):
                ask = request(client.new_id(), [5] * 9, max_tokens=900)
                task = asyncio.create_task(client.submit(ask))
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await until(lambda: client.num_running == 0)
            assert (await client.metrics())["requests_finished"]["cancelled"] == 5

    asyncio.run(main())


def test_a_timeout_ends_a_request_with_what_it_has():
    async def main():
        async with running(step_seconds=0.02) as client:
            ask = request(client.new_id(), [5] * 9, max_tokens=900)
            updates = await read(await client.submit(ask, timeout=0.3))
            assert updates[-1].finish_reason == "timeout"
            want, _ = expected(ask.prompt_ids, ask.params, 0)
            found = tokens_of(updates)
            assert found == want[: len(found)]

    asyncio.run(main())


@pytest.mark.parametrize("death", ["killed", "exit", "fault"])
def test_a_dead_engine_fails_its_requests_and_comes_back(death):
    async def main():
        async with running(step_seconds=0.01) as client:
            first = client._link.process.pid
            streams = [
                await client.submit(request(client.new_id(), [5] * 9, max_tokens=900))
                for _ in range(3)
            ]
            if death == "killed":
                os.kill(first, signal.SIGKILL)
            else:
                await send(client, DEADLY_TOKEN if death == "exit" else FAULTY_TOKEN)
            for stream in streams:
                updates = await read(stream)
                assert updates[-1].finished
                assert updates[-1].finish_reason == "error"
                assert isinstance(updates[-1].error, EngineFault)
            await until(lambda: client.state != "ready")
            with pytest.raises(Unavailable):
                await client.submit(request(client.new_id(), [5]))
            await until(lambda: client.state == "ready")
            ask = request(client.new_id(), [5] * 9, max_tokens=5)
            found = tokens_of(await read(await client.submit(ask)))
            assert found == expected(ask.prompt_ids, ask.params, 0)[0]
            assert client._link.process.pid != first

    asyncio.run(main())


def test_an_engine_that_dies_too_often_is_given_up(monkeypatch):
    monkeypatch.setattr(engine_client, "MAX_RESTARTS", 1)

    async def main():
        lost = []
        async with running() as client:
            client.on_lost = lost.append
            for _ in range(2):
                await until(lambda: client.state == "ready")
                await send(client, DEADLY_TOKEN)
                await until(lambda: client.state != "ready")
            await until(lambda: client.state == "lost")
            assert len(lost) == 1
            with pytest.raises(Unavailable):
                await client.metrics()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"refuse": True}, ConfigError, "told to refuse"),
        ({"exit": True}, EngineFault, "exit code 7"),
    ],
)
def test_an_engine_that_does_not_open_says_why(options, error, match):
    async def main():
        async with running(**options):
            raise AssertionError("it opened")

    with pytest.raises(error, match=match):
        asyncio.run(main())


def test_stop_ends_what_runs_as_cancelled():
    async def main():
        async with running(step_seconds=0.02) as client:
            stream = await client.submit(request(client.new_id(), [5] * 9, max_tokens=900))
            await client.stop()
            assert (await read(stream))[-1].finish_reason == "cancelled"
            with pytest.raises(Unavailable, match="is stopping"):
                await client.submit(request(client.new_id(), [5]))

    asyncio.run(main())


def test_a_death_while_it_starts_again_is_one_more_death(tmp_path):
    async def main():
        file = tmp_path / "exit"
        async with running(exit_while=file) as client:
            client.on_lost = pytest.fail
            file.touch()
            os.kill(client._link.process.pid, signal.SIGKILL)
            await until(lambda: client.state == "restarting")
            await until(lambda: client.state == "ready", 30)
            assert not file.exists()
            assert len(client._deaths) == 2

    asyncio.run(main())


def test_a_stop_while_it_starts_again_is_no_loss():
    async def main():
        async with running() as client:
            client.on_lost = pytest.fail
            first = client._link
            os.kill(first.process.pid, signal.SIGKILL)
            await until(lambda: client._link is not first, 30)
            await client.stop()
            await asyncio.sleep(0.2)
            assert client.state == "stopped"

    asyncio.run(main())


def test_a_process_that_hangs_holds_up_nobody(monkeypatch):
    monkeypatch.setattr(engine_client, "METRICS_SECONDS", 0.3)
    monkeypatch.setattr("dsv4_trt.runtime.server.executor_link.KILL_SECONDS", 0.5)

    async def main():
        async with running() as client:
            os.kill(client._link.process.pid, signal.SIGSTOP)
            asks = [request(client.new_id(), [5] * 400, max_tokens=4) for _ in range(2000)]
            tasks = [asyncio.create_task(client.submit(ask)) for ask in asks]
            async with asyncio.timeout(5):
                with pytest.raises(Unavailable, match="did not answer"):
                    await client.metrics()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())
