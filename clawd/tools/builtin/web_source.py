"""What web_fetch and pdf_extract share: how risky an address is, and getting what is there."""

from clawd.errors import ClawError
from clawd.security.network import NetworkRules, judge_url
from clawd.security.risk import Assessment, Risk
from clawd.tools.builtin.deps import BuiltinDeps
from clawd.tools.builtin.transfer import Carrier, Request, Response, Trouble

_ACCEPT = "text/html,application/xhtml+xml,application/pdf,text/plain,application/json,*/*;q=0.5"


def assess_address(url: str, rules: NetworkRules, verb: str) -> Assessment:
    """Say how risky it is to get what is at an address, by its text alone."""
    try:
        target = judge_url(url, rules)
    except ClawError as error:
        return Assessment(risk="high", blocked=error.message, allow_hint=error.hint)
    trusted = rules.trusts(target.host)
    hint = "" if trusted else f'allowed_domains = ["{target.host}"] in [security]'
    reason = f"{verb} from {target.host}"
    risk: Risk = "low" if trusted else "medium"
    # A host's name and a path are data too, wherever they lead.
    return Assessment(risk=risk, reason=reason, allow_hint=hint, outward=True)


async def get(url: str, deps: BuiltinDeps, *, max_bytes: int) -> Response | Trouble:
    """Get what is at an address; a status that is no success is a trouble.

    Raises:
        ClawError: the address is refused.
    """
    headers = {"User-Agent": deps.web.user_agent, "Accept": _ACCEPT}
    request = Request(target=judge_url(url, deps.network), headers=headers)
    carrier = Carrier(deps.network, deps.resolve, timeout_s=deps.http_timeout_s)
    answer = await carrier.fetch(request, max_bytes=max_bytes)
    if isinstance(answer, Trouble) or 200 <= answer.status < 300:
        return answer
    said = f"HTTP {answer.status} {answer.reason}".rstrip()
    return Trouble(message=f"{answer.target.url} answered {said}", heard=answer.target.host)


def size_of(response: Response) -> str:
    """Return how large a body is, in words, as far as it is known."""
    if not response.is_cut:
        return f"{len(response.body)} bytes"
    told = response.headers.get("content-length", "")
    is_known = told.isascii() and told.isdigit() and len(told) < 20
    if is_known and not response.headers.get("content-encoding"):
        return f"{int(told)} bytes"
    return f"over {len(response.body)} bytes"
