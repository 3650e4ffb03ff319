"""What an answer claims is compared with what its turn did; a wrong reproach is the worse fault."""

import time
from pathlib import Path
from typing import Any

from clawd.runtime.claims import CLAIMING, Act, Deeds, checked, find_claims
from tests.support.rows import Rows

ACT = "write hi to notes.txt"
LONGEST_S = 3.0  # tens of milliseconds here
WORKSPACE = Path("/home/ada/project")

# A sentence and what it plainly claims: kind and object.
CLAIMS: list[tuple[str, list[tuple[str, str]]]] = [
    # --- English, in the first person
    ("I wrote notes.txt.", [("written", "notes.txt")]),
    ("I wrote 'hi' to notes.txt.", [("written", "notes.txt")]),
    ("I've written the summary to `out/summary.md`.", [("written", "out/summary.md")]),
    ("I have written 3 lines to notes.txt.", [("written", "notes.txt")]),
    ("I created the file notes.txt.", [("written", "notes.txt")]),
    ("I created a file called notes.txt with the text hi.", [("written", "notes.txt")]),
    ("Done! I've created `notes.txt` for you.", [("written", "notes.txt")]),
    ("I have successfully created the file 'notes.txt'.", [("written", "notes.txt")]),
    ("I just saved your notes to notes.txt.", [("written", "notes.txt")]),
    ("I saved it as report.pdf.", [("written", "report.pdf")]),
    ("I've updated src/app.py to use classes.", [("written", "src/app.py")]),
    ("I refactored src/app.py.", [("written", "src/app.py")]),
    ("I refactored `src/app.py` so that it uses classes.", [("written", "src/app.py")]),
    ("I modified the config in settings.toml.", [("written", "settings.toml")]),
    ("I also edited Makefile.", [("written", "Makefile")]),
    ("I appended a line to log.txt.", [("written", "log.txt")]),
    ("I added a function to app.py.", [("written", "app.py")]),
    ("I added notes.txt to .gitignore.", [("written", ".gitignore")]),
    ("I fixed the bug in app.py.", [("written", "app.py")]),
    ("I renamed old.txt to new.txt.", [("written", "new.txt")]),
    ("I replaced foo.js in index.html.", [("written", "index.html")]),
    ("I went ahead and created todo.md.", [("written", "todo.md")]),
    ("I read data.csv and wrote the result to out.csv.", [("written", "out.csv")]),
    ("I wrote the summary of data.csv to out.md.", [("written", "out.md")]),
    ("I wrote a.txt and b.txt.", [("written", "a.txt"), ("written", "b.txt")]),
    ("I updated app.py and deleted old.py.", [("written", "app.py"), ("deleted", "old.py")]),
    ("I created notes.txt, you can open it now.", [("written", "notes.txt")]),
    ("No problem, I created notes.txt.", [("written", "notes.txt")]),
    ("We've moved report.pdf to archive/.", [("written", "archive/")]),
    ("I deleted old.log.", [("deleted", "old.log")]),
    ("I have removed the file `tmp/cache.db`.", [("deleted", "tmp/cache.db")]),
    ("I removed two lines from notes.txt.", [("written", "notes.txt")]),
    ("I’ve deleted notes.txt.", [("deleted", "notes.txt")]),
    ("I ran `make test`.", [("run", "make test")]),
    ("I executed the command `ls -la` and it worked.", [("run", "ls -la")]),
    ("I've run `pytest -q`; all tests pass.", [("run", "pytest -q")]),
    ("I sent the email to bob@example.org.", [("sent", "bob@example.org")]),
    ("I've committed the changes.", [("committed", "changes")]),
    ("I committed and pushed the changes.", [("committed", "changes")]),
    ("As I wrote before, I created notes.txt.", [("written", "notes.txt")]),
    ("I've already saved it to notes.txt.", [("written", "notes.txt")]),
    # --- English, passive
    ("notes.txt has been updated.", [("written", "notes.txt")]),
    ("The file notes.txt has been created.", [("written", "notes.txt")]),
    ("The file `notes.txt` was successfully created.", [("written", "notes.txt")]),
    ("The result has been written to answer.txt.", [("written", "answer.txt")]),
    ("A new line was added to notes.txt.", [("written", "notes.txt")]),
    ("The files a.txt and b.txt have been deleted.", [("deleted", "a.txt"), ("deleted", "b.txt")]),
    ("Your changes were saved to notes.txt.", [("written", "notes.txt")]),
    ("src/app.py has now been refactored.", [("written", "src/app.py")]),
    ("The bug has been fixed in app.py.", [("written", "app.py")]),
    ("I have created three files: a.py, b.py and c.py.",
     [("written", "a.py"), ("written", "b.py"), ("written", "c.py")]),
    ("Alles erledigt: notes.txt wurde gelöscht.", [("deleted", "notes.txt")]),
    ("I did not find app.py, so I created main.py.", [("written", "main.py")]),
    # --- English, headlines
    ("Saved to out.csv.", [("written", "out.csv")]),
    ("Created notes.txt.", [("written", "notes.txt")]),
    ("Wrote 12 bytes to notes.txt.", [("written", "notes.txt")]),
    ("Done. Deleted old.log.", [("deleted", "old.log")]),
    ("File notes.txt created successfully.", [("written", "notes.txt")]),
    ("✅ Updated `README.md`", [("written", "README.md")]),
    ("Here is what I did:\n- Created a.txt\n- Deleted b.txt",
     [("written", "a.txt"), ("deleted", "b.txt")]),
    # --- German
    ("Ich habe notes.txt geschrieben.", [("written", "notes.txt")]),
    ("Ich habe die Datei notes.txt erstellt.", [("written", "notes.txt")]),
    ("Ich habe den Text in notes.txt gespeichert.", [("written", "notes.txt")]),
    ("Fertig! Ich habe die Zusammenfassung von data.csv in out.md geschrieben.",
     [("written", "out.md")]),
    ("Die Datei notes.txt habe ich gelöscht.", [("deleted", "notes.txt")]),
    ("Jetzt habe ich src/app.py angepasst.", [("written", "src/app.py")]),
    ("Ich habe a.txt erstellt und b.txt gelöscht.", [("written", "a.txt"), ("deleted", "b.txt")]),
    ("Ich habe eine Zeile zu notes.txt hinzugefügt.", [("written", "notes.txt")]),
    ("Ich habe `make test` ausgeführt.", [("run", "make test")]),
    ("Ich habe die E-Mail an bob@example.org geschickt.", [("sent", "bob@example.org")]),
    ("Ich habe die Änderungen committet.", [("committed", "änderungen")]),
    ("Ich schrieb notes.txt.", [("written", "notes.txt")]),
    ("Die Datei notes.txt wurde erstellt.", [("written", "notes.txt")]),
    ("notes.txt wurde erfolgreich aktualisiert.", [("written", "notes.txt")]),
    ("Das Ergebnis wurde in answer.txt gespeichert.", [("written", "answer.txt")]),
    ("In app.py wurde eine Funktion hinzugefügt.", [("written", "app.py")]),
    ("Die alte Datei old.log wurde gelöscht.", [("deleted", "old.log")]),
    ("Gespeichert in out.csv.", [("written", "out.csv")]),
    ("notes.txt gelöscht.", [("deleted", "notes.txt")]),
    # --- no claim: plans, offers, conditions, denials, questions
    ("I will write notes.txt.", []),
    ("I'll create notes.txt now.", []),
    ("I'm going to update app.py.", []),
    ("Let me write notes.txt.", []),
    ("I can create notes.txt for you.", []),
    ("I would have written notes.txt.", []),
    ("I could have saved it to notes.txt.", []),
    ("If I created notes.txt, it would be empty.", []),
    ("Once I've created notes.txt, open it.", []),
    ("When I have written notes.txt I will tell you.", []),
    ("I have not written notes.txt.", []),
    ("I haven't created notes.txt yet.", []),
    ("I never deleted old.log.", []),
    ("I couldn't save to notes.txt.", []),
    ("I failed to write notes.txt.", []),
    ("I tried to write notes.txt, and it was denied.", []),
    ("I was unable to delete old.log.", []),
    ("Nothing was written to notes.txt.", []),
    ("No file notes.txt was created.", []),
    ("Shall I say that I wrote notes.txt?", []),
    ("Have I created notes.txt?", []),
    ("Should notes.txt have been updated?", []),
    ("Ich werde notes.txt schreiben.", []),
    ("Ich kann notes.txt erstellen.", []),
    ("Ich habe notes.txt nicht geschrieben.", []),
    ("Ich habe keine Datei notes.txt erstellt.", []),
    ("Ich konnte notes.txt nicht löschen.", []),
    ("Habe ich notes.txt gelöscht?", []),
    ("Wenn ich notes.txt erstellt habe, sage ich es.", []),
    ("Die Datei notes.txt wird erstellt.", []),
    ("notes.txt wurde nicht erstellt.", []),
    ("Soll ich notes.txt anlegen?", []),
    # --- no claim: of somebody else, of long ago, instructions, descriptions
    ("You created notes.txt.", []),
    ("You've saved it to notes.txt.", []),
    ("Make sure you have saved notes.txt.", []),
    ("Write the text to notes.txt and run `make`.", []),
    ("Save it as notes.txt.", []),
    ("Bob wrote notes.txt.", []),
    ("He deleted old.log.", []),
    ("The file notes.txt was created by Bob.", []),
    ("app.py was last modified on Monday.", []),
    ("README.md was updated in 2021.", []),
    ("notes.txt was written 3 days ago.", []),
    ("The log says that app.py was deleted.", []),
    ("According to git, old.py was removed.", []),
    ("I see that you created notes.txt.", []),
    ("I noticed that app.py was last changed yesterday.", []),
    ("I found that someone deleted old.log.", []),
    ("The configuration is saved in config.toml.", []),
    ("The script saves its output to out.csv.", []),
    ("I read notes.txt.", []),
    ("I looked at app.py and found a bug.", []),
    ("I wrote the server in Node.js.", []),
    ("I have updated the tests for app.py.", []),
    ("I wrote a poem.", []),
    ("I created a link to README.md.", []),
    ("I changed the code to read config.json.", []),
    ("The function was written in utils.py to handle dates.", []),
    ("README.md was written in Markdown.", []),
    ("Saved in notes.txt is the password.", []),
    ("Created by Bob in notes.txt.", []),
    ("You asked whether I wrote notes.txt.", []),
    ("It looks like notes.txt was deleted by git.", []),
    ("In setup.py the version was changed by the release script.", []),
    ("I checked that the file notes.txt exists.", []),
    ("The last commits are:\n- Added README.md\n- Deleted old.py", []),
    ("Du hast notes.txt erstellt.", []),
    ("Die Datei app.py wurde von Bob geändert.", []),
    ("README.md wurde zuletzt gestern geändert.", []),
    ("Ich habe gesehen, dass du notes.txt erstellt hast.", []),
    ("Ich habe notes.txt gelesen.", []),
    ("Die Einstellungen werden in config.toml gespeichert.", []),
    ("Speichere es als notes.txt.", []),
    # --- no claim: code, quotations, letters
    ("```\nI wrote notes.txt\n```", []),
    ("~~~text\nI deleted old.log.\n~~~", []),
    ("> I wrote notes.txt", []),
    ('The message is "I wrote notes.txt to the disk".', []),
    ("It prints `I wrote notes.txt` and ends.", []),
    ("Er sagte: „Ich habe notes.txt gelöscht“.", []),
    ("    I created notes.txt", []),
    ("Subject: Report\n\nDear Bob,\n\nI updated report.docx.\n\nBest, Ada", []),
    ("Sehr geehrte Frau Kern,\n\nich habe report.docx aktualisiert.", []),
    ("For example, I created notes.txt.", []),
]  # fmt: skip


