"""The documents of docs/ as pages of the site. Pages link to docs/NAME.md, which is right in a
checkout; on the site these links lead to docs/NAME.html."""

import re
from pathlib import Path

from cli import ROOT
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup
from store.files import put

from .page import anchor, render_web

DOCS = ROOT / "docs"
DOCUMENT = re.compile(r"([\w-]+)\.md(#.*)?")  # address of a document in another one
LINK = re.compile(r'(?<=href=")((?:\.\./)*)\.\./docs/([\w-]+)\.md(?=[#"])')


def publish_documents(site: Path) -> None:
    """Write the documents into the folder of a site, and lead its links to them."""
    for page in site.rglob("*.html"):
        put(page, LINK.sub(r"\1docs/\2.html", page.read_text("utf-8")))
    for path in sorted(DOCS.glob("*.md")):
        title, body = to_page(path.read_text("utf-8"))
        document = render_web("document.html.jinja", title=title, body=Markup(body))
        put(site / DOCS.name / f"{path.stem}.html", document)


def to_page(text: str) -> tuple[str, str]:
    """The title of a document, and its HTML."""
    markdown = MarkdownIt("commonmark").enable("table")
    tokens = markdown.parse(text)
    titles = []
    for token, content in zip(tokens, tokens[1:]):
        if token.type == "heading_open":
            titles.append(content.content)
            token.attrSet("id", anchor(content.content))
        for part in token.children or ():
            _lead(part)
    body = markdown.renderer.render(tokens, markdown.options, {})
    scroll = '<div class="scroll" tabindex="0" role="group" aria-label="Table">'
    body = body.replace("<table>", f"{scroll}<table>").replace("</table>", "</table></div>")
    return titles[0], body


def _lead(part: Token) -> None:
    """Lead a link to another document to its page. A link to a file that the site lacks is none."""
    address = str(part.attrGet("href") or "")
    if document := DOCUMENT.fullmatch(address):
        part.attrSet("href", f"{document[1]}.html{document[2] or ''}")
    elif not address.startswith(("#", "https:")):
        part.attrs.pop("href", None)
