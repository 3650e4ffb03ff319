"""Standing approvals on disk."""

import asyncio
import os
import stat
import threading
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from clawd.errors import ReceiptError, StorageError
from clawd.security.approval_rules import ApprovalRule, JsonRuleStore, RuleBook, rule_for
from clawd.security.risk import Risk
from tests.security import fakes
from tests.support.rows import each_row

_COMINGS = ("granted", "found")


def new_rule(risk: Risk = "medium", **arguments: object) -> ApprovalRule:
    action = fakes.action(arguments=arguments or None, risk=risk)
    return rule_for(action, now=fakes.Clock().now, conversation=False)


async def test_rules_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "approval_rules.json"
    book = RuleBook(JsonRuleStore(path), record=fakes.RuleReceipts(), clock=fakes.Clock())
    await book.load()
    rules = [new_rule(), new_rule(path="b.md", content="")]
    for rule in rules:
        await book.add(rule)
    rules = [
        msgspec.structs.replace(rule, receipt_id=f"receipt-{number}")
        for number, rule in enumerate(rules, 1)
    ]
    again = RuleBook(JsonRuleStore(path), record=fakes.RuleReceipts(), clock=fakes.Clock())
    await again.load()
    assert again.rules(fakes.ADA) == book.rules(fakes.ADA) == rules
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["approval_rules.json"]


async def test_an_expired_rule_is_not_loaded(tmp_path: Path) -> None:
    store, clock = JsonRuleStore(tmp_path / "rules.json"), fakes.Clock()
    store.save((new_rule(),))
    clock.advance(days=31)
    book = RuleBook(store, record=fakes.RuleReceipts(), clock=clock)
    await book.load()
    assert book.rules(fakes.ADA) == []


@each_row(
    ("good", "bad"), [(r"{\"path\":\"a.md\"}", r"{\"path"), ("08:00:00Z", "08:00:00"), ('"{', '"[')]
)
def test_a_rule_that_could_not_be_judged_later_is_refused_at_once(
    tmp_path: Path, good: str, bad: str
) -> None:
    store = JsonRuleStore(tmp_path / "rules.json")
    store.save((new_rule(),))
    text = (tmp_path / "rules.json").read_text()
    assert good in text
    (tmp_path / "rules.json").write_text(text.replace(good, bad))
    with pytest.raises(StorageError, match="holds no approval rules"):
        store.load()


@each_row("content", ["", "{}", "[1]", '[{"id": "x"}]', "\x00"])
async def test_a_broken_file_puts_nothing_in_force(tmp_path: Path, content: str) -> None:
    path = tmp_path / "rules.json"
    path.write_text(content, encoding="utf-8")
    path.chmod(0o600)
    book = RuleBook(JsonRuleStore(path), record=fakes.RuleReceipts(), clock=fakes.Clock())
    with pytest.raises(StorageError):
        await book.load()
    assert book.find(fakes.action()) is None