def act(tool: str = "file_write", **facts: Any) -> Act:
    effects = {"file_write": "replaces", "file_read": "looks", "fs_ops": "changes", "shell": "acts"}
    facts = {"status": "allowed", "receipt_id": "receipt-1", "effect": effects[tool]} | facts
    return Act(tool=tool, is_opaque=tool == "shell", **facts)


WROTE = act(paths=("notes.txt",), words=("notes.txt",))
DENIED = act(status="denied", words=("notes.txt",))
FAILED = act(status="failed", words=("notes.txt",))
READ = act("file_read", words=("notes.txt",))
GONE = act("fs_ops", paths=("notes.txt",), removed=("notes.txt",), words=("delete", "notes.txt"))
SHELL = act("shell", words=("echo hi > notes.txt",))
BUILT = act("shell", words=("make all",))

# What was asked, what was said, the calls, those before, and the verdicts.
VERDICTS: list[tuple[str, str, list[Act], list[Act], list[str]]] = [
    (ACT, "I wrote notes.txt.", [WROTE], [], ["supported"]),
    (ACT, "I wrote notes.txt.", [], [], ["contradicted"]),
    (ACT, "I wrote notes.txt.", [DENIED], [], ["failed"]),
    (ACT, "I wrote notes.txt.", [FAILED], [], ["failed"]),
    (ACT, "I wrote notes.txt.", [DENIED, WROTE], [], ["supported"]),
    (ACT, "I wrote notes.txt.", [READ], [], ["contradicted"]),
    (ACT, "I wrote notes.txt.", [GONE], [], ["contradicted"]),
    (ACT, "I wrote other.txt.", [WROTE], [], ["contradicted"]),
    (ACT, "I deleted notes.txt.", [WROTE], [], ["contradicted"]),
    (ACT, "I deleted notes.txt.", [GONE], [], ["supported"]),
    (ACT, "notes.txt has been updated.", [], [], ["contradicted"]),
    (ACT, "Saved to notes.txt.", [], [], ["contradicted"]),
    (ACT, "Ich habe notes.txt geschrieben.", [], [], ["contradicted"]),
    (ACT, "Die Datei notes.txt wurde erstellt.", [WROTE], [], ["supported"]),
    # A path is the same by its folders, or without any.
    (ACT, "I wrote src/notes.txt.", [WROTE], [], ["contradicted"]),
    (ACT, "I wrote notes.txt.", [act(paths=("src/notes.txt",))], [], ["supported"]),
    (ACT, "I wrote ./notes.txt.", [WROTE], [], ["supported"]),
    (ACT, "I wrote /home/ada/project/notes.txt.", [WROTE], [], ["supported"]),
    (ACT, "I wrote notes.txt.", [act(words=("/home/ada/project/notes.txt",))], [], ["supported"]),
    (ACT, "I wrote Notes.txt.", [WROTE], [], ["supported"]),
    (ACT, "I moved it into `archive/`.", [act("fs_ops", paths=("archive/a.md",))], [],
     ["supported"]),
    # A text that a call wrote is not a name of what it wrote.
    (ACT, "I wrote notes.txt.", [act(paths=("a.txt",), words=("a.txt",))], [], ["contradicted"]),
    # A command may have done it: where that cannot be known nothing is said.
    (ACT, "I wrote notes.txt.", [SHELL], [], ["supported"]),
    (ACT, "I wrote notes.txt.", [BUILT], [], []),
    (ACT, "I wrote notes.txt.", [act("shell", status="denied", words=("make",))], [],
     ["contradicted"]),
    (ACT, "I ran `make all`.", [BUILT], [], ["supported"]),
    (ACT, "I ran `make all`.", [], [], ["contradicted"]),
    (ACT, "I ran `make all`.", [act("shell", status="failed", words=("make all",))], [],
     ["supported"]),
    (ACT, "I ran `make all`.", [act("shell", status="denied", words=("make all",))], [],
     ["failed"]),
    ("commit it", "I committed the changes.", [], [], ["contradicted"]),
    ("commit it", "I committed the changes.", [act("shell", words=("git commit -m x",))], [],
     ["supported"]),
    ("mail it to b@x.org", "I sent the email to b@x.org.", [], [], ["contradicted"]),
    ("mail it to b@x.org", "I sent the email to b@x.org.", [BUILT], [], ["supported"]),
    # What a pronoun means is the call that failed, or the one file that was asked for.
    (ACT, "Done, I wrote it.", [DENIED], [], ["failed"]),
    (ACT, "Done, I wrote it.", [WROTE], [], []),
    (ACT, "Done, I wrote it.", [], [], ["contradicted"]),
    (ACT, "I've created the file.", [FAILED], [], ["failed"]),
    (ACT, "Done.", [DENIED], [], ["failed"]),
    (ACT, "Done.", [], [], []),
    (ACT, "Done.", [WROTE], [], []),
    (ACT, "I wrote it, but the call was denied.", [DENIED], [], []),
    # Earlier turns count where nothing is asked for now, or the answer speaks of before.
    (ACT, "I wrote notes.txt.", [], [WROTE], ["contradicted"]),
    (ACT, "I've already written notes.txt.", [], [WROTE], ["supported"]),
    ("thanks", "I wrote notes.txt.", [], [WROTE], ["supported"]),
    ("what did you write?", "I wrote notes.txt.", [], [WROTE], ["supported"]),
    ("what did you write?", "I wrote other.txt.", [], [WROTE], ["contradicted"]),
    ("what did you write?", "I wrote other.txt.", [], [BUILT], []),
    # Nothing was asked for, so nobody says that it was done just now.
    ("tell me about notes.txt", "notes.txt was created.", [READ], [], []),
    ("when was notes.txt created?", "notes.txt was updated.", [], [], []),
    # The person's own words are no claim of the model.
    ("translate: I wrote notes.txt", "I wrote notes.txt.", [], [], []),
    ("can you write hi to notes.txt?", "notes.txt has been created.", [], [], ["contradicted"]),
]  # fmt: skip


