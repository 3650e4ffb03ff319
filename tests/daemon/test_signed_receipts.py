"""A daemon's receipts are signed when it ends, and the first public key proves them."""

import json

from clawd.receipts.record import public_key_of
from tests.support.home import Home


def test_the_key_that_init_shows_proves_what_the_daemon_signed(home: Home) -> None:
    done = home.ctl("init")
    assert done.returncode == 0, done.stderr
    (told,) = [line for line in done.stdout.splitlines() if "first public key" in line]
    key = told.split()[-1]
    first_private = (home.path / "checkpoint.key").read_bytes()
    assert public_key_of(first_private) == key
    home.configure()

    assert home.ctl("tool", "run", "time", "--json", "{}").returncode == 0
    head = home.json("receipt", "head")
    assert (head["seq"], head["signed"], head["first_public_key"]) == (1, 0, key)
    home.close()

    done = home.ctl("receipt", "verify", "--public-key", key)
    assert done.returncode == 0, done.stderr
    assert "level anchored" in done.stdout  # memory remembers the head
    assert "1 of 1 signed, checked from the public key given" in done.stdout
    for file in home.path.rglob("*"):
        assert not file.is_file() or first_private not in file.read_bytes(), file

    assert home.ctl("tool", "run", "time", "--json", "{}").returncode == 0
    head = home.json("receipt", "head")
    assert (head["seq"], head["signed"], head["first_public_key"]) == (2, 1, key)
    known = f"{head['seq']}:{head['receipt_hash']}"
    done = home.ctl("receipt", "verify", "--public-key", key, "--anchor", known, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["level"] == "anchored"
    again = home.ctl("init")
    assert f"first public key of the receipts, to keep elsewhere: {key}" in again.stdout
    assert home.ctl("receipt", "verify", "--public-key", "0" * 64).returncode == 1
