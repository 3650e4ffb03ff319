"""What counts as a secret in terminal text, and what does not."""

import base64
import hashlib
import json
import subprocess
import sys
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from clawctl.shell.command_log import TAG, known_secrets, redacted
from clawd.wire.secrets import is_secret_variable
from tests.support.rows import each_row

WORD = "correct-horse"
RANDOM = base64.urlsafe_b64encode(hashlib.sha256(b"seed").digest()).decode()
KEY_LINES = "\n".join(
    base64.b64encode(hashlib.sha512(str(n).encode()).digest()).decode()[:64] for n in range(4)
)
KIND = "PRIVATE " + "KEY"


@each_row(
    "text",
    [
        f"PASSWORD={WORD}",
        f"export DB_PASSWORD='{WORD}'",
        f'DB_PASSWORD="{WORD} with blanks"',
        f"MYSQL_ROOT_PASSWORD: {WORD}",
        f'{{"client_secret": "{WORD}"}}',
        f"api_key = {WORD}",
        f"apiKey: {WORD}",
        f"AWS_SECRET_ACCESS_KEY={WORD}",
        f"my.service.token={WORD}",
        f"curl --password {WORD} https://example.org",
        f"tool --api-key={WORD}",
        f"Authorization: Bearer {WORD}",
        f"authorization: Basic {WORD}",
        f"-H 'X-Api-Key: {WORD}'",
        f"Cookie: session={WORD}; other={WORD}",
        f"Bearer {WORD}-and-more",
        f"https://user:{WORD}@example.org/path",
        f"postgres://app:{WORD}@db/app",
        f"machine x login me password {WORD}",
    ],
)
def test_a_value_that_is_named_a_secret_is_taken_out(text: str) -> None:
    shown = redacted(text)
    assert WORD not in shown
    assert TAG in shown


@each_row(
    "begin",
    ["sk-", "ghp_", "github_pat_", "glpat-", "xoxb-", "hf_", "pypi-", "AKIA", "sk_live_", "npm_"],
)
def test_tokens_are_known_by_their_shape(begin: str) -> None:
    token = begin + ("ABCDEFGH23456789" if begin == "AKIA" else "a1b2c3d4e5" * 4)
    if begin == "npm_":
        token = begin + "a1" * 18
    assert redacted(f"using {token} now") == f"using {TAG} now"


def test_a_web_token_is_taken_out() -> None:
    token = ".".join(
        base64.urlsafe_b64encode(part).decode().rstrip("=")
        for part in (b'{"alg":"none"}', b'{"sub":"me"}', b"signature")
    )
    assert redacted(f"got {token}") == f"got {TAG}"


@each_row("prefix", ["", "OPENSSH ", "RSA ", "EC ", "ENCRYPTED "])
def test_a_private_key_is_taken_out_whole_or_cut(prefix: str) -> None:
    begin, end = f"-----BEGIN {prefix}{KIND}-----", f"-----END {prefix}{KIND}-----"
    for text in (
        f"{begin}\n{KEY_LINES}\n{end}\n",
        f"{begin}\n{KEY_LINES}\n",
        f"{KEY_LINES}\n{end}\n",
        f"{KEY_LINES}\n",
    ):
        shown = redacted(f"what was before\n{text}")
        assert shown.startswith("what was before\n")
        for line in KEY_LINES.splitlines():
            assert line not in shown


def test_strings_without_order_are_taken_out() -> None:
    assert redacted(f"got {RANDOM} back") == f"got {TAG} back"


@each_row(
    "text",
    [
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "sha256:" + hashlib.sha256(b"x").hexdigest(),
        "/usr/lib/python3/dist-packages/some_module/test_connection_pool.py",
        "E   AssertionError: assert 3 == 4",
        "drwxr-xr-x 2 root root 4096 Nov 21 23:49 project",
        "TestClientReconnectsWhenTheServerIsRestarted2Times",
        "make: *** [Makefile:12: all] Error 2",
        "error: expected one of `!` or `::`, found `token`",
        "http://localhost:8080/path?x=1",
        "550e8400-e29b-41d4-a716-446655440000",
        "the password is asked for on the terminal",
        "x86_64-unknown-linux-gnu-gcc-13.2.0-1ubuntu3",
    ],
)
def test_what_a_question_is_about_stays(text: str) -> None:
    assert redacted(text) == text


