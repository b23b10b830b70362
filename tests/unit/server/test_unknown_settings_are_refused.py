"""A setting that nobody would look at is refused by the name of its file, with what was probably meant."""

from pathlib import Path

import pytest

from placement.engine.domain.errors import PlacementError
from placement.server import settings
from placement.server.settings import DIRECTORY_VARIABLE, FILE_VARIABLE, configuration_files


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch, tmp_path):
    monkeypatch.delenv(FILE_VARIABLE, raising=False)
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    monkeypatch.setattr(settings, "_DEFAULT_DIRECTORY", str(tmp_path / "nothing"))


@pytest.fixture
def file(tmp_path):
    """A function that writes a configuration file and tells its path."""

    def write(text, name="placement.conf"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def test_a_file_named_in_the_environment_comes_before_the_standard_one(monkeypatch, file, tmp_path):
    assert configuration_files() == []
    standard = file("")
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    assert configuration_files() == [standard]
    other = file("", "other.conf")
    monkeypatch.setenv(FILE_VARIABLE, other)
    assert configuration_files() == [other]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[api]\nauth_stratgy =\n",
            "there is no option auth_stratgy in [api]; did you mean auth_strategy?",
        ),
        ("[api]\nzebra = 1\n", "there is no option zebra in [api]"),
        ("[apis]\nauth_strategy = token\n", "there is no group [apis]; did you mean [api]?"),
        ("[api\n", "Invalid section"),
        ("[DEFAULT]\nconnection = sqlite:///x\n", "did you mean the one in [placement_database]?"),
        ("[oslo_policy]\npolicy_fil = x\n", "did you mean policy_file?"),
        ("[keystone_authtoken]\nmemcache_server = x\n", "did you mean memcache_servers?"),
    ],
)
def test_a_slip_in_a_file_is_named(file, text, said):
    path = file(text)
    with pytest.raises(PlacementError) as refused:
        settings.load([path])
    assert str(refused.value).startswith(path)
    assert said in " ".join(str(refused.value).split())
    # Files in a directory count as well.
    with pytest.raises(PlacementError, match=r"placement\.conf: "):
        settings.load([], [str(Path(path).parent)])


def test_what_is_loaded_comes_from_the_environment_before_the_file(monkeypatch, file):
    path = file("[api]\nauth_strategy = token\nrequest_timeout = 7\n")
    monkeypatch.setenv("OS_API__REQUEST_TIMEOUT", "9")
    loaded = settings.load([path])
    assert (loaded.api.auth_strategy, loaded.api.request_timeout) == ("token", 9)
    assert settings.is_set(loaded, "api", "auth_strategy")
    assert not settings.is_set(loaded, "api", "tokens_file")
    # A value that an option cannot have is refused.
    with pytest.raises(PlacementError, match="auth_strategy"):
        settings.load([file("[api]\nauth_strategy = everybody\n")])