async def test_a_fifo_in_the_place_of_the_file_is_no_set_of_rules(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    os.mkfifo(path, 0o600)
    with pytest.raises(StorageError, match="holds no approval rules"):
        await RuleBook(JsonRuleStore(path), record=fakes.RuleReceipts()).load()


async def test_a_file_that_others_could_write_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    JsonRuleStore(path).save((new_rule(),))
    path.chmod(0o660)
    with pytest.raises(StorageError, match="mode 0600"):
        await RuleBook(JsonRuleStore(path), record=fakes.RuleReceipts()).load()


def test_a_disk_that_refuses_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "rules.json"
    with pytest.raises(StorageError, match="cannot be written"):
        JsonRuleStore(path).save((new_rule(),))


def test_a_rule_for_high_risk_leaves_nothing_open() -> None:
    assert new_rule("high").pattern == 'file_write content="x" path="a.md" in /home/ada/w'


def test_a_pattern_shows_what_cannot_be_seen() -> None:
    shown = new_rule(path="a\u202e.md", content="").pattern
    assert "‹U+202E›" in shown
    assert "\u202e" not in shown


async def test_two_answers_at_once_keep_both_rules(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    book = RuleBook(JsonRuleStore(path), record=fakes.RuleReceipts(), clock=fakes.Clock())
    rules = [new_rule(path=f"{n}.md") for n in range(10)]
    await asyncio.gather(*(book.add(rule) for rule in rules))
    assert {r.id for r in JsonRuleStore(path).load()} == {r.id for r in rules}


async def test_while_the_file_is_broken_no_rule_is_added_and_none_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    path.write_text("[broken", encoding="utf-8")
    path.chmod(0o600)
    book = RuleBook(JsonRuleStore(path), record=fakes.RuleReceipts(), clock=fakes.Clock())
    with pytest.raises(StorageError):
        await book.load()
    assert "holds no approval rules" in book.problem
    with pytest.raises(StorageError, match="holds no approval rules"):
        await book.add(new_rule())
    assert book.rules(fakes.ADA) == []
    assert path.read_text(encoding="utf-8") == "[broken"
    path.unlink()
    await book.load()
    assert book.problem == ""
    await book.add(new_rule())
    assert len(book.rules(fakes.ADA)) == 1


async def test_a_file_cannot_make_a_rule_live_longer_than_a_year(tmp_path: Path) -> None:
    store, clock = JsonRuleStore(tmp_path / "rules.json"), fakes.Clock()
    forever = clock.now + timedelta(days=100_000)
    store.save(
        (
            msgspec.structs.replace(new_rule(), expires_at=forever),
            msgspec.structs.replace(new_rule(), created_at=forever, expires_at=forever),
        )
    )
    book = RuleBook(store, record=fakes.RuleReceipts(), clock=clock)
    await book.load()
    assert [rule.expires_at - clock.now for rule in book.rules(fakes.ADA)] == [
        timedelta(days=365)
    ] * 2


class SlowStore(fakes.MemoryRuleStore):
    """Saves when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.let_go = threading.Event(), threading.Event()

    def save(self, rules: tuple[ApprovalRule, ...]) -> None:
        self.begun.set()
        assert self.let_go.wait(60)
        super().save(rules)


async def test_a_revoked_rule_allows_nothing_while_the_disk_is_slow() -> None:
    store = SlowStore()
    book = RuleBook(store, record=fakes.RuleReceipts(), clock=fakes.Clock())
    store.let_go.set()
    rule = new_rule()
    await book.add(rule)
    store.let_go.clear()
    store.begun.clear()
    adding = asyncio.create_task(book.add(new_rule(path="other.md")))
    assert await asyncio.to_thread(store.begun.wait, 60)
    revoking = asyncio.create_task(book.revoke(rule.id, fakes.ADA))
    await asyncio.sleep(0)
    assert book.find(fakes.action()) is None
    store.let_go.set()
    await asyncio.gather(adding, revoking)
    assert [kept.id for kept in store.rules] == [each.id for each in book.rules(fakes.ADA)]
    assert rule not in store.rules


class Office:
    """A book of rules, its store, and the receipts that it leaves."""

    def __init__(self) -> None:
        self.store, self.receipts = fakes.MemoryRuleStore(), fakes.RuleReceipts()
        self.book = RuleBook(self.store, record=self.receipts, clock=fakes.Clock())


async def _granted_for_a_conversation(office: Office) -> str:
    rule = rule_for(fakes.action(), now=fakes.Clock().now, conversation=True)
    await office.book.add(msgspec.structs.replace(rule, granted_by="uid 1000"))
    return rule.id


async def _revoked_for_a_conversation(office: Office) -> str:
    revoked = await _granted_for_a_conversation(office)
    await office.book.revoke(revoked, fakes.ADA)
    return revoked


async def _revoked_on_a_full_disk(office: Office) -> str:
    rule = new_rule()
    await office.book.add(rule)
    office.store.failing = True
    with pytest.raises(StorageError):
        await office.book.revoke(rule.id, fakes.ADA)
    return rule.id


async def _written_into_the_file_by_hand(office: Office) -> str:
    rule = new_rule()
    office.store.save((rule,))
    await office.book.load()
    await office.book.load()
    return rule.id


async def _widened_in_the_file_before_a_reload(office: Office) -> str:
    await office.book.load()
    rule = new_rule()
    await office.book.add(rule)
    kept = msgspec.structs.replace(office.store.rules[0], fixed="{}", free=("content", "path"))
    office.store.save((kept,))
    await office.book.load()
    return rule.id


async def _taken_from_the_file_before_a_reload(office: Office) -> str:
    await office.book.load()
    rule = new_rule()
    await office.book.add(rule)
    office.store.save(())
    await office.book.load()
    return rule.id


async def test_s12_whatever_way_a_rule_comes_or_goes_leaves_a_receipt() -> None:
    ada, nobody = "uid 1000", ""
    table = {
        _granted_for_a_conversation: [("granted", ada)],
        _revoked_for_a_conversation: [("granted", ada), ("revoked", ada)],
        _revoked_on_a_full_disk: [("granted", nobody), ("still_kept", ada)],
        _written_into_the_file_by_hand: [("found", nobody)],
        _widened_in_the_file_before_a_reload: [("granted", nobody), ("found", nobody)],
        _taken_from_the_file_before_a_reload: [("granted", nobody), ("gone", nobody)],
    }
    wrong = []
    for way, expected in table.items():
        office = Office()
        about = await way(office)
        written = office.receipts.written
        named = [rule.receipt_id for rule in office.book.rules(fakes.ADA)]
        latest = max((n for n, (act, *_) in enumerate(written, 1) if act in _COMINGS), default=0)
        if (
            [(act, by) for act, _, by in written] != expected
            or {rule_id for _, rule_id, _ in written} != {about}
            or named not in ([], [f"receipt-{latest}"])
            or [rule.receipt_id for rule in office.store.rules] not in ([], [f"receipt-{latest}"])
        ):
            wrong.append((way.__name__, written, named))
    assert wrong == []


async def test_s12_no_rule_is_in_force_where_its_receipt_cannot_be_written() -> None:
    office = Office()
    for way in (_granted_for_a_conversation, _written_into_the_file_by_hand):
        office = Office()
        office.receipts.failing = True
        with pytest.raises(ReceiptError):
            await way(office)
        assert office.book.find(fakes.action()) is None, way.__name__
        assert office.book.rules(fakes.ADA) == [], way.__name__
    assert office.book.problem == "no disk"
    assert len(office.store.rules) == 1, "it stays in the file"
    office.receipts.failing = False
    await office.book.load()
    assert office.book.find(fakes.action()) is not None
