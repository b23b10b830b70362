"""Passwords of databases are read from files and shown to nobody."""

import logging

import pytest

from placement.common.secrets import shown, warn_if_readable, with_password_of
from placement.engine.domain.errors import PlacementError


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("postgresql://me:secret@db:5432/placement", "postgresql://db:5432/placement"),
        ("postgresql://me:se@cret@db/placement", "postgresql://db/placement"),
        ("postgresql://db/p?user=me&password=secret&x=1", "postgresql://db/p?user=me&password=***&x=1"),
        ("postgresql://db/p?sslPassword=secret", "postgresql://db/p?sslPassword=***"),
        ("sqlite:////var/lib/placement.db", "sqlite:////var/lib/placement.db"),
    ],
)
def test_a_url_is_shown_without_user_and_passwords(url, seen):
    assert shown(url) == seen


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "password"
    path.write_text("p@ss/wörd\r\n")
    return path


@pytest.mark.parametrize(
    ("url", "whole"),
    [
        ("postgresql://me@db:5432/p?x=1", "postgresql://me:p%40ss%2Fw%C3%B6rd@db:5432/p?x=1"),
        ("postgresql+psycopg2://me:@db/p", "postgresql+psycopg2://me:p%40ss%2Fw%C3%B6rd@db/p"),
        ("postgresql://db/p", "postgresql://:p%40ss%2Fw%C3%B6rd@db/p"),
    ],
)
def test_the_password_of_a_file_is_put_into_the_url(file, url, whole):
    assert with_password_of(str(file), url) == whole


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://me:other@db/p", "keep one"),
        ("postgresql://db/p?password=other", "keep one"),
    ],
)
def test_a_password_that_has_no_place_is_refused(file, url, said):
    with pytest.raises(PlacementError, match=said):
        with_password_of(str(file), url)


@pytest.mark.parametrize(
    ("content", "said"), [(None, "No such file"), (b"\n", "is empty"), (b"\xff\xfe", "is not UTF-8")]
)
def test_a_file_without_password_is_refused_by_its_name(tmp_path, content, said):
    path = tmp_path / "password"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PlacementError, match=f"password_file: {path}.*{said}"):
        with_password_of(str(path), "postgresql://me@db/p")


def test_the_log_tells_of_files_that_others_may_read(file, caplog):
    caplog.set_level(logging.WARNING, "placement.common.secrets")
    file.chmod(0o600)
    warn_if_readable(str(file), "the password")
    warn_if_readable("/nowhere/at/all", "the password")
    assert caplog.messages == []
    file.chmod(0o640)
    warn_if_readable(str(file), "the password")
    assert caplog.messages == [
        f"{file}: others than its owner may use the password in it; run `chmod 600` on it."
    ]
