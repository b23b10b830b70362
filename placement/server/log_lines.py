"""Lines of the log in the usual format of oslo.log, put together at once: every request writes one or two."""

from __future__ import annotations

import logging
import sys
import time

from oslo_config import cfg
from oslo_context import context as log_context
from oslo_log import formatters

_SECONDS = "%Y-%m-%d %H:%M:%S"
_HEAD = "%(asctime)s.%(msecs)03d %(process)d %(levelname)s %(name)s"
# The options that make a line, with their values in the usual format.
_USUAL = {
    "logging_context_format_string": f"{_HEAD} [%(global_request_id)s %(request_id)s %(user_identity)s] "
    "%(instance)s%(message)s",
    "logging_default_format_string": f"{_HEAD} [-] %(instance)s%(message)s",
    "logging_user_identity_format": "%(user)s %(project)s %(domain)s %(system_scope)s %(user_domain)s "
    "%(project_domain)s",
    "log_date_format": _SECONDS,
}
_LINE = "%s.%03d %d %s %s [%s] %s"
_INSTANCES = frozenset(("instance", "instance_uuid"))
# Members of a record that only its `extra` brings, and that change its line.
_UNUSUAL = _INSTANCES | {"context", "request_id", "global_request_id"}


class LineFormatter(formatters.ContextFormatter):
    """The formatter of oslo.log, with a shorter way to the text of a usual line."""

    _latest_second: tuple[int, str] = (-1, "")

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        context = log_context.get_current()
        if not _is_usual(record) or (context is not None and not _is_plain(context)):
            return super().format(record)
        try:
            return _LINE % (
                self._time_of(record),
                record.msecs,
                record.process,
                record.levelname,
                record.name,
                "-" if context is None else _caller_in(context),
                record.getMessage(),
            )
        except TypeError:
            # The arguments do not suit the message, and the line says so.
            return super().format(record)

    def _time_of(self, record: logging.LogRecord) -> str:
        """Return the second of a record; many records share one."""
        second = int(record.created)
        known, text = self._latest_second
        if known != second:
            text = time.strftime(_SECONDS, time.localtime(second))
            self._latest_second = second, text
        return text


def _is_usual(record: logging.LogRecord) -> bool:
    """Return whether a record has one line that ends with its message."""
    return not (
        record.levelno == logging.DEBUG
        or record.exc_info
        or record.exc_text
        or record.stack_info
        # A warning while an error is handled ends with that.
        or (record.levelno >= logging.WARNING and sys.exc_info()[0] is not None)
        or not _UNUSUAL.isdisjoint(vars(record))
    )


def _is_plain(context: log_context.RequestContext) -> bool:
    """Return whether a context names a request and its caller, and no resource."""
    return (
        type(context) is log_context.RequestContext
        and bool(context.request_id)
        and not context.resource_uuid
        and _INSTANCES.isdisjoint(vars(context))
    )


def _caller_in(context: log_context.RequestContext) -> str:
    return (
        f"{context.global_request_id} {context.request_id} {context.user_id or '-'} "
        f"{context.project_id or '-'} {context.domain_id or '-'} {context.system_scope or '-'} "
        f"{context.user_domain_id or '-'} {context.project_domain_id or '-'}"
    )


def shorten(settings: cfg.ConfigOpts) -> None:
    """Have files and streams of the log take the shorter way, if the configured format is the usual one."""
    if any(settings[option] != usual for option, usual in _USUAL.items()):
        return
    for handler in logging.getLogger().handlers:
        former = handler.formatter
        # The journal takes members of its records from the longer way.
        if (
            isinstance(handler, logging.StreamHandler)
            and type(former) is formatters.ContextFormatter
            and former.datefmt == _SECONDS
        ):
            handler.setFormatter(
                LineFormatter(
                    project=former.project, version=former.version, datefmt=_SECONDS, config=former.conf
                )
            )