@each_row(
    ("text", "secret"),
    [
        ("https://user:p@ss@word@example.org/x", "word"),
        ("git clone https://ada:swordfish@host/a https://b:mackerel@host", "mackerel"),
        ("DB_PASSWORD=abc,tuna;salmon", "salmon"),
        ("export API_TOKEN=abc&tuna|x", "tuna"),
        ('SECRET=abc"two words"tail9', "tail9"),
        ("+ PASSWORD='one'two3", "two3"),
        ("password: correct horse battery", "battery"),
        ("passphrase = correct horse battery", "battery"),
        ("DB_PASS=swordfish", "swordfish"),
        ('        "auth": "YWRhOnN3b3JkZmlzaA=="', "YWRhOnN3b3JkZmlzaA"),
        ("  psk=swordfish", "swordfish"),
        ("curl -u admin:swordfish https://x", "swordfish"),
        ("+ curl --user 'admin:swordfish' x", "swordfish"),
        ("sshpass -p swordfish ssh x", "swordfish"),
        ("mysql -h db -u root -pswordfish app", "swordfish"),
        ("machine x\n  login me\n  password swordfish\n", "swordfish"),
        ("machine x password swordfish login me", "swordfish"),
        ("requirepass swordfish", "swordfish"),
        ("db.example.org:5432:app:ada:swordfish", "swordfish"),
        ("*:*:*:ada:swordfish", "swordfish"),
        ("root:$6$saltsalt$abcdefghijklmnop/qrstuv:19000:0", "qrstuv"),
        ("root:$y$j9T$saltsaltsalt$abcdefghijkl:19000", "abcdefghijkl"),
    ],
)
def test_no_part_of_a_secret_is_left(text: str, secret: str) -> None:
    shown = redacted(text)
    assert secret not in shown
    assert TAG in shown


def test_the_second_half_of_a_pair_of_keys_is_taken_out() -> None:
    second = base64.b64encode(hashlib.sha256(b"pair").digest() * 2)[:40].decode()
    text = redacted("Access key ID,Secret\nAKIA" + "Q4" * 8 + "," + second)
    assert text == f"Access key ID,Secret\n{TAG},{TAG}"


@each_row("front", ["     {}\t", "{}:", "{}-", "+", "> "])
def test_the_lines_of_a_key_are_found_behind_what_programs_put_before_them(front: str) -> None:
    lines = [front.format(n) + line for n, line in enumerate(KEY_LINES.splitlines())]
    shown = redacted("\n".join(lines))
    for line in KEY_LINES.splitlines():
        assert line[:20] not in shown
        assert line[-20:] not in shown


@each_row("before", ["", "a", "ab", "ada:"])
def test_a_known_value_is_found_as_others_write_it(before: str) -> None:
    value = 'sword/fish "23" & more'
    encoded = base64.b64encode(f"{before}{value} x".encode()).decode()
    middle = encoded[len(encoded) // 3 : 2 * len(encoded) // 3]
    shown = redacted(f"{encoded} {quote(value, safe='')} {json.dumps(value)}", [value])
    assert middle not in shown
    assert "sword" not in shown


@each_row(
    "text",
    [
        "PASS: tests/test_pass.py",
        "auth: the server refused it",
        "docker run -u 1000 image",
        "error: password required for ada to log in",
        "src/app/Main/Controllers/UserController/",
        "10:5432:x",
        "total $5 $6 and $1",
    ],
)
def test_ordinary_lines_stay_as_they_are(text: str) -> None:
    assert redacted(text) == text


def test_known_values_go_first_and_wherever_they_stand() -> None:
    assert redacted("it said hunter22!", ["hunter22", "hunter"]) == f"it said {TAG}!"
    assert redacted("a b", ["a", ""]) == "a b", "short values would match ordinary text"


def test_variables_are_secret_by_name_and_places_are_none() -> None:
    environ = {
        "DB_PASSWORD": "swordfish",
        "SSH_AUTH_SOCK": "/run/user/1/agent",
        "GITHUB_TOKEN": "abcdefgh",
        "HOME": "/home/ada-lovelace",
        "KEYBOARD": "qwertyuiop",
        "MY_KEY": "short",
    }
    assert known_secrets(environ) == ("swordfish", "abcdefgh")
    assert is_secret_variable("apiKey")
    assert not is_secret_variable("MONKEY")


@given(st.text(max_size=400))
def test_any_text_is_answered_and_twice_is_as_once(text: str) -> None:
    once = redacted(text)
    assert redacted(once) == once


@given(st.text(alphabet="abcXYZ012-_/+=. \n", min_size=6, max_size=40).filter(str.strip))
def test_a_known_value_never_stays(value: str) -> None:
    assert value not in redacted(f"one {value} two {value}", [value]) or value in TAG


@each_row("text", ["a." * 15_000, "." * 30_000, ("A" * 64 + "\n") * 450, "a_" * 15_000])
def test_no_output_takes_for_ever(text: str) -> None:
    # In another process, which can be ended: a regular expression listens to nothing.
    code = "import sys; from clawctl.shell.command_log import redacted; redacted(sys.stdin.read())"
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, input=text, text=True, timeout=100, check=False).returncode == 0