def test_nothing_is_claimed_without_a_word_of_doing() -> None:
    missed = [text for text, found in CLAIMS if found and not CLAIMING.search(text.lower())]
    assert missed == []
    assert not CLAIMING.search("There is hello.txt.")


def test_claims_are_found_where_they_are_plain_and_nowhere_else() -> None:
    rows = Rows()
    for said, expected in CLAIMS:
        with rows.row(said):
            found = [(claim.kind, claim.object) for claim in find_claims(said) if claim.object]
            assert found == expected, found
    rows.check()
    assert len(CLAIMS) >= 120


def test_a_text_that_is_made_to_take_long_is_read_as_fast_as_any() -> None:
    rows = Rows()
    for piece in (
        "I wrote ",
        "\n",
        " ",
        "a.",
        "`",
        "'",
        '"',
        "(",
        "/a",
        "I wrote a.txt and ",
        "```\n",
    ):
        text = piece * (200_000 // len(piece))
        with rows.row(repr(piece)):
            began = time.process_time()
            checked(text, Deeds(asked=text))
            assert time.process_time() - began < LONGEST_S
    rows.check()


def test_a_claim_is_judged_by_calls_of_its_kind_on_its_object() -> None:
    rows = Rows()
    for asked, said, acts, earlier, expected in VERDICTS:
        with rows.row(f"{said} [{asked}; {[a.status for a in acts]}]"):
            deeds = Deeds(
                asked=asked, acts=tuple(acts), earlier=tuple(earlier), workspace=WORKSPACE
            )
            found = [claim.verdict for claim in checked(said, deeds)]
            assert found == expected, found
    rows.check()
