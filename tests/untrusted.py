"""Texts that nobody should interpret, and what a reader sees of them."""

from markdown_it import MarkdownIt

WORDS = [
    "|",
    "a | b | c |",
    "`",
    "a ``` b",
    "`|`",
    "\\",
    "\\|",
    "a\\` | [x](y)",
    "](javascript:alert(1))",
    "![x](https://example.org/x.png)",
    "<script>alert(1)</script>",
    "<b onclick='alert(1)'>",
    "'\" onload=alert(1) x='",
    "-->",
    "]]>",
    "&lt;script&gt;",
    "https://example.org www.example.org",
    "**_~~",
    "$x_{",
    "$$",
    "{{ 7 * 7 }}{% raw %}",
    "[bold red]x[/]",
    "[/bold]",
    "a\nb\n\n# heading\n\n- item",
    "\r\n| a | b |\r\n|---|---|",
    "\x1b[31m\x1b]0;title\x07",
    "\x00\x07\x08\x7f\x9b",
    "\x0ecode\x0f\x0e",
    "\u202eright to left",
    "\u2028\u2029\x85",
    "\ud800",
    "\ufffe\uffff",
    '=HYPERLINK("x")',
    "x" * 5000,
]

MARKDOWN = MarkdownIt("commonmark").enable("table")


def shown(text):
    """Return whether a text has only characters that are safe in a terminal and in XML, and visible to readers."""
    return all(letter.isprintable() or letter == "\n" for letter in text)
