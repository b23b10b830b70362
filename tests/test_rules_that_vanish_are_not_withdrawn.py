"""A policy file that goes away, is emptied or is cut opens nothing: the rules stay, and the log says so."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from oslo_config import cfg

from placement.http import policy, policy_files
from placement.http.policy import Policy
from placement.http.policy_files import BadPolicy
from placement.storage.database import Database
from tests.client import Client
from tests.conftest import application_of, configured, with_options
from tests.patience import eventually
from tests.test_configurations_are_checked_before_a_start import checked

RULES = '"placement:traits:list": "role:strict"\n"placement:resource_classes:list": "role:strict"\n'
IN_DIRECTORY = '"placement:resource_providers:list": "role:strict"\n'


@pytest.fixture(autouse=True)
def nothing_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """No start of a service in this process has left its rules."""
    monkeypatch.setattr(policy_files, "prepared", [])
    monkeypatch.setattr(policy, "_MEMORY_SECONDS", 0.05)


@pytest.fixture
def settings(tmp_path: Path) -> cfg.ConfigOpts:
    (tmp_path / "placement.conf").touch()
    (tmp_path / "policy.yaml").write_text(RULES)
    (tmp_path / "policy.d").mkdir()
    (tmp_path / "policy.d" / "more.yaml").write_text(IN_DIRECTORY)
    return with_options(configured(tmp_path / "placement.conf"), auth_strategy="noauth2")


@dataclass
class Served:
    """A service with these files, and what it logs about rules."""

    folder: Path
    service: Client
    caplog: pytest.LogCaptureFixture

    def statuses(self) -> list[int]:
        """Answers that the files forbid and the defaults allow."""
        paths = ("/traits", "/resource_classes", "/resource_providers")
        return [self.service.get(path).status_code for path in paths]

    def lines(self, level: int) -> list[str]:
        """What the log says about rules at this level."""
        self.statuses()
        loggers = ("placement.http.gate", "placement.http.policy_files")
        return [
            record.getMessage()
            for record in self.caplog.records
            if record.name in loggers and record.levelno == level
        ]


@pytest.fixture
def served(
    embedded_database: Database, settings: cfg.ConfigOpts, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> Iterator[Served]:
    caplog.set_level(logging.INFO, logger="placement")
    with application_of(embedded_database, settings) as application:
        service = Client(application.test_client()).as_("nova", X_Roles="service")
        found = Served(tmp_path, service, caplog)
        assert found.statuses() == [403] * 3
        yield found


def unreadable(file: Path) -> None:
    """Leave a file that no process can read, be it that of root."""
    file.unlink()
    file.mkdir()


def dangling(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.with_name("nothing"))


def cut(file: Path) -> None:
    file.write_text(RULES[: RULES.index("role:strict")])


HARM: dict[str, tuple[str, Callable[[Path], object]]] = {
    "gone": ("policy.yaml", Path.unlink),
    "empty": ("policy.yaml", lambda file: file.write_text("")),
    "comments": ("policy.yaml", lambda file: file.write_text("# rules\n#\n")),
    "cut within a rule": ("policy.yaml", cut),
    "cut between rules": ("policy.yaml", lambda file: file.write_text(RULES.splitlines()[0])),
    "no YAML": ("policy.yaml", lambda file: file.write_text("{[")),
    "a directory": ("policy.yaml", unreadable),
    "dangling": ("policy.yaml", dangling),
    "gone from the directory": ("policy.d/more.yaml", Path.unlink),
    "empty in the directory": ("policy.d/more.yaml", lambda file: file.write_text("")),
    "dangling in the directory": ("policy.d/more.yaml", dangling),
    "the directory": ("policy.d", shutil.rmtree),
}


@pytest.mark.parametrize("case", HARM)
def test_harm_to_a_file_leaves_the_rules_as_they_were(served: Served, case: str):
    name, harm = HARM[case]
    harm(served.folder / name)
    eventually(True, lambda: any("stay as they were" in line for line in served.lines(logging.ERROR)))
    assert served.statuses() == [403] * 3
    # It is logged once, not with every look.
    logged = served.lines(logging.ERROR)
    assert len(logged) == 1
    assert name.partition("/")[0] in logged[0]


def test_each_reading_says_how_many_rules_were_read(served: Served):
    file = served.folder / "policy.yaml"
    started = [record.getMessage() for record in served.caplog.get_records("setup")]
    assert f"rules: 2 rules of {file}, 1 rule of {served.folder}/policy.d/more.yaml" in started
    file.write_text(f'{RULES}"placement:traits:show": "role:strict"\n')
    eventually(1, lambda: len(served.lines(logging.INFO)))
    assert "3 rules" in served.lines(logging.INFO)[0]


def test_each_reading_with_fewer_rules_names_them_in_an_error(served: Served):
    file = served.folder / "policy.yaml"
    for times in (1, 2):
        file.write_text(RULES.splitlines()[0] + "\n" * times)
        eventually(times, lambda: len(served.lines(logging.ERROR)))
        line = served.lines(logging.ERROR)[-1]
        assert f"{file}: 1 rule is missing: placement:resource_classes:list; SIGHUP or a restart" in line
        assert line.endswith("The rules stay as they were.")
        assert served.statuses() == [403] * 3


def test_a_reading_with_fewer_and_other_rules_does_not_count_either(served: Served):
    (served.folder / "policy.yaml").write_text(f'{RULES.splitlines()[0]}\n"placement:traits:show": "!"\n')
    eventually(1, lambda: len(served.lines(logging.ERROR)))
    assert served.statuses() == [403] * 3
    assert "placement:resource_classes:list" in served.lines(logging.ERROR)[0]


def test_a_reload_withdraws_rules_and_a_worker_that_starts_later_does_not(
    settings: cfg.ConfigOpts, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    before = policy_files.read(settings)
    policy_files.prepared[:] = [before]
    (tmp_path / "policy.yaml").write_text(RULES.splitlines()[0])
    with pytest.raises(BadPolicy, match="1 rule is missing: placement:resource_classes:list"):
        policy_files.read(settings)
    after = policy_files.read(settings, may_withdraw=True)
    policy_files.note(after, before)
    assert "1 rule by default now: placement:resource_classes:list" in caplog.text
    policy_files.prepared[:] = [after]
    assert policy_files.read(settings).names == after.names


def test_rules_may_move_to_another_file(served: Served):
    folder = served.folder / "policy.d"
    (folder / "more.yaml").rename(folder / "renamed.yaml")
    eventually(1, lambda: len(served.lines(logging.INFO)))
    assert served.statuses() == [403] * 3
    assert not served.lines(logging.ERROR)


def test_a_file_that_comes_back_counts_again(served: Served):
    file = served.folder / "policy.yaml"
    file.unlink()
    eventually(1, lambda: len(served.lines(logging.ERROR)))
    file.write_text(RULES.replace("strict", "service"))
    eventually([200, 200, 403], served.statuses)


def test_a_file_that_still_grows_is_not_read(served: Served, monkeypatch: pytest.MonkeyPatch):
    """It is read once two looks in a row, or a second without a change, find it the same."""
    marks = iter(range(10**6))
    real = policy.marks_of
    monkeypatch.setattr(
        policy, "marks_of", lambda settings: {path: (2**62, next(marks), 0, 0) for path in real(settings)}
    )
    (served.folder / "policy.yaml").write_text(RULES.replace("strict", "service"))
    for _ in range(5):
        policy._MEMORY_SECONDS = 0
        assert served.statuses() == [403] * 3
    monkeypatch.setattr(policy, "marks_of", real)
    eventually([200, 200, 403], served.statuses)


def test_a_reload_does_not_do_without_the_rules_either(settings: cfg.ConfigOpts, tmp_path: Path):
    """The master process reads them for workers that start from then on."""
    policy_files.prepared[:] = [policy_files.read(settings)]
    (tmp_path / "policy.yaml").write_text("# nothing yet\n")
    with pytest.raises(BadPolicy, match="no rules any more"):
        policy_files.read(settings, may_withdraw=True)
    assert Policy(settings).known


@pytest.mark.parametrize(
    "option",
    [{"policy_file": "missing.yaml"}, {"policy_file": "policy.yaml"}, {"policy_dirs": ["missing.d"]}],
)
def test_what_is_configured_and_missing_refuses_the_start(
    settings: cfg.ConfigOpts, tmp_path: Path, option: dict[str, object]
):
    with_options(settings, "oslo_policy", **option)
    (tmp_path / "policy.yaml").unlink()
    ((name, value),) = option.items()
    missing = value[0] if isinstance(value, list) else value
    with pytest.raises(BadPolicy, match=rf"\[oslo_policy\] {name}: there is no {missing}"):
        policy_files.read(settings)


def test_the_usual_file_may_be_absent(tmp_path: Path):
    (tmp_path / "placement.conf").touch()
    rules = policy_files.read(configured(tmp_path / "placement.conf"))
    assert policy_files.summary(rules) == "the defaults, without a policy file"


def test_the_usual_file_may_not_be_a_link_to_nothing(tmp_path: Path):
    (tmp_path / "placement.conf").touch()
    (tmp_path / "policy.yaml").symlink_to(tmp_path / "nothing")
    with pytest.raises(BadPolicy, match="links to a file that does not exist"):
        policy_files.read(configured(tmp_path / "placement.conf"))


def test_the_check_of_a_configuration_finds_the_missing_file(tmp_path: Path):
    code, found = checked(tmp_path, f"sqlite:///{tmp_path}/none", "[oslo_policy]\npolicy_file = none.yaml\n")
    assert code == 1
    assert found["rules"] == ("error", "[oslo_policy] policy_file: there is no none.yaml.")


@pytest.mark.parametrize("text", ["", " \n\n"])
def test_a_configured_file_that_is_empty_refuses_the_start(tmp_path: Path, text: str):
    (tmp_path / "rules.yaml").write_text(text)
    code, found = checked(tmp_path, f"sqlite:///{tmp_path}/none", "[oslo_policy]\npolicy_file = rules.yaml\n")
    assert code == 1
    assert found["rules"][0] == "error"
    assert "rules.yaml: it is empty" in found["rules"][1]
    (tmp_path / "placement.conf").touch()
    settings = configured(tmp_path / "placement.conf")
    with pytest.raises(BadPolicy, match="it is empty"):
        policy_files.read(with_options(settings, "oslo_policy", policy_file="rules.yaml"))


def test_the_usual_file_may_be_empty(tmp_path: Path):
    (tmp_path / "placement.conf").touch()
    (tmp_path / "policy.yaml").touch()
    assert not policy_files.read(configured(tmp_path / "placement.conf")).names[tmp_path / "policy.yaml"]


def test_the_sample_as_it_is_starts_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    sample = Path(__file__).resolve().parents[1] / "etc" / "policy.yaml.sample"
    text = f"[oslo_policy]\npolicy_file = {sample}\n"
    code, found = checked(tmp_path, f"sqlite:///{tmp_path}/none", text)
    assert (code, found["rules"]) == (
        0,
        ("warning", f"{sample}: it has no rules, only comments; the defaults count."),
    )
    (tmp_path / "placement.conf").touch()
    settings = configured(tmp_path / "placement.conf")
    policy_files.read(with_options(settings, "oslo_policy", policy_file=str(sample)))
    assert "it has no rules, only comments" in caplog.text
