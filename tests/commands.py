"""Commands in this process: what they print, without the start of another process."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from types import MappingProxyType
from unittest import mock

from placement.client import cli
from tests.server import free_port


def run(
    *arguments: str, input: str = "", merged: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `placement` as a shell would; only what is given of the environment configures a service.

    If `merged`, errors are part of its output, as on a terminal.
    """
    return _ended(cli.main, arguments, input, merged, environment)


def run_openstack(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the real `openstack` of python-openstackclient, which leaves the logging of this process alone."""
    from openstackclient import shell
    from openstackclient.common.clientmanager import ClientManager
    from osc_lib.clientmanager import ClientCache

    for base in ClientManager.__mro__:
        for cached in vars(base).values():
            # Else it would go on with the client of the former command.
            if isinstance(cached, ClientCache):
                cached._handle = None
    root, known = logging.getLogger(), logging.root.manager.loggerDict.values()
    levels = {each: each.level for each in (root, *known) if isinstance(each, logging.Logger)}
    handlers = root.handlers[:]
    try:
        return _ended(lambda given: shell.OpenStackShell().run(list(given)), arguments)
    finally:
        root.handlers[:] = handlers
        for logger, level in levels.items():
            logger.setLevel(level)


def refusal(*arguments: str, **environment: str) -> str:
    """Return the one line that a failing command prints."""
    failed = run(*arguments, **environment)
    assert failed.returncode == 1, failed
    assert failed.stdout == ""
    assert failed.stderr.startswith("placement: ")
    assert len(failed.stderr.splitlines()) == 1
    return failed.stderr.removeprefix("placement: ").strip()


def refused_start(*arguments: str, **environment: str) -> str:
    """Return the one line on why `serve` does not start."""
    with _not_serving():
        return refusal("serve", "--port", str(free_port()), *arguments, **environment)


def errors_of_start(*arguments: str, **environment: str) -> list[str]:
    """Return the lines on everything that keeps `serve` from starting."""
    with _not_serving():
        refused = run("serve", "--port", str(free_port()), *arguments, **environment)
    assert (refused.returncode, refused.stdout) == (1, ""), refused
    return refused.stderr.splitlines()


@contextmanager
def _not_serving() -> Iterator[None]:
    """This process keeps its logging, its figures and its rules."""
    from placement.http import policy_files
    from placement.http.strategies import tokens
    from placement.metrics import sharing
    from placement.server import processes, settings

    with (
        mock.patch.object(sharing, "share"),
        mock.patch.object(settings, "start_logging"),
        mock.patch.object(policy_files, "prepared", []),
        mock.patch.object(tokens, "prepared", {}),
        mock.patch.object(processes.Server, "run", side_effect=AssertionError("it serves")),
    ):
        yield


def _ended(
    main: Callable[[Sequence[str]], int],
    arguments: Sequence[str],
    input: str = "",
    merged: bool = False,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.CompletedProcess[str]:
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    given, out, err = (TextIOWrapper(BytesIO(text), encoding) for text in (input.encode(), b"", b""))
    err = out if merged else err
    with ExitStack() as streams:
        streams.enter_context(mock.patch.dict("os.environ", environment))
        for name in [name for name in os.environ if name.startswith("OS_") and name not in environment]:
            del os.environ[name]
        streams.enter_context(mock.patch("sys.stdin", given))
        streams.enter_context(redirect_stdout(out))
        streams.enter_context(redirect_stderr(err))
        streams.enter_context(mock.patch.object(logging.root, "handlers", _open_handlers()))
        try:
            status = main(arguments)
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 0
    return subprocess.CompletedProcess(arguments, status, _written(out), "" if merged else _written(err))


def _open_handlers() -> list[logging.Handler]:
    """The handlers that write somewhere: one that a former command left writes to its closed stream."""
    return [
        each for each in logging.root.handlers if not getattr(getattr(each, "stream", None), "closed", False)
    ]


def _written(stream: TextIOWrapper) -> str:
    stream.flush()
    written = stream.buffer
    assert isinstance(written, BytesIO)
    return written.getvalue().decode(stream.encoding)
