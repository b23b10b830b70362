"""A setting that nobody would look at is refused by the name of its file, with what was probably meant."""

from pathlib import Path

import pytest

from placement.engine.domain.errors import PlacementError
from placement.server import configuration_files, settings
from placement.server.configuration_files import DIRECTORY_VARIABLE, FILE_VARIABLE, default_files


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch, tmp_path):
    monkeypatch.delenv(FILE_VARIABLE, raising=False)
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    monkeypatch.setattr(configuration_files, "_DEFAULT_DIRECTORY", str(tmp_path / "nothing"))


@pytest.fixture
def file(tmp_path):
    """A function that writes a configuration file and tells its path."""

    def write(text, name="placement.conf"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def test_a_file_named_in_the_environment_comes_before_the_standard_one(monkeypatch, file, tmp_path):
    assert default_files() == []
    standard = file("")
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    assert default_files() == [standard]
    other = file("", "other.conf")
    monkeypatch.setenv(FILE_VARIABLE, other)
    assert default_files() == [other]


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
        # A slip in what decides about access would leave it wider than was meant.
        ("[keystone_authtoken]\nenforce_token_bin = x\n", "did you mean enforce_token_bind?"),
        ("[keystone_authtoken]\nservice_token_role = x\n", "did you mean service_token_roles?"),
        ("[placement]\npolicy_fil = x\n", "did you mean policy_file?"),
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[keystone_authtoken]\nauth_uri = x\n", "; its name is www_authenticate_uri now"),
        ("[keystone_authtoken]\nos_region_name = x\n", "; did you mean region_name?"),
        ("[keystone_authtoken]\nmemcache_server = x\n", "; did you mean memcache_servers?"),
        ("[keystone_authtoken]\nsigning_dir = x\n", ""),
        ("[placement]\nzebra = 1\n", ""),
        ("[placement]\nsearch_timeou = 1\n", "; did you mean search_timeout?"),
    ],
)
def test_an_option_that_deployments_carry_along_is_warned_of(monkeypatch, file, text, said):
    path = file(text)
    settings.load([path])
    monkeypatch.setenv(FILE_VARIABLE, path)
    (warned,) = settings.ignored_options()
    assert warned.startswith(f"{path}: there is no option ")
    assert warned.endswith(f", so it has no effect{said}")


def test_options_of_other_ways_to_sign_in_are_known(monkeypatch, file):
    text = "auth_type = v3applicationcredential\napplication_credential_id = x\n"
    monkeypatch.setenv(FILE_VARIABLE, file(f"[keystone_authtoken]\n{text}"))
    assert settings.ignored_options() == []


@pytest.mark.parametrize("also", [None, "newer.yaml"])
def test_the_former_name_of_the_policy_file_counts_unless_the_present_one_is_set(file, also):
    present = f"[oslo_policy]\npolicy_file = {also}\n" if also else ""
    loaded = settings.load([file(f"[placement]\npolicy_file = older.yaml\n{present}")])
    assert loaded.oslo_policy.policy_file == (also or "older.yaml")
    assert settings.is_set(loaded, "oslo_policy", "policy_file")


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
