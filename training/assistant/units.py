"""In which unit the result of a sum is, as far as the question says it.

What is asked as `how many bottles are left` is answered in bottles, `5 miles in km` in km.
"""

import re

_NAMES = {
    "en": """
        °C °F C F celsius fahrenheit m/s mps km/h kph kmh mph kilometers km miles meters metres feet
        millimeters mm centimeters cm inches ft m kilograms kilos kg grams g pounds lbs ounces
        liters litres milliliters ml l gallons milliseconds seconds minutes hours days weeks months
        years bytes KB kilobytes MB megabytes GB gigabytes TB bits percent dollars euros cents
    """,
    "de": """
        Celsius Fahrenheit °C °F C F m/s km/h Quadratmeter Quadratmetern Kilometer Kilometern km
        Meilen Meter Metern m Millimeter Millimetern mm Zentimeter Zentimetern cm Zoll Fuß ft
        Kilogramm Kilo kg Gramm g Pfund lbs Liter Litern l Milliliter Millilitern ml Sekunden
        Millisekunden Minuten Stunden Tage Tagen Wochen Monate Monaten Jahre Jahren Bit Byte KB
        Kilobyte MB Megabyte GB Gigabyte TB Prozent Dollar Euro Cent
    """,
}
_PHRASES = {
    "en": ["degrees celsius", "degrees fahrenheit", "meters per second", "square meters"],
    "de": ["Grad Celsius", "Grad Fahrenheit", "Meter pro Sekunde"],
}
_ARROWS = {"en": r"(?:\b(?:in|to|into)|->) ", "de": r"(?:\b(?:in|zu|nach)|->) "}
_INTO = {
    language: re.compile(
        f"{arrow}({'|'.join([*_PHRASES[language], *_NAMES[language].split()])})"
        r"(?![\w/]| (?:per|pro|and|und)\b)"
    )
    for language, arrow in _ARROWS.items()
}
_SIGNS = "km/h|m/s|GB|MB|KB|TB"
_COUNTED = {
    "en": re.compile(
        rf"\bhow many (degrees [a-z]+|[a-z]+ per [a-z]+|square meters|pieces of fruit|\{{UN\}}"
        rf"|{_SIGNS}|[a-z]+)(?![\w/])"
    ),
    "de": re.compile(
        r"\b[Ww]ie ?viele? (Grad [A-Z]\w+|Meter pro Sekunde|\{UN\}"
        rf"|{_SIGNS}|kg|cm|km|lbs|[A-ZÄÖÜ]\w+)(?![\w/])"
    ),
}
_NO_WORDS = """
is are do does did of each in left more less will would remain can could good full free per a
the for at go to altogether there between it have get need still together come over times money
Trinkgeld Steuer Geld Wechselgeld Zeit Sprit Rest Rabatt Zinsen Mal
after
"""
_WRITTEN = {
    "celsius": "degrees Celsius", "degrees celsius": "degrees Celsius", "C": "°C", "F": "°F",
    "fahrenheit": "degrees Fahrenheit", "degrees fahrenheit": "degrees Fahrenheit",
    "Celsius": "Grad Celsius", "Fahrenheit": "Grad Fahrenheit", "Tagen": "Tage", "Jahren": "Jahre",
    "Monaten": "Monate", "Metern": "Meter", "Kilometern": "Kilometer", "Zentimetern": "Zentimeter",
    "Millimetern": "Millimeter", "Litern": "Liter", "Millilitern": "Milliliter", "mps": "m/s",
    "Quadratmetern": "Quadratmeter", "kmh": "km/h", "kph": "km/h",
}  # fmt: skip


def unit_asked_for(phrasing: str, language: str) -> str:
    """Return what the result counts, or ""; a slot stays one."""
    units: list[str] = _INTO[language].findall(phrasing)[-1:]
    if not units:
        counted: list[str] = _COUNTED[language].findall(phrasing)
        units = [each for each in counted if each.split()[0] not in _NO_WORDS.split()]
    return _WRITTEN.get(units[0], units[0]) if units else ""
