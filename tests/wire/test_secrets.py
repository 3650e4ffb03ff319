"""What is found as a secret in text, what is not, and how long that takes."""

import random
import subprocess
import sys

import pytest

from clawd.wire.secrets import find_secrets, is_secret_name
from tests.support.secret_forms import FORMS, ORDINARY, filled, secrets_of

# Text in which each piece could send a pattern through the rest of it once more.
HOSTILE = (
    "password=", "cookie: ", "token: ", "token='", 'password="password=\'password=`', "://a:",
    "eyJaaaa-", "eyJaaaa.", "bearer ", "sk-", "sk-a1b2c3d4e5f6g7h8 ", "key:", "$1$", "<password>",
    "-u a:",
    "mysql -h ", "login a password ", "password:\n", 'password=\\"', "a_", "name: password ",
    "-----BEGIN PRIVATE " + "KEY-----\n", "-----END PRIVATE " + "KEY-----\n", ("A" * 64) + "\n",
)  # fmt: skip


def without(text: str, *, is_eager: bool = False) -> str:
    """Return the text with the tag in the place of each secret."""
    for secret in reversed(find_secrets(text, is_eager=is_eager)):
        text = f"{text[: secret.start]}[secret:0123abcd]{text[secret.end :]}"
    return text


@pytest.mark.parametrize("is_eager", [False, True])
def test_s4_no_form_of_a_secret_is_overlooked(is_eager: bool) -> None:
    assert len(FORMS) >= 60
    fronts = ("", "before\n", "    ", "+", "> ", "{\n  ")
    wrong = []
    for form in FORMS:
        assert secrets_of(form), form
        # In front of a line may stand what programs put there, and after it another line.
        for front in fronts if "\n" not in form else fronts[:2]:
            shown = without(f"{front}{filled(form)}\nafter", is_eager=is_eager)
            if any(secret in shown for secret in secrets_of(form)):
                wrong.append((front, form, shown))
    assert wrong == []


@pytest.mark.parametrize(
    "front", ["2|", "   12\t", "src/.env:3:", "src/.env-4-", "+", "-", "> ", "7: "]
)
def test_s4_what_programs_put_before_each_line_hides_no_secret(front: str) -> None:
    wrong = []
    for form in FORMS:
        lines = "\n".join(
            f"{front}{line}" for line in f"so it is:\n{filled(form)}\nand on".split("\n")
        )
        shown = without(lines)
        if any(secret in shown for secret in secrets_of(form)):
            wrong.append((form, shown))
        # A private key without an end may go on to that of the text.
        assert shown.startswith(f"{front}so it is:"), shown
        assert shown.endswith(f"{front}and on") or "BEGIN" in form, shown
    assert wrong == []


def test_s4_ordinary_text_holds_no_secret() -> None:
    assert len(ORDINARY) >= 100
    found = {text: [text[s.start : s.end] for s in find_secrets(text)] for text in ORDINARY}
    whole = "\n".join(ORDINARY)
    for text in ORDINARY:
        numbered = "\n".join(f"{n}|{line}" for n, line in enumerate(text.split("\n"), start=1))
        found[numbered] = [numbered[s.start : s.end] for s in find_secrets(numbered)]
    found["all of it"] = [whole[s.start : s.end] for s in find_secrets(whole)]
    assert {text: secrets for text, secrets in found.items() if secrets} == {}


def test_s4_what_was_taken_out_is_no_secret_again() -> None:
    for form in FORMS:
        once = without(filled(form))
        assert without(once) == once, form


def test_s4_a_name_means_the_same_in_text_and_in_trees() -> None:
    secret = (
        "DB_PASSWORD", "password", "dbPassword", "SMTP_PASS", "AWS_SECRET_ACCESS_KEY", "apiKey",
        "GITHUB_TOKEN", "_authToken", "clientSecret", "client_secret", "x-api-key", "Cookie",
        "Authorization", "private_key", "AccountKey", "SECRET_KEY_BASE", "token", "refresh_token",
        "accesstoken", "apikey", "passphrase", "PGPASSWORD", "api_key_2", "connectionString",
    )  # fmt: skip
    plain = (
        "tokens", "max_tokens", "token_type", "eos_token", "next_token", "password_file", "MONKEY",
        "public_key", "primary_key", "secret_name", "token_count", "compass", "keyboard", "author",
        "cookie_policy", "passwordless", "path", "name", "key", "id",
    )  # fmt: skip
    assert [name for name in secret if not is_secret_name(name)] == []
    assert [name for name in plain if is_secret_name(name)] == []
    value = "4f9Kq2LmZ8vT"
    texts = (f'"{name}": "{value}"' for name in secret if name not in {"Cookie", "Authorization"})
    assert [text for text in texts if value in without(text)] == []


def test_s4_a_token_is_known_by_what_its_service_begins_it_with() -> None:
    key = "aB3dE6gH9kL2nP5rS8tU"
    underscores = ("sbp_", "gsk_", "r8_", "rnd_", "ntn_", "fw_", "phx_", "figd_", "lsv2_pt_")
    for front in (*underscores, "nvapi-", "tvly-dev-", "xai-", "pplx-", "sk_live_", "rk_test_"):
        for token in (front + key, front + key[:10]):
            assert without(f"say {token} now") == "say [secret:0123abcd] now", token


def test_s4_no_text_takes_longer_than_its_length() -> None:
    # In another process, which can be ended: a regular expression listens to nothing.
    code = (
        "import sys, time\n"
        "from clawd.wire.secrets import find_secrets\n"
        "from tests.wire.test_secrets import HOSTILE\n"
        "slow = []\n"
        "for piece in HOSTILE:\n"
        "    took = []\n"
        "    for size in (8_000, 64_000):\n"
        "        text = piece * (size // len(piece))\n"
        "        began = time.process_time()\n"
        "        find_secrets(text)\n"
        "        took.append(time.process_time() - began)\n"
        "    if took[1] > 0.1 and took[1] > 24 * took[0]:\n"  # 8 times the length
        "        slow.append((piece, took))\n"
        "sys.exit(str(slow) if slow else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], timeout=120, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_s4_what_spares_ordinary_text_the_search_spares_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = random.Random(4)
    texts = [*ORDINARY, *map(filled, FORMS)]
    for form in FORMS:
        text = filled(form)
        for _ in range(6):
            begin, end = sorted(rng.choices(range(len(text) + 1), k=2))
            changed = rng.choice([str.upper, str.lower, str.title, str.swapcase])
            texts += [text[begin:], text[:end], text[:begin] + text[end:], changed(text)]
    spared = [find_secrets(text) for text in texts]
    monkeypatch.setattr("clawd.wire.secrets._COLONS_OF_PGPASS", 0)  # every text has so many
    searched = [find_secrets(text) for text in texts]
    wrong = [
        each for each, *found in zip(texts, spared, searched, strict=True) if found[0] != found[1]
    ]
    assert wrong == []
