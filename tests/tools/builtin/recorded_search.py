"""Pages of search engines in the form that they have, shortened, with results of our own."""

_FIRST = "https://clawd.example/docs?a=1%2F2"
_SECOND = "https://second.example/"

_DUCKDUCKGO = f"""<!DOCTYPE html><html><head><title>clawd daemon at DuckDuckGo</title></head><body>
<div class="serp__results"><div id="links" class="results">
<div class="result results_links results_links_deep web-result">
<div class="links_main links_deep result__body">
<h2 class="result__title"><a class="result__a" href="{_FIRST}">The <b>clawd</b> daemon</a></h2>
<a class="result__snippet" href="{_FIRST}">A daemon for a <b>machine</b>.</a>
</div></div>
<div class="result results_links result--ad"><div class="links_main result__body">
<h2><a href="https://duckduckgo.com/y.js?ad_domain=x">Buy claws</a></h2>
<a class="result__snippet" href="https://duckduckgo.com/y.js?ad_domain=x">An advertisement.</a>
</div></div>
<div class="result results_links web-result"><div class="links_main result__body">
<h2 class="result__title"><a href="{_SECOND}">Second &amp; last</a></h2>
<a class="result__snippet" href="{_SECOND}">Text of the second.</a>
</div></div></div></div></body></html>"""

_BRAVE = f"""<!doctype html><html><body><main><div id="results">
<div class="snippet" data-pos="0" data-type="web"><div class="result-wrapper">
<div class="result-content"><a href="{_FIRST}" class="l1"><div class="site-name-wrapper">
<div class="sitename">clawd.example</div></div>
<div class="title search-snippet-title">The clawd daemon</div></a>
<div class="generic-snippet snippet-body"><div class="content">A daemon for a machine.</div></div>
</div></div></div>
<div class="snippet" data-pos="1" data-type="web"><div class="result-content">
<a href="{_SECOND}"><div class="title">Second &amp; last</div></a>
<div class="snippet-body"><div class="content">Text of the second.</div></div></div></div>
<div class="snippet" data-type="videos"><a href="https://video.example/">no</a></div>
</div></main></body></html>"""

_MOJEEK = f"""<!DOCTYPE html><html><body><div class="serp-results">
<ul class="results-standard"><li class="r1"><a class="ob" href="{_FIRST}"><p class="i">clawd</p></a>
<h2><a class="title" href="{_FIRST}">The clawd daemon</a></h2>
<p class="s">A daemon for a <strong>machine</strong>.</p></li>
<li class="r2"><h2><a class="title" href="{_SECOND}">Second &amp; last</a></h2>
<p class="s">Text of the second.</p></li></ul></div></body></html>"""

_YAHOO = """<!DOCTYPE html><html><body><div id="web"><ol class="reg searchCenterMiddle">
<li><div class="dd algo algo-sr relsrch Sr"><div class="compTitle options-toggle">
<a href="https://r.search.yahoo.com/_ylt=x;_ylu=y/RV=2/RE=1/RO=10/RU=https%3a%2f%2fclawd.example%2fdocs%3fa%3d1%252F2/RK=2/RS=z-">
<h3 class="title">The clawd daemon</h3></a></div>
<div class="compText aAbs"><p>A daemon for a <b>machine</b>.</p></div></div></li>
<li><div class="dd algo relsrch"><div class="compTitle"><h3 class="title">
<a href="https://r.search.yahoo.com/x/RU=https%3a%2f%2fsecond.example%2f/RK=2/RS=z-">Second &amp;
last</a></h3></div><div class="compText"><p>Text of the second.</p></div></div></li>
</ol></div></body></html>"""

_STARTPAGE = f"""<!DOCTYPE html><html><body><section class="w-gl">
<div class="result css-o7i03b"><a class="result-title" href="{_FIRST}"><h2>The clawd daemon</h2></a>
<p class="description">A daemon for a machine.</p></div>
<div class="result css-o7i03b"><a class="result-title" href="{_SECOND}"><h2>Second</h2></a>
<p class="description">Text of the second.</p></div></section></body></html>"""

PAGES = {
    "duckduckgo": _DUCKDUCKGO,
    "brave": _BRAVE,
    "mojeek": _MOJEEK,
    "yahoo": _YAHOO,
    "startpage": _STARTPAGE,
}

WIKIPEDIA = (
    '["clawd daemon",["Clawd"],[""],["https://de.wikipedia.org/wiki/Clawd"]]',
    '{"batchcomplete":"","query":{"pages":{"1":{"pageid":1,"ns":0,"title":"Clawd",'
    '"extract":"<p><b>Clawd</b> is a word in a test.</p>"}}}}',
)

CAPTCHAS = {
    "duckduckgo": """<html><body><div class="anomaly-modal__mask"><div class="anomaly-modal__title">
Unfortunately, bots use DuckDuckGo too.</div><div>Select all squares containing a duck:</div>
</div></body></html>""",
    "brave": """<html><body><main><h1>Confirm you're a human being</h1><button>I'm not a robot
</button></main></body></html>""",
}
