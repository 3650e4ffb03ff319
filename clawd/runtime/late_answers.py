"""Approvals that nobody answered in time: kept with their calls, and answered late.

A turn ends at such a call. A late answer lets it go on: the call is made again as it was shown, is
judged anew, and runs once or is denied; the model is told. Whatever is not as it was is a no: the
policy, the paths, untrusted text, the emergency stop, and the record of the call, which its receipt
in the chain vouches for.
"""

import hmac
from collections.abc import Awaitable, Callable

import msgspec

from clawd.errors import BusyError, ForbiddenError, InvalidRequestError, NotFoundError, StoppedError
from clawd.memory.approvals import LapsedCall
from clawd.memory.store import Memory
from clawd.receipts.record import Receipt, sha256_hex
from clawd.runtime.inbox import Inbox, Ticket
from clawd.runtime.incoming import IncomingMessage
from clawd.runtime.turn_plan import LateCall
from clawd.security.approval_rules import MAX_RULE_DAYS
from clawd.security.approvals import LateAnswer
from clawd.security.estop import ESTOP_REASON, Stop
from clawd.security.principal import Principal
from clawd.security.redact import Redactor
from clawd.security.risk import Risk
from clawd.wire.policy import AnswerApproval


class LateAnswers:
    """Keeps calls that nobody answered for, and takes late answers. One of a daemon.

    Args:
        memory: keeps them.
        inbox: runs the turns that go on.
        estop: while it is set nothing is answered.
        redactor: what receipts hash is without secrets.
        receipt_of: returns a receipt of the chain by its id.
        is_key_in_force: returns whether a key of the HTTP gateway may still be used.
    """

    def __init__(
        self,
        memory: Memory,
        inbox: Inbox,
        *,
        estop: Stop,
        redactor: Redactor,
        receipt_of: Callable[[str], Awaitable[Receipt | None]],
        is_key_in_force: Callable[[str], bool],
    ) -> None:
        self._kept = memory.lapsed
        self._inbox = inbox
        self._estop = estop
        self._redactor = redactor
        self._receipt_of = receipt_of
        self._is_key_in_force = is_key_in_force
        self._answering: set[str] = set()

    async def listed(self, principal: Principal) -> list[LapsedCall]:
        """Return what the principal may answer late, oldest first.

        Raises:
            StorageError: memory failed.
        """
        found = await self._kept.answerable()
        return [
            each
            for each in found
            if each.id not in self._answering
            and principal.may_see(each.principal.uid, each.principal.key_id)
        ]

    async def knows(self, approval_id: str, principal: Principal) -> bool:
        """Return whether there is such a call that the principal may see."""
        found = await self._kept.find(approval_id)
        if found is None:
            return False
        asker = found[0].principal
        return principal.may_see(asker.uid, asker.key_id)

    async def answer(self, given: AnswerApproval, principal: Principal) -> str:
        """Let the turn go on that ended at a call; return its conversation.

        The first answer counts. It returns when the turn has begun; what became of the call is
        told by its events and its receipt.

        Raises:
            NotFoundError: there is no such call, or it was answered.
            InvalidRequestError: the conversation has gone on, the digest is for other bytes, or the
                call is not the one that was asked about.
            BusyError: it is being answered, or something runs in its conversation.
            StoppedError: the emergency stop is set.
            ClawError: the conversation is not to be had.
        """
        approval_id = given.approval_id
        if approval_id in self._answering:
            raise BusyError(f"approval {approval_id} is being answered", retry_after_s=5.0)
        self._answering.add(approval_id)
        try:
            ticket = await self._go_on(given, principal)
        except BaseException:
            self._answering.discard(approval_id)
            raise
        ticket.on_end(lambda: self._answering.discard(approval_id))
        return ticket.conversation_id

    async def _go_on(self, given: AnswerApproval, principal: Principal) -> Ticket:
        approval_id, digest, word = given.approval_id, given.digest, given.answer
        call, _ = await self._current(approval_id, principal, digest)
        if not 0 <= given.days <= MAX_RULE_DAYS:
            raise InvalidRequestError(f"a rule holds 1 to {MAX_RULE_DAYS} days")
        asker = _asker(call, principal)
        live = await self._inbox.book.load(call.conversation_id, asker)
        if live.waiting or live.lock.locked():
            raise _busy(call)
        async with live.lock:  # no message is stored there meanwhile
            call, is_newest = await self._current(approval_id, principal, digest)
            if not is_newest:
                raise InvalidRequestError(
                    f"the conversation of {approval_id} has gone on since it was asked: nobody can "
                    "answer it any more",
                    hint="Ask the model again; it makes a new call.",
                )
            if self._estop.is_set():
                raise StoppedError(ESTOP_REASON, hint="an admin clears it: clawctl estop --clear")
            if word != "deny":
                await self._check(call)
            answer = LateAnswer(
                approval_id=call.id,
                receipt_id=call.receipt_id,
                answer="deny" if word == "edit" else word,
                by=f"uid {principal.uid}",
                digest=call.shown.digest,
                risk=msgspec.convert(call.shown.risk, Risk),
                tainted_by=call.tainted_by,
                unlisted=call.shown.unlisted,
                days=given.days,
                edited=given.arguments if word == "edit" else "",
            )

            async def drop() -> None:
                await self._kept.drop(call.id)

            late = LateCall(
                call=call.call,
                tool=call.shown.tool,
                arguments=call.shown.arguments,
                answer=answer,
                drop=drop,
            )
            sent = msgspec.convert(call.sent, IncomingMessage)
            if live.waiting:
                raise _busy(call)
            # Nothing is awaited from here on: it is the next to get the lock.
            return self._inbox.enter(live, sent, asker, late=late)

    async def _current(
        self, approval_id: str, principal: Principal, digest: str
    ) -> tuple[LapsedCall, bool]:
        """Return a call that the principal has seen, and whether its conversation stands as then.

        Raises:
            NotFoundError, ForbiddenError, InvalidRequestError: as `Approvals.answer` does.
        """
        hint = "clawctl approval list shows what waits"
        found = await self._kept.find(approval_id)
        if found is None:
            raise NotFoundError(f"approval {approval_id} is not open any more", hint=hint)
        asker = found[0].principal
        if not principal.may_see(asker.uid, asker.key_id):
            raise ForbiddenError(f"approval {approval_id} is somebody else's", hint=hint)
        if not hmac.compare_digest(digest.encode(), found[0].shown.digest.encode()):
            raise InvalidRequestError(
                f"the answer to {approval_id} is for other bytes than the ones that wait",
                hint="look at it again (clawctl approval list) and answer what it shows now",
            )
        return found

    async def _check(self, call: LapsedCall) -> None:
        """Check that a call is the one that was asked about, by its receipt, and as trusted.

        Raises:
            ForbiddenError: it came with a key that was revoked.
            InvalidRequestError: it is another one.
        """
        key = call.principal.key_id
        if key and not self._is_key_in_force(key):
            raise ForbiddenError(f"{call.id} was asked for with a key that is not in force")
        if news := {*self._inbox.book.sources(call.conversation_id)} - {*call.sources}:
            raise InvalidRequestError(
                f"untrusted text has come in since it was asked, of {', '.join(sorted(news))}",
                hint=f"clawctl approval deny {call.id}, and ask the model again",
            )
        receipt = await self._receipt_of(call.receipt_id)
        shown = call.shown
        text, arguments = self._redactor.text, self._redactor.json(shown.arguments.encode())
        expected = (
            call.conversation_id,
            text(shown.tool),
            sha256_hex(arguments),
            call.principal.uid,
            text(shown.workspace),
            shown.risk,
            key,
            "denied",
        )
        if receipt is None or call.id not in receipt.reason or _facts(receipt) != expected:
            raise InvalidRequestError(
                f"the record of {call.id} does not agree with its receipt {call.receipt_id}: it "
                "cannot be answered",
                hint="clawctl receipt verify checks the chain",
            )


def _asker(call: LapsedCall, answering: Principal) -> Principal:
    """Return for whom the call is made: who asked, with no more rights than are known of today."""
    asked = call.principal
    if (answering.uid, answering.key_id) == (asked.uid, asked.key_id):
        return answering
    return msgspec.structs.replace(asked, pid=0, role="user")


def _busy(call: LapsedCall) -> BusyError:
    return BusyError(f"something runs in conversation {call.conversation_id}", retry_after_s=5.0)


def _facts(receipt: Receipt) -> tuple[object, ...]:
    return (
        receipt.conversation_id,
        receipt.tool,
        receipt.args_hash,
        receipt.uid,
        receipt.workspace,
        receipt.risk,
        receipt.key,
        receipt.status,
    )
