"""The pages for users: all are in the index, links lead somewhere, ports are right."""

import re
from pathlib import Path

import gguf

from clawd.config.schema import SecuritySection
from clawd.config.sections import HttpSection
from clawd.receipts.record import CHECKPOINT_RECEIPTS
from clawd.security.approval_rules import MAX_RULE_DAYS
from clawd.security.command import assess
from clawd.security.policy import PolicySettings
from clawd.security.sandbox.auto_exec_scan import LONGEST
from clawd.security.sandbox.landlock import MIN_ABI
from clawd.security.sandbox.plan import ResourceLimits
from clawd.security.sandbox.process import FLOOD_BYTES
from clawd.security.taint import MAX_CHANGED, MAX_MARKS, MAX_WALKED
from clawd.tools.builtin.fs_ops import MAX_OPERATIONS
from tests.support.rows import each_row

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "SECURITY.md"])
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
_GATEWAY = re.compile(r"(?:127\.0\.0\.1|localhost):(\w+)")
# Servers of others in examples: llama.cpp, and a page of one's own.
_OTHERS = {"8080", "3000"}
# How many tests or attempts there are changes with each of them; benchmarks says how it measures.
_COUNT = re.compile(
    r"(?<![\w.,=])\d[\d,]* (?:[\w-]+ ){0,2}(?:attempts|cases|deletions|escapes|forms|processes|"
    r"spellings|stops|tests|ways)\b"
)
_LIMITS = ResourceLimits()
_SECURITY = SecuritySection.model_fields
# Figures that the pages tell, with what the code says.
_FIGURES = {
    "SECURITY.md": (f"(at most {CHECKPOINT_RECEIPTS - 1}, or an hour)",),
    "docs/tools.md": (f"{MAX_OPERATIONS} operations",),
    "docs/policy.md": (
        f"`approval_timeout_s` ({_SECURITY['approval_timeout_s'].default:g} s)",
        f"`approval_rule_days` ({_SECURITY['approval_rule_days'].default})",
        f"never later than {MAX_RULE_DAYS} days",
    ),
    "docs/sandbox.md": (
        f"(Landlock version {MIN_ABI})",
        f"followed to {LONGEST:,} bytes",
        f"| memory | {_LIMITS.memory_bytes >> 30} GiB | {_LIMITS.total_memory_bytes >> 30} GiB",
        f"| processes and threads | | {_LIMITS.processes} |",
        f"| descriptors | {_LIMITS.open_files:,} |",
        f"| processor time | {_LIMITS.cpu_s} s |",
        f"{_LIMITS.file_bytes >> 30} GiB a file | `max_command_disk_bytes` and "
        f"{_LIMITS.new_files:,} files",
        f"| {_LIMITS.tmp_bytes >> 20} MiB, {_LIMITS.shm_bytes >> 20} MiB |",
        f"| {FLOOD_BYTES >> 20} MiB, then it is ended |",
    ),
    "docs/untrusted-text.md": (
        f"room for {MAX_MARKS:,} marks",
        f"changed more than {MAX_CHANGED:,} files",
        f"more\n  than {MAX_WALKED:,} files and folders",
    ),
}


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as forges make them."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    words = (re.sub(r"[^\w\- ]", "", head.lower()) for head in heads)
    return {each.strip().replace(" ", "-") for each in words}


def test_every_page_stands_in_the_index_once() -> None:
    listed = re.findall(
        r"^- \[[^\]]+\]\(([\w-]+\.md)\): .+", (DOCS / "README.md").read_text(), re.M
    )
    assert sorted(listed) == sorted(
        page.name for page in DOCS.glob("*.md") if page.stem != "README"
    )


@each_row("page", PAGES, ids=lambda page: page.stem)
def test_every_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    for target, anchor in _LINK.findall(page.read_text(encoding="utf-8")):
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), target
        if anchor:
            assert anchor in anchors(found), f"{target}#{anchor}"


def test_the_docs_stay_as_few_as_one_can_know() -> None:
    assert len(list(DOCS.glob("*.md"))) <= 32
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900


def test_every_place_where_a_line_goes_exists() -> None:
    whole = (DOCS / "architecture.md").read_text(encoding="utf-8")
    page = whole.split("## Where a line of code goes")[1].split("## Processes")[0]
    places = re.findall(r"`((?:clawd|clawctl|etc)/[\w./-]+)(?::(\w+))?`", page)
    assert len(re.findall(r"^\d+\. \*\*", page, re.MULTILINE)) == 10
    missing = [
        (path, name)
        for path, name in places
        if not (ROOT / path).exists()
        or (
            name
            and not re.search(
                rf"^(?:(?:async )?def |class )?{name}\b",
                (ROOT / path).read_text(encoding="utf-8"),
                re.MULTILINE,
            )
        )
    ]
    assert missing == []


@each_row("page", PAGES, ids=lambda page: page.stem)
def test_the_gateway_has_its_own_port_on_every_page(page: Path) -> None:
    assert HttpSection().port == 8686
    ports = set(_GATEWAY.findall(page.read_text(encoding="utf-8")))
    assert ports <= {"8686", *_OTHERS}


@each_row("page", [page for page in PAGES if page.stem != "benchmarks"], ids=lambda page: page.stem)
def test_s11_no_page_tells_how_many_tests_or_attempts_there_are(page: Path) -> None:
    assert _COUNT.findall(page.read_text(encoding="utf-8")) == []


@each_row(("page", "said"), [(page, said) for page, all_ in _FIGURES.items() for said in all_])
def test_s11_the_figures_on_the_pages_are_those_of_the_code(page: str, said: str) -> None:
    assert said in (ROOT / page).read_text(encoding="utf-8")


def test_s11_the_embedded_model_is_as_large_as_the_pages_say() -> None:
    tensors = gguf.GGUFReader(ROOT / "clawd/engine/embedded/clawd-tiny.gguf").tensors
    millions = sum(int(tensor.n_elements) for tensor in tensors) / 1e6
    assert f"{millions:.1f} million parameters" in (ROOT / "docs/models.md").read_text("utf-8")


@each_row(
    ("command", "is_refused"),
    [
        ("rm -rf build", True),
        ("sudo rm -rf build", True),
        ("echo build | xargs rm -rf", True),
        ("mkfs.ext4 /dev/sda", True),
        ("dd if=/dev/zero of=disk.img", True),
        ("find . -delete", False),
        ("git clean -fdx", False),
        ("cp /dev/null notes.md", False),
        ("$(echo rm) -rf build", False),
    ],
)
def test_s11_the_policy_refuses_the_destruction_that_its_page_names_and_no_other(
    command: str, is_refused: bool, tmp_path: Path
) -> None:
    assert f"`{command}`" in (DOCS / "policy.md").read_text(encoding="utf-8")
    full = PolicySettings(autonomy="full")
    assessment = assess(command, full, workspace=tmp_path, home=tmp_path)
    assert (assessment.risk, bool(assessment.blocked)) == ("high", is_refused)


def test_p12_each_picture_shows_the_answer_to_its_own_question() -> None:
    wanted = {"conversation": "one module", "diff": "now: it subtracted", "plan": "Three steps."}
    shown = {
        name: (DOCS / "images" / f"{name}.svg").read_text().replace("\u00a0", " ")
        for name in wanted
    }
    wrong = {
        (picture, words)
        for picture, text in shown.items()
        for owner, words in wanted.items()
        if (words in text) != (owner == picture)
    }
    assert wrong == set()
