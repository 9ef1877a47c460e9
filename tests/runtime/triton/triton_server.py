"""A real tritonserver over a repository, started as users start it."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

SCRIPT = Path(__file__).parents[3] / "scripts" / "triton_server.sh"
ENVIRONMENT = os.environ | {"PYTHON": sys.executable}
START_SECONDS, END_SECONDS = 120, 60


def is_set_up():
    return subprocess.run(["bash", SCRIPT, "--check"], env=ENVIRONMENT).returncode == 0


class TritonServer:
    """The server's process and where it listens; `with` ends both."""

    def __init__(self, repository, log, *options):
        self.http, self.grpc, self.metrics_address = (f"127.0.0.1:{port}" for port in free_ports(3))
        self.log = log
        services = {"http": self.http, "grpc": self.grpc, "metrics": self.metrics_address}
        listen = [
            f"--{name}-{part}={value}"
            for name, where in services.items()
            for part, value in zip(("address", "port"), where.split(":"), strict=True)
        ]
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                ["bash", SCRIPT, repository, *listen, *options],
                **{"env": ENVIRONMENT, "stdin": subprocess.DEVNULL, "stdout": file},
                **{"stderr": subprocess.STDOUT, "start_new_session": True},
            )
        try:
            self._wait()
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            raise

    def _wait(self):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with urlopen(f"http://{self.http}/v2/health/ready", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                pass
            time.sleep(0.1)
        raise AssertionError(
            f"tritonserver does not start:\n{self.log.read_text(errors='replace')}"
        )

    def metric(self, name, **labels):
        """The sum of a metric over all label sets that have these labels."""
        with urlopen(f"http://{self.metrics_address}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        found = [line for line in lines if line.startswith(name + "{")]
        return sum(float(line.split()[-1]) for line in found if all(w in line for w in wanted))

    def stop(self):
        """End it as an orchestrator does; gives the seconds that took, and the exit code."""
        start = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(END_SECONDS)
        finally:
            seconds = time.monotonic() - start
            self._end_group()
        return seconds, code

    def _end_group(self):
        """The stubs are in the server's process group; they have a moment to end by themselves."""
        for _ in range(100):
            try:
                os.killpg(self.process.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.1)
        os.killpg(self.process.pid, signal.SIGKILL)
        raise AssertionError("processes of tritonserver stay behind")


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
