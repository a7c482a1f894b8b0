"""A page: campaigns by host."""

from html import escape

from orchestrator.plugins import Page


def render(workspace):
    """Return the page: how many campaigns each host ran."""
    rows = "".join(
        f"<li>{escape(item.host)}: {escape(item.name)}</li>" for item in workspace.store.campaigns()
    )
    return f"<!doctype html><html lang='en'><title>Campaigns by host</title><ul>{rows}</ul></html>"


COUNTS = Page(title="Campaigns by host", render=render)
