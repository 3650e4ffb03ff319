"""Messages, and for each a question that shares no telling word with it."""

ABOUT: tuple[tuple[str, str], ...] = (
    ("The backup of all photos failed: nas2 was full.", "which disk lacks room for pictures?"),
    ("We agreed that Marta pays everybody's wages starting in May.", "who handles the salaries?"),
    ("My daughter is allergic to peanuts, so no satay please.", "meals that make our girl ill"),
    ("The flight to Lisbon leaves at 6:40 in the morning.", "when does our plane depart?"),
    ("Raise the thermostat to 21 degrees before guests arrive.", "how warm should the house be"),
    ("The plumber fixed the leaking tap under the kitchen sink.", "water dripping repair"),
    ("Postgres runs out of connections whenever the crawler starts.", "database overloaded"),
    ("I prefer dark chocolate with sea salt as a present.", "favourite sweets for a gift"),
    ("The landlord wants the rent by the third of each month.", "when to pay for the apartment"),
    ("Her violin recital was moved to the town hall.", "where is the concert"),
    ("The car needs new brake pads before winter.", "vehicle maintenance"),
    ("Doctor Huber prescribed antibiotics for ten days.", "what medicine did I get"),
    ("Rebase the branch instead of merging it.", "keep the git history linear"),
    ("The cat hides under the bed during thunderstorms.", "pet afraid of bad weather"),
    ("Our quarterly revenue grew by twelve percent.", "does the company make more money?"),
    ("Plant the tomatoes after the last frost.", "best time to sow vegetables in the garden"),
    ("The wifi passphrase is printed on the bottom of the router.", "internet password"),
    ("Lena broke her ankle skiing and cannot drive.", "who was injured"),
    ("The museum is free on the first Sunday.", "cheap culture at weekends"),
    ("Use a pressure cooker, the beans are done in half the time.", "prepare legumes faster"),
)  # fmt: skip
OTHER = (
    "Please write a short poem about the sea.", "What is 17 times 23?", "Thanks, that works.",
    "Translate this sentence into French.", "Here is a list of prime numbers up to fifty.",
    "Could you format the table as CSV?", "The answer is 42.", "Good morning!",
    "Explain how a binary search tree works.", "Rename the function to parse_header.",
    "The capital of Mongolia is Ulaanbaatar.", "Sort the lines by length.",
    "I do not understand the question.", "Tell me a joke about penguins.",
    "Here is the summary of the article.", "The regular expression has an error.",
    "Let us continue tomorrow.", "Draw a diagram of the network.", "ok", "yes",
    "Compare Rust and Go for command line tools.", "Convert 5 miles to kilometres.",
)  # fmt: skip
NONSENSE = ("qwxz blorf", "zzxxyy 99817-AB", "fnord gribbly wumpus", "lorem ipsum", "asdfghjkl")
