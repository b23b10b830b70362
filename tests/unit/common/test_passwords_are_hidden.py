"""Passwords of databases are read from files and shown to nobody."""

import pytest

from placement.common.secrets import shown, warn_if_readable, with_password_of
from placement.engine.domain.errors import PlacementError


@pytest.mark.parametrize("driver", ["postgresql", "postgresql+psycopg2"])
def test_odd_passwords_are_hidden_and_quoted(tmp_path, driver):
    assert shown(f"{driver}://me:se@cret@db/placement") == f"{driver}://db/placement"
    path = tmp_path / "password"
    path.write_text("p@ss/wörd\r\n")
    whole = f"{driver}://me:p%40ss%2Fw%C3%B6rd@db:5432/p?x=1"
    assert with_password_of(str(path), f"{driver}://me@db:5432/p?x=1") == whole
    warn_if_readable("/nowhere/at/all", "the password")


@pytest.mark.parametrize(
    ("content", "said"), [(None, "No such file"), (b"\n", "is empty"), (b"\xff\xfe", "is not UTF-8")]
)
def test_a_file_without_password_is_refused_by_its_name(tmp_path, content, said):
    path = tmp_path / "password"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PlacementError, match=f"password_file: {path}.*{said}"):
        with_password_of(str(path), "postgresql://me@db/p")
