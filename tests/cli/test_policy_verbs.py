"""penstockctl's verbs about policies and parameters, and the commands of their page."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.ctl.main import penstockctl
from penstock.testing import Broker

PAGE = Path(__file__).parents[2] / "docs" / "policies.md"


def ctl(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(penstockctl, [*words, "--data-dir", str(folder)])


def commands(page: Path) -> list[list[str]]:
    lines = page.read_text().splitlines()
    return [shlex.split(line)[1:] for line in lines if line.startswith("    penstockctl ")]


def test_the_commands_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        broker.call(lambda server: server.broker.vhosts["/"].declare_queue("orders.new", True, False, None, {}))
        found = commands(PAGE)
        assert len(found) > 10
        for words in found:
            result = ctl(tmp_path, *words)
            assert result.exit_code == 0, (words, result.output)
            if words[0] == "effective_policy":
                shown = result.output.splitlines()
                assert shown[1:] == [
                    "policy\torders",
                    "operator_policy\t",
                    'effective_policy_definition\t{"max-length":10000,"dead-letter-exchange":"late"}',
                ]
                assert all(f"    {line}".rstrip() in PAGE.read_text() for line in shown[1:])


def test_what_was_set_is_listed_as_rabbitmqctl_lists_it(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path):
        for name, priority in (("low", "1"), ("high", "2")):
            words = ("set_policy", name, "^q", '{"max-length": 5}', "--priority", priority, "-q")
            assert ctl(tmp_path, *words).output == ""
        listed = json.loads(ctl(tmp_path, "list_policies", "--json").output)
    assert [policy["name"] for policy in listed] == ["high", "low"]
    assert listed[0] == {
        "vhost": "/",
        "name": "high",
        "pattern": "^q",
        "apply-to": "all",
        "definition": {"max-length": 5},
        "priority": 2,
    }


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("set_policy", "p", "^q", "{"), 65, "JSON decoding error"),
        (("set_policy", "p", "^q", "[]"), 65, "a definition is a JSON object"),
        (("set_policy", "p", "^q", '{"max-length": -1}'), 65, "-1 is not a valid maximum length"),
        (("set_policy", "p", "^q", '{"max-length": 1}', "-p", "nowhere"), 67, "no vhost 'nowhere'"),
        (("set_operator_policy", "p", "^q", '{"queue-mode": "lazy"}'), 65, "are not recognised policy settings"),
        (("clear_policy", "p"), 67, "Parameter does not exist"),
        (("effective_policy", "q"), 67, "no queue 'q' in vhost '/'"),
        (("effective_policy", "x", "--exchange"), 67, "no exchange 'x' in vhost '/'"),
        (("set_parameter", "policy", "p", "{}"), 65, "policies may not be set using this method"),
        (("set_parameter", "shovel", "s", "NaN"), 65, "JSON decoding error"),
        (("clear_global_parameter", "p"), 67, "Parameter does not exist"),
    ],
)
def test_a_refusal_says_what_is_wrong_and_has_a_code(
    tmp_path: Path, words: tuple[str, ...], code: int, text: str
) -> None:
    with Broker(data_dir=tmp_path):
        result = ctl(tmp_path, *words)
    assert result.exit_code == code
    assert text in result.output
