"""The `placement` command in this process: what it prints, without the start of another process."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from unittest import mock

from placement.client import cli


def run(*arguments: str, input: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a shell would; only what is given of the environment configures a service."""
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    given, out, err = (TextIOWrapper(BytesIO(text), encoding) for text in (input.encode(), b"", b""))
    with ExitStack() as streams:
        streams.enter_context(mock.patch.dict("os.environ", environment))
        for name in [name for name in os.environ if name.startswith("OS_") and name not in environment]:
            del os.environ[name]
        streams.enter_context(mock.patch("sys.stdin", given))
        streams.enter_context(redirect_stdout(out))
        streams.enter_context(redirect_stderr(err))
        try:
            status = cli.main(arguments)
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 0
        finally:
            cli.Placement.LOG.handlers.clear()
    return subprocess.CompletedProcess(arguments, status, _written(out), _written(err))


def refusal(*arguments: str, **environment: str) -> str:
    """Return the one line that a failing command prints."""
    failed = run(*arguments, **environment)
    assert failed.returncode == 1, failed
    assert failed.stdout == ""
    assert failed.stderr.startswith("placement: ")
    assert len(failed.stderr.splitlines()) == 1
    return failed.stderr.removeprefix("placement: ").strip()


def _written(stream: TextIOWrapper) -> str:
    stream.flush()
    written = stream.buffer
    assert isinstance(written, BytesIO)
    return written.getvalue().decode(stream.encoding)
