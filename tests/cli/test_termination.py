"""Signals that end a command."""

import os
import signal

import pytest

from dsv4_trt.cli.termination import signals_unwind

pytestmark = pytest.mark.usefixtures("signals_as_usual")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_an_exit_and_a_second_one_does_not_disturb_it(number):
    undone = []

    def work():
        try:
            os.kill(os.getpid(), number)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            undone.append("all")

    with signals_unwind(), pytest.raises(SystemExit) as caught:
        work()
    assert caught.value.code == 128 + number
    assert undone == ["all"]
    assert signal.getsignal(number) is signal.SIG_DFL


def test_a_signal_that_is_ignored_stays_so():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with signals_unwind():
        os.kill(os.getpid(), signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
