"""Lines of the log that are put together at once have the bytes that the formatter of oslo.log makes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from oslo_config import cfg
from oslo_context import context as log_context
from oslo_log import formatters, log

from placement.server import log_lines

_SENT = "req-00000000-1111-2222-3333-444444444444"
_NAMES = st.none() | st.sampled_from(["", "-", "admin", "%s", "a b", "ß\n", "0"])
_CONTEXTS = st.none() | st.fixed_dictionaries(
    {
        "request_id": st.just("req-1"),
        "global_request_id": st.none() | st.just(_SENT),
        "user_id": _NAMES,
        "project_id": _NAMES,
        "domain_id": _NAMES,
        "system_scope": _NAMES,
        "user_domain_id": _NAMES,
        "project_domain_id": _NAMES,
        "resource_uuid": st.none() | st.just("resource"),
        "user_name": st.none() | st.just("named"),
    }
)
_EXTRAS = st.none() | st.sampled_from(
    [
        {"extra": {"uri": "/traits"}},
        {"instance": "seen"},
        {"instance_uuid": "seen"},
        {"request_id": "req-2"},
        {"global_request_id": _SENT},
        {"project": "other"},
    ]
)


_CALLER = {"request_id": "req-1", "global_request_id": _SENT, "user_id": "admin", "system_scope": "all"}
_USUAL: dict[str, Any] = {
    "context": _CALLER,
    "level": logging.WARNING,
    "message": "%s",
    "arguments": ("said",),
    "extra": None,
    "handling": None,
    "traced": False,
}


def configuration(**options: Any) -> cfg.ConfigOpts:
    settings = cfg.ConfigOpts()
    log.register_options(settings)
    settings([], project="placement", default_config_files=[], default_config_dirs=[])
    for name, value in options.items():
        settings.set_override(name, value)
    return settings


@cache
def formatter_of(kind: type[logging.Formatter]) -> logging.Formatter:
    settings = configuration()
    return kind(project="placement", version="1", datefmt=settings.log_date_format, config=settings)  # type: ignore[call-arg]


@pytest.fixture(autouse=True)
def own_context() -> Iterator[None]:
    before = vars(log_context._request_store).pop("context", None)
    yield
    vars(log_context._request_store).pop("context", None)
    if before is not None:
        before.update_store()


def both(context: dict[str, Any] | None, *record: Any, **more: Any) -> tuple[str, str]:
    """The line of oslo.log and ours, each of a record of its own, or the error of a bad message."""
    vars(log_context._request_store).pop("context", None)
    if context is not None:
        log_context.RequestContext(**context)
    lines = []
    for kind in (formatters.ContextFormatter, log_lines.LineFormatter):
        made = logging.getLogger("placement.requests").makeRecord(*record, **more)
        made.created, made.msecs = 1_750_000_000.0625, 62.5
        try:
            lines.append(formatter_of(kind).format(made))
        except (TypeError, ValueError, KeyError) as error:
            lines.append(repr(error))
    return lines[0], lines[1]


@given(
    context=_CONTEXTS,
    level=st.sampled_from([logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, 25]),
    message=st.sampled_from(['"%s" %s', "%d %s", "two\nlines %s %s", "%(one)s %s", "ß %s %s"])
    | st.text(max_size=4),
    arguments=st.sampled_from([(), ("one", None), (1, "-"), ("only",), ({"one": 1},)]),
    extra=_EXTRAS,
    handling=st.sampled_from([None, OSError("full\ndisk"), KeyError("a")]),
    traced=st.booleans(),
)
@example(**_USUAL)
@example(**{**_USUAL, "context": None, "message": "two\nlines %s"})
@example(**{**_USUAL, "handling": OSError("full\ndisk")})
@example(**{**_USUAL, "handling": OSError("full\ndisk"), "traced": True})
@example(**{**_USUAL, "level": logging.INFO, "handling": OSError("full\ndisk"), "traced": True})
@example(**{**_USUAL, "level": logging.DEBUG})
@example(**{**_USUAL, "arguments": ("two", "arguments")})
@example(**{**_USUAL, "context": {**_CALLER, "resource_uuid": "resource"}})
@example(**{**_USUAL, "extra": {"instance": "seen"}})
@example(**{**_USUAL, "context": None, "extra": {"request_id": "req-2"}})
def test_lines_have_the_same_bytes(
    context: dict[str, Any] | None,
    level: int,
    message: str,
    arguments: Any,
    extra: dict[str, Any] | None,
    handling: Exception | None,
    traced: bool,
):
    def compare() -> None:
        error = sys.exc_info() if traced and handling is not None else None
        record = ("placement.requests", level, "/x.py", 7, message, arguments, error)
        theirs, ours = both(context, *record, func="f", extra=extra)
        assert ours == theirs

    if handling is None:
        compare()
    else:
        try:
            raise handling
        except Exception:
            compare()


@pytest.mark.parametrize("context", [None, {"request_id": "req-1", "user_id": "admin", "domain_id": None}])
def test_usual_lines_take_the_shorter_way(context: dict[str, Any] | None):
    with mock.patch.object(log_lines.formatters.ContextFormatter, "format", side_effect=AssertionError):
        if context is not None:
            log_context.RequestContext(**context)
        record = logging.LogRecord("placement.audit", logging.INFO, "/x.py", 7, "%s\n", ("said",), None)
        assert formatter_of(log_lines.LineFormatter).format(record).endswith("] said\n")


def test_each_second_is_written_as_it_is():
    ours, theirs = formatter_of(log_lines.LineFormatter), formatter_of(formatters.ContextFormatter)
    for moment in (1_750_000_000.999, 1_750_000_001.0, 1_750_000_000.5, 0.0):
        record = logging.LogRecord("placement", logging.INFO, "/x.py", 7, "said", (), None)
        record.created, record.msecs = moment, moment % 1 * 1000
        assert ours.format(record) == theirs.format(record)


@pytest.fixture
def handlers() -> Iterator[list[logging.Handler]]:
    """Handlers of the root: a stream, another one, and a stream with a format of its own."""
    own = [logging.StreamHandler(), logging.Handler(), logging.StreamHandler()]
    own[0].setFormatter(formatter_of(formatters.ContextFormatter))
    own[1].setFormatter(formatter_of(formatters.ContextFormatter))
    own[2].setFormatter(logging.Formatter("%(message)s"))
    with mock.patch.object(logging.getLogger(), "handlers", own):
        yield own


def test_only_streams_with_the_formatter_of_oslo_change(handlers: list[logging.Handler]):
    log_lines.shorten(configuration())
    kinds = [type(handler.formatter) for handler in handlers[:3]]
    assert kinds == [log_lines.LineFormatter, formatters.ContextFormatter, logging.Formatter]


@pytest.mark.parametrize(
    "option",
    [
        "logging_context_format_string",
        "logging_default_format_string",
        "logging_user_identity_format",
        "log_date_format",
    ],
)
def test_other_formats_are_left_to_oslo(handlers: list[logging.Handler], option: str):
    log_lines.shorten(configuration(**{option: "%(message)s"}))
    assert type(handlers[0].formatter) is formatters.ContextFormatter
