"""Markdown of agents on pages: what it means is shown, and nothing of it is a tag of theirs."""

from __future__ import annotations

import re

from support.each import with_each

from lastlight_state.inspector.markdown import MOST, html

#: Every tag that the module makes, with its attributes.
OURS = re.compile(
    r"</?(?:p|ul|ol|li|pre|code|strong|em|h[3-6]|blockquote)>|<[bh]r />|</a>|<code class=\"language-[^\"<>]+\">"
    r"|<a href=\"https?://[^\"<>\s]+\"(?: title=\"[^\"<>]*\")? rel=\"noreferrer noopener nofollow\">"
)


@with_each(
    ("text", "shown"),
    [
        ("one\ntwo\n\nthree", "<p>one<br />two</p><p>three</p>"),
        ("# Plan\n## Part #", "<h3>Plan</h3><h4>Part</h4>"),
        ("- a\n- b\n  more\n", "<ul><li>a</li><li>b<br />more</li></ul>"),
        ("**bold** and *thin* and `a*b*c`", "<p><strong>bold</strong> and <em>thin</em> and <code>a*b*c</code></p>"),
        ("2 * 3 * 4, snake_case_name", "<p>2 * 3 * 4, snake_case_name</p>"),
        ("```\n# x\n```\nend", "<pre><code># x</code></pre><p>end</p>"),
        ("[it](https://example.com/a?b=1&c=2)",
         '<p><a href="https://example.com/a?b=1&amp;c=2" rel="noreferrer noopener nofollow">it</a></p>'),
        ("x" * 70_000, "<pre>" + "x" * 70_000 + "</pre>"),
        ("", ""),
    ],
)  # fmt: skip
def test_markdown_is_shown_as_what_it_means(text: str, shown: str) -> None:
    """inspector IN-19."""
    assert html(text).replace("\n", "") == shown


@with_each(
    "text",
    [
        "<script>alert(1)</script>",
        "# <img src=x onerror=alert(1)>",
        "- <b>x</b>\n- **<i>y</i>**",
        "`<svg onload=alert(1)>`",
        "```\n</pre><script>alert(1)</script>\n```",
        "[x](javascript:alert(1))",
        '[x](https://e.com/"onmouseover="alert(1))',
        "[<img src=x>](https://e.com)",
        "![x](https://e.com/x.png)",
        "[x](https://e.com/'><script>)",
        "**`<a href=x>`**",
        "<a href='https://e.com'>x</a>",
        "&lt;script&gt;",
        "<https://e.com/x>",
        "[x]\n\n[x]: javascript:alert(1)",
        "[x]\n\n[x]: https://e.com '\"<b>'",
        '~~~x" onclick="alert(1)\n~~~',
        "<!-- x -->" * 7_000,
    ],
)
def test_nothing_of_an_agent_becomes_a_tag(text: str) -> None:
    """inspector IN-19: each tag and attribute is one of the page's own."""
    shown = str(html(text))
    assert "<" not in OURS.sub("", shown)
    assert 'href="javascript' not in shown
    assert "<img" not in shown


@with_each("text", ["*", "`", "[", "- ", "**a", "[a](http://", "`x``y", ">", "<"])
def test_a_hostile_text_takes_no_long_time(text: str) -> None:
    """inspector IN-19: the suite's own limit would end it. A longer text is shown as it is."""
    assert html(text * (MOST // len(text)))
    assert html(text * 10 * MOST).startswith("<pre>")
