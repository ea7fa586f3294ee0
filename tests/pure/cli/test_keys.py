"""``conductor keys``: a key is printed once, and what is listed says whose it is and what it may."""

from pathlib import Path

import pytest

from tests.support.command_line import CommandLine

LIMITS = ("--models", "fugu, fugu-ultra", "--exclude-provider", "openai", "--exclude-provider", "api.example.com")
AMOUNTS = ("--usd-per-day", 5, "--tokens-per-day", 20_000, "--requests-per-minute", 60)


def test_a_key_is_printed_once_listed_and_revoked(cli: CommandLine) -> None:
    assert "the endpoint answers this machine only" in cli("keys", "list").out
    made = cli("keys", "create", "app", *LIMITS, *AMOUNTS, "--json")
    assert (made.code, made.err) == (0, "")
    key = made.document.pop("key")
    assert key.startswith("ci-")
    assert made.out.count(key) == 1
    listed = cli("keys", "list", "--json")
    assert key not in listed.out
    (row,) = listed.document["keys"]
    assert row.items() >= {
        "name": "app", "models": ["fugu", "fugu-ultra"], "excluded_providers": ["openai", "api.example.com"],
        "usd_per_day": 5, "tokens_per_day": 20_000, "requests_per_minute": 60, "revoked_at_utc": None,
        "spent_today": {"usd": 0, "tokens": 0}, "last_used_at_utc": None,
    }.items()  # fmt: skip
    assert row["created_by"]["door"] == "cli"
    table = cli("keys", "list").out
    assert "$5.00 and 20,000 tokens a day, 60 requests a minute, only fugu, fugu-ultra, never openai" in table
    assert cli("keys", "revoke", "app", "--json").document["revoked_at_utc"] is not None
    assert cli("keys", "list", "--json").document["keys"][0]["revoked_at_utc"] is not None
    assert cli("keys", "revoke", "app").error == "the key 'app' is already revoked"


def test_without_json_stdout_is_the_key_alone(cli: CommandLine) -> None:
    made = cli("keys", "create", "app")
    assert made.code == 0
    assert made.out.startswith("ci-")
    assert len(made.out.split()) == 1
    assert made.out.strip() not in made.err
    assert "shown only now" in made.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("create", " "), "the key's name is empty"),
        (("create", "a\x1b[31m"), "none that cannot be printed"),
        (("create", "x", "--models", ""), "--models is empty"),
        (("create", "x", "--models", "a,,b"), "the name of a model is empty"),
        (("create", "x", "--usd-per-day", "-1"), "--usd-per-day"),
        (("create", "x", "--usd-per-day", "nan"), "--usd-per-day"),
        (("create", "x", "--tokens-per-day", "1.5"), "--tokens-per-day"),
        (("create", "x", "--requests-per-minute", "0"), "--requests-per-minute"),
        (("revoke", "nobody"), "unknown key 'nobody'; see conductor keys list"),
        (("revoke", "ci-12345678"), "this looks like a key itself"),
    ],
)
def test_bad_input_is_one_clear_line(cli: CommandLine, arguments: tuple[str, ...], message: str) -> None:
    outcome = cli("keys", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.error


def test_a_database_that_is_not_there_is_not_made_to_revoke_a_key_in_it(cli: CommandLine, tmp_path: Path) -> None:
    assert "no database at" in cli("keys", "revoke", "app", "--db", tmp_path / "none.db").error
    assert not (tmp_path / "none.db").exists()
